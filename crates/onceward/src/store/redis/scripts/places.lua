-- Puts a record at another place of an index, or takes it out of the index.
local function place(places, field, index, member)
  local last = redis.call('HGET', places, field)
  if last == member then return end
  if last then redis.call('ZREM', index, last) end
  if member then
    redis.call('ZADD', index, 0, member)
    redis.call('HSET', places, field, member)
  elseif last then
    redis.call('HDEL', places, field)
  end
end
