-- The records of a shard that a sweep has to look at. KEYS: epoch, unsettled, done, tombstones. ARGV: epoch, time, limit.
local found = {1, now}
for index = 2, 4 do
  found[index + 1] = redis.call('ZRANGEBYSCORE', KEYS[index], '-inf', now, 'WITHSCORES', 'LIMIT', 0, tonumber(ARGV[3]))
end
return found
