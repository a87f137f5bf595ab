-- Locks: none that matter, only a comment. Time: milliseconds.
-- What the schema is for, where an operator looks for it (`\dn+` in psql).

COMMENT ON SCHEMA claim IS 'Who may buy what: claims (orders). Owned by the claim service; nobody else reads or writes it.';
