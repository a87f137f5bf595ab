-- Marks the line as loaded, unless it was wiped during the load or another pod began to load it. Returns 1 if it is loaded.
-- KEYS: line. ARGV: the mark of the load.
if redis.call('HGET', KEYS[1], 'loading') ~= ARGV[1] then
  return 0
end
redis.call('HDEL', KEYS[1], 'loading')
redis.call('HSET', KEYS[1], 'loaded', 1)
return 1
