-- Writes a record with its trail, if a copy with this token comes in. KEYS: epoch, record, order, index, tenants, trail,
-- waiting entries, references, places. ARGV: epoch, time, token, id, write id, head, index, compared time (2), end (2), rest, margin
-- of the expiry, line, due (2), reference, position in the order, and the entries of the trail.
local value = '1' .. ARGV[6] .. middle .. (#ARGV > 18 and '\1' or '\0') .. ARGV[12]
local expiry = kind == 't' and math.max(ends - now, 0) + tonumber(ARGV[13])
local set
if expiry then
  set = redis.call('SET', KEYS[2], value, 'NX', 'PX', expiry)
else
  set = redis.call('SET', KEYS[2], value, 'NX')
end
if not set then
  if string.sub(redis.call('GETRANGE', KEYS[2], 0, 83), 27, 42) == ARGV[5] then return {1, now} end
  return {0, now}
end
redis.call('DEL', KEYS[6])
for entry = 19, #ARGV do redis.call('RPUSH', KEYS[6], ARGV[entry]) end
if expiry and #ARGV > 18 then redis.call('PEXPIRE', KEYS[6], expiry) end
redis.call('ZADD', KEYS[3], ARGV[18], ARGV[4])
redis.call('ZADD', KEYS[4], ends, ARGV[4])
if waiting then place(KEYS[9], ARGV[4], KEYS[7], waiting) end
if reference then place(KEYS[9], 'f' .. ARGV[4], KEYS[8], reference) end
local tenant = string.sub(ARGV[6], 42)
if tenant ~= string.rep('\0', 16) then redis.call('HINCRBY', KEYS[5], tenant, 1) end
return {1, now}
