#!lua
-- Notes which operations live in this store. KEYS: operations. ARGV: names.
-- Those that are there are written once more, because WAIT waits for the writes of one connection.
redis.call('SREM', KEYS[1], unpack(ARGV))
redis.call('SADD', KEYS[1], unpack(ARGV))
return 1
