#!lua
-- Takes over the seal of the first shard, unless a later one is there. KEYS: epoch, order. ARGV: epoch, next, whether the shard
-- must be empty.
local found = redis.call('GET', KEYS[1])
if not found or string.sub(found, 1, 32) ~= ARGV[1] then return {-1, found} end
if string.sub(found, 34, 41) >= string.sub(ARGV[2], 34, 41) then
  -- It is written once more, because WAIT waits for the writes of one connection.
  redis.call('SET', KEYS[1], found)
  return {1}
end
if ARGV[3] == '1' and redis.call('ZCARD', KEYS[2]) > 0 then return {2} end
redis.call('SET', KEYS[1], ARGV[2])
return {1}
