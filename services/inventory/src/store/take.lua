-- Takes the first ARGV[1] free units out of the pool KEYS[1], or as many as there are.
-- Answers their numbers; nil when there is no pool.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return false
end
local units = {}
local byte = 0
for index = 1, tonumber(ARGV[1]) do
  local bit = redis.call('BITPOS', KEYS[1], 1, byte)
  if bit < 0 then
    break
  end
  redis.call('SETBIT', KEYS[1], bit, 0)
  units[index] = bit + 1
  byte = math.floor(bit / 8)
end
return units
