-- Brings the sorted set of who waits up to date with what was committed in Postgres. May run twice, late, or in another
-- order than the commits: a seq up to the highest admitted never comes (back) in. Only one who left before a late join of
-- theirs arrives stands here for nothing, until the line is compared with Postgres.
-- KEYS: line, waiting. ARGV: highest seq admitted, how many joined, seq and id of each, then the ids of those who went.
-- Answers 1 when everybody who waits is known here.
local admitted = math.max(tonumber(redis.call('HGET', KEYS[1], 'admitted') or '0'), tonumber(ARGV[1]))
redis.call('HSET', KEYS[1], 'admitted', admitted)
local joined = tonumber(ARGV[2])
for i = 0, joined - 1 do
  local seq = ARGV[3 + 2 * i]
  if tonumber(seq) > admitted then
    redis.call('ZADD', KEYS[2], seq, ARGV[4 + 2 * i])
  end
end
for i = 3 + 2 * joined, #ARGV do
  redis.call('ZREM', KEYS[2], ARGV[i])
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', admitted)
-- A queue nobody touches for a month is over; one that is not comes back from Postgres.
redis.call('EXPIRE', KEYS[1], 2592000)
redis.call('EXPIRE', KEYS[2], 2592000)
return redis.call('HEXISTS', KEYS[1], 'loaded')
