-- Locks: none that matter, only a comment. Time: milliseconds.
-- What the schema is for, where an operator looks for it (`\dn+` in psql).

COMMENT ON SCHEMA notification IS 'Messages to people: jobs, deliveries, dead letters, devices, preferences. Owned by the notification service; nobody else reads or writes it.';
