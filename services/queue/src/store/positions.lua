-- The ranks of entries among those who wait, from 0; -1: not among them. Nothing when not everybody is known here.
-- KEYS: line, waiting. ARGV: the ids.
if redis.call('HEXISTS', KEYS[1], 'loaded') == 0 then
  return false
end
local ranks = {}
for i = 1, #ARGV do
  ranks[i] = redis.call('ZRANK', KEYS[2], ARGV[i]) or -1
end
return ranks
