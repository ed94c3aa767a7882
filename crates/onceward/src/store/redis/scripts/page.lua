-- Ids of a shard in the order of recording, the newest first. KEYS: epoch, order. ARGV: epoch, time, position of the cursor or
-- nothing, how many to skip or nothing, how many to return.
local first = tonumber(ARGV[4])
if not first then
  -- The record of the cursor itself may be among those that follow.
  first = ARGV[3] == '' and 0 or redis.call('ZCOUNT', KEYS[2], '(' .. ARGV[3], '+inf')
end
return {1, now, first, redis.call('ZRANGE', KEYS[2], first, first + tonumber(ARGV[5]) - 1, 'REV', 'WITHSCORES')}
