-- Locks: none that matter, only a comment. Time: milliseconds.
-- What the schema is for, where an operator looks for it (`\dn+` in psql).

COMMENT ON SCHEMA queue IS 'Places in line: entries, turns, policies, blocked customers. Owned by the queue service; nobody else reads or writes it.';
