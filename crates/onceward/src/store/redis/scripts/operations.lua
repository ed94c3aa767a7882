-- Which operations live in this store: all of them, or whether one does. KEYS: epoch, operations. ARGV: epoch, time, name or nothing.
if ARGV[3] == '' then return {1, now, redis.call('SMEMBERS', KEYS[2])} end
return {1, now, redis.call('SISMEMBER', KEYS[2], ARGV[3])}
