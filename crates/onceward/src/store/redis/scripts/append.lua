-- Appends to the audit trail. KEYS: epoch, record, trail. ARGV: epoch, time, kind of write, write id, event, most events, how many
-- of the last events may be this write.
for _, entry in ipairs(redis.call('LRANGE', KEYS[3], -tonumber(ARGV[7]), -1)) do
  if string.sub(entry, 1, 16) == ARGV[4] then return {1, now} end
end
if redis.call('LLEN', KEYS[3]) >= tonumber(ARGV[6]) then return {1, now} end
redis.call('RPUSH', KEYS[3], ARGV[4] .. struct.pack('>I8', now) .. ARGV[5])
if redis.call('EXISTS', KEYS[2]) == 1 then
  -- The trail goes when the record goes.
  redis.call('SETRANGE', KEYS[2], 83, '\1')
  local left = redis.call('PTTL', KEYS[2])
  if left > 0 then redis.call('PEXPIRE', KEYS[3], left) end
end
return {1, now}
