#!lua
-- Notes which operations live in this store, also while a copy comes in. KEYS: epoch, operations. ARGV: epoch, names.
-- Those that are there are written once more, because WAIT waits for the writes of one connection.
local epoch = redis.call('GET', KEYS[1])
if not epoch or string.sub(epoch, 1, 32) ~= ARGV[1] then return {-1, epoch} end
redis.call('SREM', KEYS[2], unpack(ARGV, 2))
redis.call('SADD', KEYS[2], unpack(ARGV, 2))
return {1}
