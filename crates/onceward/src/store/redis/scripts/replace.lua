-- Writes the next version of a record, if it is still the one that the caller saw.
-- KEYS: epoch, record, unsettled, done, tombstones, tenants, trail, waiting entries, references, places. ARGV: epoch, time, kind of
-- write, id, write id, head, index, compared time (2), end (2), rest, margin of the expiry, line, due (2), reference, expected version
-- and fence, expected time, audit event, most events, whether the caller waits until the record that it gets is on replicas.
local head = redis.call('GETRANGE', KEYS[2], 0, 83)
if head == '' then return {0, now} end
if string.sub(head, 27, 42) == ARGV[5] then
  -- Its own write, whose answer was lost. It writes a byte once more, because WAIT waits for the writes of one connection.
  redis.call('SETRANGE', KEYS[2], 83, string.sub(head, 84, 84))
  return {1, (struct.unpack('>I8', string.sub(head, 67, 74)))}
end
if string.sub(head, 2, 26) ~= ARGV[18] or (ARGV[19] ~= '' and string.sub(head, 59, 66) ~= ARGV[19]) then
  -- What is there may be an earlier write of the same owner that no replica has. It becomes the last write of this connection.
  if ARGV[22] == '1' then redis.call('SETRANGE', KEYS[2], 83, string.sub(head, 84, 84)) end
  return {0, now, redis.call('GET', KEYS[2])}
end
local trail = string.sub(head, 84, 84)
if ARGV[20] ~= '' and redis.call('LLEN', KEYS[7]) < tonumber(ARGV[21]) then
  redis.call('RPUSH', KEYS[7], ARGV[5] .. struct.pack('>I8', now) .. ARGV[20])
  trail = '\1'
end
-- SET clears an expiry that the last version had.
local value = '1' .. ARGV[6] .. middle .. trail .. ARGV[12]
if kind == 't' then
  local expiry = math.max(ends - now, 0) + tonumber(ARGV[13])
  redis.call('SET', KEYS[2], value, 'PX', expiry)
  if trail == '\1' then redis.call('PEXPIRE', KEYS[7], expiry) end
else
  redis.call('SET', KEYS[2], value)
  if trail == '\1' then redis.call('PERSIST', KEYS[7]) end
end
local indexes = {u = KEYS[3], d = KEYS[4], t = KEYS[5]}
local last = string.sub(head, 75, 75)
if last ~= kind then redis.call('ZREM', indexes[last], ARGV[4]) end
if last ~= kind or string.sub(head, 76, 83) ~= packed_ends then redis.call('ZADD', indexes[kind], ends, ARGV[4]) end
-- A direct call has no line, so that it pays nothing.
if ARGV[14] ~= '' or kind == 't' then place(KEYS[10], ARGV[4], KEYS[8], waiting) end
if reference or last == 'd' then place(KEYS[10], 'f' .. ARGV[4], KEYS[9], reference) end
local before, after = string.sub(head, 43, 58), string.sub(ARGV[6], 42)
if before ~= after then
  local none = string.rep('\0', 16)
  if before ~= none and redis.call('HINCRBY', KEYS[6], before, -1) <= 0 then redis.call('HDEL', KEYS[6], before) end
  if after ~= none then redis.call('HINCRBY', KEYS[6], after, 1) end
end
return {1, now}
