-- Writes a new record, or returns the one that exists.
-- KEYS: epoch, record, order, index, tenants, tombstones, waiting entries, references, places. ARGV: epoch, time, kind of write,
-- id, write id, head, index, compared time (2), end (2), rest, margin of the expiry, line, due (2), reference, the last time of this
-- server at which to write.
if ARGV[18] ~= '' and micros / 1000 > tonumber(ARGV[18]) then return {2, now} end
local value = '1' .. ARGV[6] .. middle .. '\0' .. ARGV[12]
local set
if kind == 't' then
  set = redis.call('SET', KEYS[2], value, 'NX', 'PX', math.max(ends - now, 0) + tonumber(ARGV[13]))
else
  set = redis.call('SET', KEYS[2], value, 'NX')
end
if not set then
  local found = redis.call('GET', KEYS[2])
  if string.sub(found, 27, 42) == ARGV[5] then
    -- Its own write, whose answer was lost. It writes a byte once more, because WAIT waits for the writes of one connection.
    redis.call('SETRANGE', KEYS[2], 83, string.sub(found, 84, 84))
    return {1, (struct.unpack('>I8', string.sub(found, 67, 74)))}
  end
  return {0, now, found}
end
if redis.call('ZADD', KEYS[3], 'NX', micros, ARGV[4]) == 0 then
  -- There was a record. A tombstone that has expired by itself leaves its id behind. Any other record was lost.
  local forgotten = redis.call('ZSCORE', KEYS[6], ARGV[4])
  if not forgotten or tonumber(forgotten) > now then
    redis.call('DEL', KEYS[2])
    return {4, now}
  end
  redis.call('ZREM', KEYS[6], ARGV[4])
  redis.call('ZADD', KEYS[3], micros, ARGV[4])
end
redis.call('ZADD', KEYS[4], ends, ARGV[4])
if waiting then place(KEYS[9], ARGV[4], KEYS[7], waiting) end
if reference then place(KEYS[9], 'f' .. ARGV[4], KEYS[8], reference) end
local tenant = string.sub(ARGV[6], 42)
if tenant ~= string.rep('\0', 16) then redis.call('HINCRBY', KEYS[5], tenant, 1) end
return {1, now}
