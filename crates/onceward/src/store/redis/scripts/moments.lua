-- The compared time, when a sweep and when the courier has to look at the record: never, at a time, or some time after the write.
local function moment(from, millis)
  if from == '' then return nil end
  if millis == '' then return tonumber(from) end
  return math.min(math.max(now, tonumber(from)) + tonumber(millis), 4503599627370496)
end
local compared = moment(ARGV[8], ARGV[9])
local ends = moment(ARGV[10], ARGV[11]) or math.huge
local kind = ARGV[7]
-- Where the courier finds an entry: its line, when it is due, and its id. And where an effect is found by its reference.
local due = moment(ARGV[15], ARGV[16])
local waiting = ARGV[14] ~= '' and due and ARGV[14] .. struct.pack('>I8', due) .. ARGV[4]
local reference = ARGV[17] ~= '' and ARGV[17] .. '\0' .. ARGV[4]
local packed_ends = struct.pack('>d', ends)
local middle = (compared and struct.pack('>I8', compared) or '\255\255\255\255\255\255\255\255')
  .. struct.pack('>I8', now) .. kind .. packed_ends
