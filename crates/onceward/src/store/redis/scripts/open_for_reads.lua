#!lua flags=no-writes
-- A sealed ledger can be read.
local epoch = redis.call('GET', KEYS[1])
if epoch ~= ARGV[1] and not (epoch and string.sub(epoch, 1, 32) == ARGV[1]) then return {-1, epoch} end
local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
