-- Returns the rank of each entry among the waiting ones, from 0, and -1 for an entry that is not among them. Returns nothing if
-- Redis lacks waiting entries. KEYS: line, waiting. ARGV: the entry ids.
if redis.call('HEXISTS', KEYS[1], 'loaded') == 0 then
  return false
end
local ranks = {}
for i = 1, #ARGV do
  ranks[i] = redis.call('ZRANK', KEYS[2], ARGV[i]) or -1
end
return ranks
