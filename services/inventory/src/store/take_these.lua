-- Takes the units ARGV out of the pool KEYS[1], as far as they are free.
-- Answers those that are not; nil when there is no pool.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return false
end
local missed = {}
for _, unit in ipairs(ARGV) do
  if redis.call('SETBIT', KEYS[1], unit - 1, 0) == 0 then
    missed[#missed + 1] = tonumber(unit)
  end
end
return missed
