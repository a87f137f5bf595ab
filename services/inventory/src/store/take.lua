-- Takes the first ARGV[1] free units out of the pool KEYS[1], or as many as it has. Returns their numbers, or nil if the pool does not
-- exist.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return false
end
-- Bytes per read and write: a command costs more, here and on the replicas, than all the bits of a piece.
local PIECE = 128
local wanted = tonumber(ARGV[1])
local units = {}
local from = 0
while #units < wanted do
  local first = redis.call('BITPOS', KEYS[1], 1, from)
  if first < 0 then
    break
  end
  from = math.floor(first / 8)
  local piece = redis.call('GETRANGE', KEYS[1], from, from + PIECE - 1)
  local rest = {}
  for index = 1, #piece do
    if #units == wanted then
      break
    end
    local byte = string.byte(piece, index)
    local kept = 0
    local bit = 128
    local unit = (from + index - 1) * 8
    while byte > 0 do
      unit = unit + 1
      if byte >= bit then
        byte = byte - bit
        if #units < wanted then
          units[#units + 1] = unit
        else
          kept = kept + bit
        end
      end
      bit = bit / 2
    end
    rest[index] = string.char(kept)
  end
  redis.call('SETRANGE', KEYS[1], from, table.concat(rest))
  from = from + #rest
end
return units
