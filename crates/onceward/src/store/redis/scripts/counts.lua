-- How many records of a shard are done and how many are tombstones, as of now; those of one tenant in any state; and the ids of
-- outcomes that have expired and were not swept. KEYS: epoch, done, tombstones, tenants. ARGV: epoch, time, tenant.
local after = '(' .. string.format('%.0f', now)
return {
  1, now,
  redis.call('ZCOUNT', KEYS[2], after, '+inf'),
  redis.call('ZCOUNT', KEYS[3], after, '+inf'),
  tonumber(redis.call('HGET', KEYS[4], ARGV[3])) or 0,
  redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now),
}
