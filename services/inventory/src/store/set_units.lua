-- Marks units of the pool KEYS[1] as free (ARGV[1] = 1) or taken (0); the units are ARGV[2] and following. Returns the units that had this
-- state before, or nil if the pool does not exist: setting a bit of a missing key would create a pool with one unit.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return false
end
-- Units per command: a command costs more, here and on the replicas, than the bits that it sets.
local PIECE = 500
local same = {}
for first = 2, #ARGV, PIECE do
  local last = math.min(first + PIECE - 1, #ARGV)
  local command = { 'BITFIELD', KEYS[1] }
  for index = first, last do
    command[#command + 1] = 'SET'
    command[#command + 1] = 'u1'
    command[#command + 1] = ARGV[index] - 1
    command[#command + 1] = ARGV[1]
  end
  local before = redis.call(unpack(command))
  for index = first, last do
    if before[index - first + 1] == tonumber(ARGV[1]) then
      same[#same + 1] = tonumber(ARGV[index])
    end
  end
end
return same
