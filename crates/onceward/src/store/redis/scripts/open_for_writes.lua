#!lua
-- The key of the epoch holds the epoch of the ledger, and after it the seal, if there is one: `+` accepts every write, `~` only
-- those of owners and operators, `!` none.
local epoch = redis.call('GET', KEYS[1])
if epoch ~= ARGV[1] then
  local mark = epoch and string.sub(epoch, 1, 32) == ARGV[1] and string.sub(epoch, 33, 33)
  if mark ~= '+' and (mark ~= '~' or ARGV[3] ~= 'o') then return {-1, epoch} end
end
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
-- A test gives its own time.
local now = tonumber(ARGV[2]) or math.floor(micros / 1000)
