-- Everybody who waits is known here now, unless the line was wiped while they were brought, or somebody else began anew.
-- KEYS: line. ARGV: the mark of who brought them.
if redis.call('HGET', KEYS[1], 'loading') ~= ARGV[1] then
  return 0
end
redis.call('HDEL', KEYS[1], 'loading')
redis.call('HSET', KEYS[1], 'loaded', 1)
return 1
