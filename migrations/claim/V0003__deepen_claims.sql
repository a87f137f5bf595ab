-- Locks: ACCESS EXCLUSIVE on every table, each for milliseconds. Time: milliseconds, with a million claims some seconds.
-- No table is rewritten; claim and hold are locked SHARE while two small indexes are built.
-- Cooldown, extension of claims at the checkout, and claims made by invitation.

SET lock_timeout = '5s';

-- Claims that the customer let go unpaid, one soon after the other; 0 after a purchase.
ALTER TABLE allowance ADD COLUMN abandoned_count integer NOT NULL DEFAULT 0;
ALTER TABLE allowance ADD CONSTRAINT allowance_abandoned_count CHECK (abandoned_count >= 0) NOT VALID;
-- When the last of them went. Null: none did.
ALTER TABLE allowance ADD COLUMN abandoned_at timestamptz;

-- When a payment in progress moved the claim's end, which happens once. Null: it has not.
ALTER TABLE claim ADD COLUMN extended_at timestamptz;
-- The quota whose invitation it was made with; then there was no turn. Null: it was made in a turn.
ALTER TABLE claim ADD COLUMN quota_id uuid;
-- Nobody but this service reads it, and it knows of claims without a turn from this version on.
-- squawk-ignore ban-drop-not-null
ALTER TABLE claim ALTER COLUMN fencing_number DROP NOT NULL;
ALTER TABLE claim ADD CONSTRAINT claim_right CHECK ((fencing_number IS NULL) = (quota_id IS NOT NULL)) NOT VALID;

-- A claim is made with as few checks and indexes as it needs (docs/adr/0014-what-a-claim-pays-for.md). The transaction that
-- makes it has its allowance and its hold locked, and writes its items itself: that they are there needs no check per row. One
-- claim per hold is kept by the hold's own row, which goes from RESERVING to one claim's once.
-- squawk-ignore ban-drop-constraint
ALTER TABLE claim DROP CONSTRAINT claim_event_id_customer_id_fkey;
-- squawk-ignore ban-drop-constraint
ALTER TABLE claim DROP CONSTRAINT claim_hold_id_fkey;
-- squawk-ignore ban-drop-constraint
ALTER TABLE claim DROP CONSTRAINT claim_hold_id_key;
-- squawk-ignore ban-drop-constraint
ALTER TABLE claim_item DROP CONSTRAINT claim_item_claim_id_fkey;
-- squawk-ignore ban-drop-constraint
ALTER TABLE claim_item DROP CONSTRAINT claim_item_claim_id_sector_id_key;
-- squawk-ignore ban-drop-constraint
ALTER TABLE claim_transition DROP CONSTRAINT claim_transition_claim_id_fkey;
-- Claims without a payment, which are most while a sale runs, have no place in it.
-- squawk-ignore ban-drop-constraint
ALTER TABLE claim DROP CONSTRAINT claim_payment_id_key;
-- squawk-ignore require-concurrent-index-creation
CREATE UNIQUE INDEX claim_payment ON claim (payment_id) WHERE payment_id IS NOT NULL;
-- Only what is still to be done for a claim is looked for by it.
-- squawk-ignore require-concurrent-index-deletion
DROP INDEX hold_of_claim;
-- squawk-ignore require-concurrent-index-creation
CREATE INDEX hold_pending_of_claim ON hold (claim_id) WHERE claim_id IS NOT NULL AND state IN ('RESERVING', 'RELEASING');
-- That a claim begins CLAIMED when it is made its own row says; transitions count from 2.
COMMENT ON TABLE claim_transition IS 'Every state a claim has been in after the first, which is CLAIMED since created_at.';
