-- Deletes the consumers of a group that are dead and have no pending entries. Every start of a process adds one.
-- KEYS[1] is the stream, ARGV[1] the group, ARGV[2] the idle time in milliseconds after which a consumer counts as
-- dead.
-- Returns how many it deleted. Check and deletion are one script: an entry delivered between them would be pending for
-- no consumer.
if redis.call('EXISTS', KEYS[1]) == 0 then
    return 0
end
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if consumers.err then
    return 0
end
local forgotten = 0
for _, facts in ipairs(consumers) do
    local consumer = {}
    for i = 1, #facts, 2 do
        consumer[facts[i]] = facts[i + 1]
    end
    if consumer['pending'] == 0 and consumer['idle'] > tonumber(ARGV[2]) then
        redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer['name'])
        forgotten = forgotten + 1
    end
end
return forgotten
