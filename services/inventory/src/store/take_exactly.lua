-- Takes the units ARGV out of the pool KEYS[1], all or none.
-- Answers 1 when it did, 0 when one is not free, nil when there is no pool.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return false
end
for _, unit in ipairs(ARGV) do
  if redis.call('GETBIT', KEYS[1], unit - 1) == 0 then
    return 0
  end
end
for _, unit in ipairs(ARGV) do
  redis.call('SETBIT', KEYS[1], unit - 1, 0)
end
return 1
