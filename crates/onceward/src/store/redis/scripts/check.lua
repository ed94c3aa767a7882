-- A write that changes no record. KEYS: epoch, a key of its own. ARGV: epoch, time, kind of write.
redis.call('SET', KEYS[2], now, 'PX', 60000)
return {1, now}
