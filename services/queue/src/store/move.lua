-- Brings the sorted set of who waits up to date with what was committed in Postgres, and tells the move log of it. May run
-- twice, late, or in another order than the commits: a seq up to the highest admitted never comes (back) in, and a record
-- that is there twice, or late, is one that its readers know already or have waited for. Only one who left before a late
-- join of theirs arrives stands here for nothing, until the line is compared with Postgres.
-- Who joins was just seen.
-- KEYS: line, waiting, log, seen. ARGV: highest seq admitted, how many joined, seq and id of each, how many went, their ids; and,
-- when there is something for the log, how many records it keeps, then the three fields of the record.
-- Answers 1 when everybody who waits is known here.
local admitted = math.max(tonumber(redis.call('HGET', KEYS[1], 'admitted') or '0'), tonumber(ARGV[1]))
redis.call('HSET', KEYS[1], 'admitted', admitted)
local next = 3 + 2 * tonumber(ARGV[2])
-- As many in one call as fit on Lua's stack. Who was admitted meanwhile is taken out again below.
for first = 3, next - 1, 2000 do
  redis.call('ZADD', KEYS[2], unpack(ARGV, first, math.min(first + 1999, next - 1)))
end
if next > 3 then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  for first = 3, next - 1, 2000 do
    local signs = {}
    for i = first, math.min(first + 1998, next - 2), 2 do
      signs[#signs + 1] = now
      signs[#signs + 1] = ARGV[i + 1]
    end
    redis.call('ZADD', KEYS[4], 'NX', unpack(signs))
  end
  redis.call('EXPIRE', KEYS[4], 2592000)
end
local gone = tonumber(ARGV[next])
for i = next + 1, next + gone do
  redis.call('ZREM', KEYS[2], ARGV[i])
end
next = next + gone + 1
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', admitted)
if ARGV[next] then
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[next], '*', 'n', ARGV[next + 1], 'g', ARGV[next + 2], 'e', ARGV[next + 3])
  redis.call('EXPIRE', KEYS[3], 2592000)
end
-- A queue nobody touches for a month is over; one that is not comes back from Postgres.
redis.call('EXPIRE', KEYS[1], 2592000)
redis.call('EXPIRE', KEYS[2], 2592000)
return redis.call('HEXISTS', KEYS[1], 'loaded')
