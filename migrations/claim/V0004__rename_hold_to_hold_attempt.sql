-- Locks: ACCESS EXCLUSIVE on hold for milliseconds. Time: milliseconds, whatever the table holds; no row is rewritten.
-- The table stores attempts to obtain a hold, so it is called hold_attempt; a hold is what Inventory stores. The column cause_id
-- holds the idempotency key of such an attempt, so it is called hold_key. Processes of the previous version fail on every claim
-- from this migration on, until they are replaced.

-- Only this service reads the table, and it knows the new name from this version on.
-- squawk-ignore renaming-table
ALTER TABLE hold RENAME TO hold_attempt;
-- squawk-ignore renaming-column
ALTER TABLE hold_attempt RENAME COLUMN cause_id TO hold_key;

-- No statement names these constraints and indexes.
-- squawk-ignore-file renaming-object
ALTER TABLE hold_attempt RENAME CONSTRAINT hold_pkey TO hold_attempt_pkey;
ALTER TABLE hold_attempt RENAME CONSTRAINT hold_attempt_check TO hold_attempt_attempt_check;
ALTER TABLE hold_attempt RENAME CONSTRAINT hold_state_check TO hold_attempt_state_check;
ALTER TABLE hold_attempt RENAME CONSTRAINT hold_check TO hold_attempt_claim;

ALTER INDEX hold_of_cause RENAME TO hold_attempt_of_key;
ALTER INDEX hold_unclaimed RENAME TO hold_attempt_unclaimed;
ALTER INDEX hold_releasing RENAME TO hold_attempt_releasing;
ALTER INDEX hold_forgettable RENAME TO hold_attempt_deletable;
ALTER INDEX hold_pending_of_claim RENAME TO hold_attempt_pending_of_claim;

-- These replace the comments of V0002 and V0003, which an applied migration must keep.
COMMENT ON TABLE hold_attempt IS 'Attempts to obtain a hold from Inventory. Each is written before Inventory is called.';
COMMENT ON COLUMN hold_attempt.hold_id IS 'Derived from hold_key and attempt.';
COMMENT ON COLUMN hold_attempt.hold_key IS 'Key of the request, or of the substitute for a lost hold, that needs a hold. All its attempts share it.';
COMMENT ON COLUMN hold_attempt.attempt IS 'Number of the attempt among those of its key, from 1. A new one follows an abandoned one.';
COMMENT ON COLUMN hold_attempt.fingerprint IS 'Fingerprint of the request body. Reusing a request id with another body is refused.';
COMMENT ON COLUMN hold_attempt.claim_id IS 'Claim that uses the hold. NULL: no claim uses it yet.';
COMMENT ON COLUMN hold_attempt.state IS 'RESERVING: Inventory was or will be called. HELD, COMMITTED: used by a claim. RELEASING: due for release. RELEASED: released at Inventory.';
COMMENT ON COLUMN hold_attempt.attempted_at IS 'Time of the latest call of ReserveUnits for this hold.';
COMMENT ON COLUMN hold_attempt.release_due_at IS 'RELEASING: time from which a worker may release the hold.';
