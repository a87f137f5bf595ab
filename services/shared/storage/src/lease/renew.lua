-- Renews the lease KEYS[1] for another ARGV[2] milliseconds if ARGV[1] still holds it. Returns 1 if it did, else 0.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
return 0
