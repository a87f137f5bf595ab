-- Locks: none that matter, only a comment. Time: milliseconds.
-- What the schema is for, where an operator looks for it (`\dn+` in psql).

COMMENT ON SCHEMA payment IS 'Money: payments, webhook inbox, refunds. Owned by the payment service; nobody else reads or writes it.';
