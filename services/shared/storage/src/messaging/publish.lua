-- Appends a topic's events to its stream, each with its position as entry id.
-- KEYS[1] is the stream. ARGV[1] is the position after which the caller has read; it knows of no events between that
-- and the first one given. Then four arguments per event: position, event id, key and envelope, in the order of
-- positions.
-- Returns the stream's last position. If it is below ARGV[1], the stream has lost events: nothing was appended, and the
-- caller must read again from there.
-- Check and append are one script, because another relay could append between them.
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
    -- Existing positions were appended by another relay, or by this one before an answer was lost.
    if position > last then
        redis.call('XADD', KEYS[1], ARGV[i] .. '-0',
            'id', ARGV[i + 1], 'key', ARGV[i + 2], 'envelope', ARGV[i + 3])
        last = position
    end
end
return last
