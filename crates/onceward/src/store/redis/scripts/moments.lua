-- The compared time, and when a sweep has to look at the record: never, at a time, or some time after the write.
local function moment(from, millis)
  if from == '' then return nil end
  if millis == '' then return tonumber(from) end
  return math.min(math.max(now, tonumber(from)) + tonumber(millis), 4503599627370496)
end
local compared = moment(ARGV[8], ARGV[9])
local ends = moment(ARGV[10], ARGV[11]) or math.huge
local kind = ARGV[7]
local packed_ends = struct.pack('>d', ends)
local middle = (compared and struct.pack('>I8', compared) or '\255\255\255\255\255\255\255\255')
  .. struct.pack('>I8', now) .. kind .. packed_ends
