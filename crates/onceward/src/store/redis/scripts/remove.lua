-- Removes a record, if it is still the one that was read. KEYS: epoch, record, order, unsettled, done, tombstones, tenants,
-- trail, waiting entries, references, places. ARGV: epoch, time, kind of write, id, the write that made the record; nothing if it has expired by itself.
local head = redis.call('GETRANGE', KEYS[2], 0, 83)
if string.sub(head, 27, 42) ~= ARGV[5] then return {0, now} end
if head ~= '' then
  local tenant = string.sub(head, 43, 58)
  if tenant ~= string.rep('\0', 16) and redis.call('HINCRBY', KEYS[7], tenant, -1) <= 0 then
    redis.call('HDEL', KEYS[7], tenant)
  end
end
redis.call('DEL', KEYS[2], KEYS[8])
redis.call('ZREM', KEYS[3], ARGV[4])
redis.call('ZREM', KEYS[4], ARGV[4])
redis.call('ZREM', KEYS[5], ARGV[4])
redis.call('ZREM', KEYS[6], ARGV[4])
place(KEYS[11], ARGV[4], KEYS[9], false)
place(KEYS[11], 'f' .. ARGV[4], KEYS[10], false)
return {1, now}
