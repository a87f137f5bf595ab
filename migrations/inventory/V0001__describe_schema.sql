-- Locks: none that matter, only a comment. Time: milliseconds.
-- What the schema is for, where an operator looks for it (`\dn+` in psql).

COMMENT ON SCHEMA inventory IS 'What is for sale: events, sectors, units, holds, quotas. Owned by the inventory service; nobody else reads or writes it.';
