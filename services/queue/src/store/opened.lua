-- Records open streams at the time of Redis, and deletes streams that were not confirmed for long, because their pods are gone.
-- KEYS: watching. ARGV: milliseconds to keep a stream, then the entry ids.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 2, #ARGV do
  redis.call('ZADD', KEYS[1], now, ARGV[i])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[1]))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
