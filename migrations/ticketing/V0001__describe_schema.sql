-- Locks: none that matter, only a comment. Time: milliseconds.
-- What the schema is for, where an operator looks for it (`\dn+` in psql).

COMMENT ON SCHEMA ticketing IS 'Tickets: generations, tickets, check-ins. Owned by the ticketing service; nobody else reads or writes it.';
