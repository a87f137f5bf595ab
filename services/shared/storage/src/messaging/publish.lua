-- Appends a topic's events to its stream, each under its position as id.
-- KEYS[1] the stream. ARGV[1] the position after which the caller has read: it knows of nothing between that and the
-- first event given. Then four per event: position, event id, key, envelope; positions rise.
-- Answers the stream's last position. Below ARGV[1] the stream has lost events: nothing was appended, and the caller
-- must read again from there. Check and append in one script: between the two another relay could append.
local last = 0
if redis.call('EXISTS', KEYS[1]) == 1 then
    local facts = redis.call('XINFO', 'STREAM', KEYS[1])
    for i = 1, #facts, 2 do
        if facts[i] == 'last-generated-id' then
            last = tonumber(string.match(facts[i + 1], '^(%d+)'))
        end
    end
end
if last < tonumber(ARGV[1]) then
    return last
end
for i = 2, #ARGV, 4 do
    local position = tonumber(ARGV[i])
    -- What is there already was appended by another relay, or by us before an answer got lost.
    if position > last then
        redis.call('XADD', KEYS[1], ARGV[i] .. '-0',
            'id', ARGV[i + 1], 'key', ARGV[i + 2], 'envelope', ARGV[i + 3])
        last = position
    end
end
return last
