-- Takes the first ARGV[1] free units out of the pool KEYS[1], or none when there are fewer.
-- Answers their numbers; nil when there is no pool.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return false
end
local units = {}
local count = tonumber(ARGV[1])
if redis.call('BITCOUNT', KEYS[1]) < count then
  return units
end
local byte = 0
for index = 1, count do
  local bit = redis.call('BITPOS', KEYS[1], 1, byte)
  redis.call('SETBIT', KEYS[1], bit, 0)
  units[index] = bit + 1
  byte = math.floor(bit / 8)
end
return units
