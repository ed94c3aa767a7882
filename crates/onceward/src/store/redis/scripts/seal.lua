#!lua
-- Changes the seal in the first shard, which is the one that counts. KEYS: epoch, mark of an unfinished change, order. ARGV:
-- expected, next, whether the other shards follow, whether the shard must be empty.
local found = redis.call('GET', KEYS[1])
-- Its own write, if the answer was lost.
if found == ARGV[2] then return {1} end
if found ~= ARGV[1] then return {0} end
if ARGV[4] == '1' and redis.call('ZCARD', KEYS[3]) > 0 then return {2} end
redis.call('SET', KEYS[1], ARGV[2])
if ARGV[3] == '1' then redis.call('SET', KEYS[2], '1') end
return {1}
