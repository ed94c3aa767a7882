-- Reads a record. KEYS: epoch, record. ARGV: epoch, time.
return {1, now, redis.call('GET', KEYS[2])}
