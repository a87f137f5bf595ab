-- Writes the report of a pod at the time of Redis. A report without viewers and lag deletes the last one.
-- KEYS: pods. ARGV: the pod, its viewers, its lag in milliseconds, seconds to keep the report.
if tonumber(ARGV[2]) == 0 and tonumber(ARGV[3]) == 0 then
  redis.call('HDEL', KEYS[1], ARGV[1])
  return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[1], string.format('%s %s %.0f', ARGV[2], ARGV[3], now))
redis.call('EXPIRE', KEYS[1], ARGV[4])
return 1
