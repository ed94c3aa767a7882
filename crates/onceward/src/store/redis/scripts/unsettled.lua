-- Ids of unsettled records of a shard, with their positions in the order of recording, and the score of the last one. KEYS: epoch,
-- unsettled, order. ARGV: epoch, time, how many to return, score and id of the last record that was read; nothing at first.
-- Not by number: records leave the index meanwhile, and those that follow would be skipped.
local function is_after(id, last)
  -- As the server sorts. `<` depends on its locale.
  for at = 1, #id do
    local one, other = string.byte(id, at), string.byte(last, at)
    if one ~= other then return one > other end
  end
  return false
end
local first = 0
if ARGV[4] ~= '' then
  -- Of the records with the score of the last one, those with a greater id follow.
  first = redis.call('ZCOUNT', KEYS[2], '-inf', '(' .. ARGV[4])
  local behind = redis.call('ZCOUNT', KEYS[2], '-inf', ARGV[4])
  while first < behind do
    local middle = math.floor((first + behind) / 2)
    if is_after(redis.call('ZRANGE', KEYS[2], middle, middle)[1], ARGV[5]) then behind = middle else first = middle + 1 end
  end
end
local ids = redis.call('ZRANGE', KEYS[2], first, first + tonumber(ARGV[3]) - 1)
if #ids == 0 then return {1, now, ids, {}, ''} end
return {1, now, ids, redis.call('ZMSCORE', KEYS[3], unpack(ids)), redis.call('ZSCORE', KEYS[2], ids[#ids])}
