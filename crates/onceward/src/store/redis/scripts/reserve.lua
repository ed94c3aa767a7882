-- Reserves a place of a tenant, and returns how many reservations are ahead of it and the time of this server.
-- KEYS: epoch, reservations. ARGV: epoch, time, kind of write, write id, length of a reservation in milliseconds.
local length = tonumber(ARGV[5])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', micros - length * 1000)
if not redis.call('ZSCORE', KEYS[2], ARGV[4]) then
  -- Never equal to another one: of two equal reservations each might be the first.
  local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
  redis.call('ZADD', KEYS[2], math.max(micros, (tonumber(last) or 0) + 1), ARGV[4])
  redis.call('PEXPIRE', KEYS[2], length * 2)
end
return {1, now, redis.call('ZRANK', KEYS[2], ARGV[4]), math.floor(redis.call('ZSCORE', KEYS[2], ARGV[4]) / 1000)}
