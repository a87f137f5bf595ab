-- Gives the lease KEYS[1] back if ARGV[1] still holds it. Answers 1 if so.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
