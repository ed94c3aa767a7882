-- The audit trail of a record. KEYS: epoch, trail. ARGV: epoch, time, most events.
return {1, now, redis.call('LRANGE', KEYS[2], 0, tonumber(ARGV[3]) - 1)}
