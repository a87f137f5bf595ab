-- Sets heartbeats to the time of Redis. With 'new' only for entries without one: a lost heartbeat counts as just sent.
-- KEYS: seen. ARGV: 'all' or 'new', then the entry ids.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 2, #ARGV do
  if ARGV[1] == 'new' then
    redis.call('ZADD', KEYS[1], 'NX', now, ARGV[i])
  else
    redis.call('ZADD', KEYS[1], now, ARGV[i])
  end
end
redis.call('EXPIRE', KEYS[1], 2592000)
return 1
