-- Applies a committed change to the set of waiting entries and appends it to the move log. May run twice, late, or in another
-- order than the commits: a number up to the highest admitted one does not remain in the set, and readers of the log skip records
-- that they know and wait for missing ones. One case is left to reconciliation: an entry that left before its own late join
-- reaches Redis stays in the set. New entries get a heartbeat. KEYS: line, waiting, log, seen. ARGV: highest number admitted; count
-- of joined entries, then number and id of each; count of entries that left, then their ids; and, if there is a log record,
-- the number of records to keep and the record's three fields. Returns 1 if every waiting entry is in Redis.
local admitted = math.max(tonumber(redis.call('HGET', KEYS[1], 'admitted') or '0'), tonumber(ARGV[1]))
redis.call('HSET', KEYS[1], 'admitted', admitted)
local next = 3 + 2 * tonumber(ARGV[2])
-- Chunks of 1,000 entries, because all arguments of a call must fit on the stack of Lua. Entries that were admitted meanwhile
-- are removed below.
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
-- The keys expire after 30 days without a change. A queue that is still in use is loaded again from Postgres.
redis.call('EXPIRE', KEYS[1], 2592000)
redis.call('EXPIRE', KEYS[2], 2592000)
return redis.call('HEXISTS', KEYS[1], 'loaded')
