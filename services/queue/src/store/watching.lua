-- Returns 1 for each entry whose stream was confirmed within some time, else 0. KEYS: watching. ARGV: milliseconds, the entry
-- ids.
local time = redis.call('TIME')
local since = time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(ARGV[1])
local found = {}
for i = 2, #ARGV do
  local last = redis.call('ZSCORE', KEYS[1], ARGV[i])
  found[i - 1] = (last and tonumber(last) >= since) and 1 or 0
end
return found
