-- Takes the lease KEYS[1] for ARGV[2] milliseconds if it is free or already held by ARGV[1].
-- Returns {1, 0}, or {0, milliseconds until the lease runs out}. Safe to repeat.
local holder = redis.call('GET', KEYS[1])
if holder == false or holder == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return {1, 0}
end
return {0, redis.call('PTTL', KEYS[1])}
