-- Which entries had an open stream within the last milliseconds: 1 or 0 for each. KEYS: watching. ARGV: milliseconds, the ids.
local time = redis.call('TIME')
local since = time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(ARGV[1])
local found = {}
for i = 2, #ARGV do
  local last = redis.call('ZSCORE', KEYS[1], ARGV[i])
  found[i - 1] = (last and tonumber(last) >= since) and 1 or 0
end
return found
