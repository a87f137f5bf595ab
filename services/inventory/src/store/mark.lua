-- Marks units of the pool KEYS[1] as free (ARGV[1] = 1) or taken (0); the units are ARGV[2] and on.
-- Does nothing when there is no pool: a bit set in nothing would look like a pool with one unit.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
for index = 2, #ARGV do
  redis.call('SETBIT', KEYS[1], ARGV[index] - 1, ARGV[1])
end
return 1
