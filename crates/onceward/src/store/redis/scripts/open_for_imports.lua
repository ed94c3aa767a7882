#!lua
-- Only the copy with this token writes. The JSON of the seal follows the epoch, a letter and the number of the seal.
local epoch = redis.call('GET', KEYS[1])
if not epoch or string.sub(epoch, 1, 32) ~= ARGV[1] then return {-1, epoch} end
local time = redis.call('TIME')
local now = tonumber(ARGV[2]) or time[1] * 1000 + math.floor(time[2] / 1000)
local text = string.sub(epoch, 42)
local seal = text ~= '' and cjson.decode(text) or {}
if seal.state ~= 'receiving' or seal.token ~= ARGV[3] then return {3, now} end
