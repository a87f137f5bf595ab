-- Returns the sum of the viewers and the longest lag that the other pods reported. Deletes reports that are too old.
-- KEYS: pods. ARGV: the calling pod, milliseconds for which a report counts.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local reports = redis.call('HGETALL', KEYS[1])
local viewers, slowest = 0, 0
for i = 1, #reports, 2 do
  local count, lag, reported = string.match(reports[i + 1], '^(%d+) (%d+) (%d+)$')
  if not reported or now - tonumber(reported) > tonumber(ARGV[2]) then
    redis.call('HDEL', KEYS[1], reports[i])
  elseif reports[i] ~= ARGV[1] then
    viewers = viewers + tonumber(count)
    slowest = math.max(slowest, tonumber(lag))
  end
end
return {viewers, slowest}
