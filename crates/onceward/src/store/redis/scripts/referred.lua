-- The records of a shard whose effects have this reference, with their positions in the order of recording, and the place of the last
-- one. KEYS: epoch, references, order. ARGV: epoch, time, reference, the place of the last one that was read or nothing, how many to
-- return.
local first = ARGV[4] == '' and '[' .. ARGV[3] .. '\0' or '(' .. ARGV[4]
local ids = redis.call('ZRANGEBYLEX', KEYS[2], first, '(' .. ARGV[3] .. '\1', 'LIMIT', 0, tonumber(ARGV[5]))
local last = ids[#ids]
for at, member in ipairs(ids) do ids[at] = string.sub(member, -32) end
if #ids == 0 then return {1, now, ids, {}, ''} end
return {1, now, ids, redis.call('ZMSCORE', KEYS[3], unpack(ids)), last}
