-- Ids of unsettled records of a shard, with their positions in the order of recording. KEYS: epoch, unsettled, order.
-- ARGV: epoch, time, how many to skip, how many to return.
local ids = redis.call('ZRANGE', KEYS[2], tonumber(ARGV[3]), ARGV[3] + ARGV[4] - 1)
if #ids == 0 then return {1, now, ids, {}} end
return {1, now, ids, redis.call('ZMSCORE', KEYS[3], unpack(ids))}
