-- Drops the consumers of a group that are dead and hold nothing; every start of a process makes a new one.
-- KEYS[1] the stream. ARGV[1] the group. ARGV[2] how long, in milliseconds, without a sign means dead.
-- Answers how many. In one script: a consumer must not be given an event between the look and the drop, which would
-- then be pending for nobody.
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
