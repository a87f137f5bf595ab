-- Locks: ACCESS EXCLUSIVE on sector_sale, sector and hold, each for milliseconds: no table is rewritten. Time: as long as it
-- takes to count the taken units once.
-- What is taken is counted per sector, and units can be kept for a quota.

SET lock_timeout = '5s';

-- The stock of a sector, from its event's activation on, or from its first quota. Written once by everybody who takes,
-- gives back or sells units, at the very end of the transaction: many reservations share one, so the row is locked once for
-- all of them. Units that are neither sold nor kept nor free are held for claims.
ALTER TABLE sector_sale ADD COLUMN taken_count integer NOT NULL DEFAULT 0;
-- Of the taken ones, those kept for a quota that nobody holds or bought.
ALTER TABLE sector_sale ADD COLUMN kept_count integer NOT NULL DEFAULT 0;
-- Rises with every change of what is free, held, kept or sold.
ALTER TABLE sector_sale ADD COLUMN revision bigint NOT NULL DEFAULT 0;
UPDATE sector_sale SET revision = 1, taken_count = (
    SELECT count(*) FROM hold_unit WHERE hold_unit.sector_id = sector_sale.sector_id);
ALTER TABLE sector_sale ADD CONSTRAINT sector_sale_counts CHECK (
    kept_count >= 0 AND sold_count + kept_count <= taken_count AND taken_count <= capacity) NOT VALID;
-- A draft that has a quota may still change, and is changed by writing its sectors anew.
-- squawk-ignore ban-drop-constraint
ALTER TABLE sector_sale DROP CONSTRAINT sector_sale_sector_id_fkey;
ALTER TABLE sector_sale ADD CONSTRAINT sector_sale_sector FOREIGN KEY (sector_id) REFERENCES sector (sector_id)
    DEFERRABLE INITIALLY DEFERRED NOT VALID;

-- The quota and the invitation that a hold's units came by. Null: the public sale.
ALTER TABLE hold ADD COLUMN quota_id uuid;
ALTER TABLE hold ADD COLUMN invitation_id uuid;
ALTER TABLE hold ADD CONSTRAINT hold_invited CHECK ((quota_id IS NULL) = (invitation_id IS NULL)) NOT VALID;
-- The revision of what is free is not counted any more.
-- squawk-ignore require-concurrent-index-deletion
DROP INDEX hold_event;

-- Units kept out of the public sale for a group. Those that nobody holds or bought are rows of `hold_unit` with the quota's
-- id as their hold's.
CREATE TABLE quota (
    quota_id      uuid        PRIMARY KEY,
    event_id      uuid        NOT NULL,
    sector_id     uuid        NOT NULL,
    name          text        NOT NULL CHECK (name <> ''),
    -- All units it was given, in rising order.
    units         integer[]   NOT NULL CHECK (cardinality(units) > 0),
    -- Promised in invitations and neither held, bought nor expired.
    invited_count integer     NOT NULL DEFAULT 0 CHECK (invited_count >= 0),
    -- Held or bought through invitations.
    used_count    integer     NOT NULL DEFAULT 0 CHECK (used_count >= 0),
    state         text        NOT NULL CHECK (state IN ('OPEN', 'RETURNED')),
    -- When unused units go to the public sale.
    return_time   timestamptz NOT NULL,
    create_time   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT quota_keeps_promises CHECK (invited_count + used_count <= cardinality(units))
);
CREATE INDEX quota_event ON quota (event_id, create_time, quota_id);
CREATE INDEX quota_returning ON quota (return_time) WHERE state = 'OPEN';

-- One person's right to buy from a quota.
CREATE TABLE invitation (
    invitation_id uuid        PRIMARY KEY,
    quota_id      uuid        NOT NULL REFERENCES quota (quota_id),
    email         text        NOT NULL CHECK (email <> ''),
    -- Most units it may buy.
    unit_count    integer     NOT NULL CHECK (unit_count > 0),
    state         text        NOT NULL CHECK (state IN ('PENDING', 'ACCEPTED', 'USED', 'EXPIRED')),
    -- Who accepted it. Null: nobody.
    customer_id   uuid,
    accept_time   timestamptz,
    -- The hold that has its units now or bought them. Null: none.
    hold_id       uuid,
    create_time   timestamptz NOT NULL DEFAULT now(),
    CHECK ((customer_id IS NULL) = (accept_time IS NULL)),
    CHECK (state NOT IN ('ACCEPTED', 'USED') OR customer_id IS NOT NULL),
    CHECK (state <> 'PENDING' OR customer_id IS NULL),
    CHECK (state <> 'USED' OR hold_id IS NOT NULL)
);
-- An address is invited once.
CREATE UNIQUE INDEX invitation_address ON invitation (quota_id, lower(email));
