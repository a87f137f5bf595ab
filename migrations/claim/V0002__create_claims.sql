-- Locks: none that matter, every table is new. Time: milliseconds.
-- Claims, the holds behind them, and how many units each customer has of an event.

-- What a customer has of an event over all claims that count: CLAIMED, CONFIRMED, or given up and paid late while that is
-- being settled. Its row lock puts everything that one customer does in one event in order.
CREATE TABLE allowance (
    event_id    uuid    NOT NULL,
    customer_id uuid    NOT NULL,
    -- The event's limit; fixed once the event is public.
    units_max   integer NOT NULL CHECK (units_max > 0),
    units_taken integer NOT NULL CHECK (units_taken >= 0),
    PRIMARY KEY (event_id, customer_id),
    CONSTRAINT allowance_kept CHECK (units_taken <= units_max)
);

-- Every hold this service asked Inventory for, written before it asks: what a crash leaves behind is found here.
CREATE TABLE hold (
    -- Derived from cause and attempt, so that it is unique for both.
    hold_id        uuid        PRIMARY KEY,
    -- What it is for: a customer's request, or a claim that was paid after its units had gone.
    cause_id       uuid        NOT NULL,
    -- The first hold for its cause, the second after that was given up, and so on.
    attempt        integer     NOT NULL CHECK (attempt > 0),
    -- Of the request's body: the same request with another body must not get the same hold.
    fingerprint    uuid        NOT NULL,
    -- Null until a claim stands on it.
    claim_id       uuid,
    -- RESERVING: Inventory was or will be asked. HELD, COMMITTED: a claim's. RELEASING: to be given back. RELEASED: given back.
    state          text        NOT NULL CHECK (state IN ('RESERVING', 'HELD', 'COMMITTED', 'RELEASING', 'RELEASED')),
    -- When Inventory was last asked for it.
    attempted_at   timestamptz NOT NULL DEFAULT now(),
    -- RELEASING: not tried again before.
    release_due_at timestamptz NOT NULL DEFAULT now(),
    CHECK (claim_id IS NOT NULL OR state NOT IN ('HELD', 'COMMITTED'))
);
CREATE INDEX hold_of_cause ON hold (cause_id, attempt DESC);
CREATE INDEX hold_unclaimed ON hold (attempted_at) WHERE state = 'RESERVING' AND claim_id IS NULL;
CREATE INDEX hold_releasing ON hold (release_due_at) WHERE state = 'RELEASING';
CREATE INDEX hold_forgettable ON hold (attempted_at) WHERE state = 'RELEASED' AND claim_id IS NULL;
CREATE INDEX hold_of_claim ON hold (claim_id) WHERE claim_id IS NOT NULL;

-- A customer's right to buy held units; once CONFIRMED, the order.
CREATE TABLE claim (
    claim_id       uuid        PRIMARY KEY,
    event_id       uuid        NOT NULL,
    customer_id    uuid        NOT NULL,
    -- The hold it stands on now.
    hold_id        uuid        NOT NULL UNIQUE REFERENCES hold (hold_id),
    -- Of the turn it was made in.
    fencing_number bigint      NOT NULL CHECK (fencing_number > 0),
    state          text        NOT NULL CHECK (state IN ('CLAIMED', 'CONFIRMED', 'RELEASED')),
    release_reason text        CHECK (release_reason IN ('CUSTOMER', 'EXPIRED', 'PAYMENT_FAILED', 'REJECTED')),
    -- Set as soon as somebody paid, before the hold is committed: from then on only that payment decides how it ends.
    payment_id     uuid        UNIQUE,
    unit_count     integer     NOT NULL CHECK (unit_count > 0),
    total_minor    bigint      NOT NULL CHECK (total_minor >= 0),
    currency_code  text        NOT NULL CHECK (currency_code ~ '^[A-Z]{3}$'),
    buyer_email    text        NOT NULL CHECK (buyer_email <> ''),
    -- Empty: the identity named none.
    buyer_locale   text        NOT NULL,
    -- The event as it was when the claim was made.
    event_name     text        NOT NULL,
    venue_name     text        NOT NULL,
    venue_address  text        NOT NULL,
    time_zone      text        NOT NULL,
    start_at       timestamptz NOT NULL,
    created_at     timestamptz NOT NULL,
    expires_at     timestamptz NOT NULL CHECK (expires_at > created_at),
    FOREIGN KEY (event_id, customer_id) REFERENCES allowance (event_id, customer_id),
    CHECK ((state = 'RELEASED') = (release_reason IS NOT NULL)),
    CHECK (payment_id IS NOT NULL OR (state <> 'CONFIRMED' AND release_reason IS DISTINCT FROM 'REJECTED'))
);
-- One open claim per event and customer.
CREATE UNIQUE INDEX claim_open ON claim (event_id, customer_id) WHERE state = 'CLAIMED';
CREATE INDEX claim_expiring ON claim (expires_at) WHERE state = 'CLAIMED' AND payment_id IS NULL;
CREATE INDEX claim_of_customer ON claim (customer_id, created_at DESC, claim_id DESC);

-- What is claimed, one row per sector.
CREATE TABLE claim_item (
    claim_id         uuid      NOT NULL REFERENCES claim (claim_id),
    place            integer   NOT NULL CHECK (place > 0),
    sector_id        uuid      NOT NULL,
    sector_name      text      NOT NULL,
    -- In the claim's currency.
    unit_price_minor bigint    NOT NULL CHECK (unit_price_minor >= 0),
    -- 0: a general admission sector.
    group_count      integer   NOT NULL CHECK (group_count >= 0),
    units            integer[] NOT NULL CHECK (cardinality(units) > 0),
    -- Of each unit, or none at all: a general admission sector.
    row_labels       text[]    NOT NULL CHECK (cardinality(row_labels) IN (0, cardinality(units))),
    seat_labels      text[]    NOT NULL CHECK (cardinality(seat_labels) = cardinality(row_labels)),
    PRIMARY KEY (claim_id, place),
    UNIQUE (claim_id, sector_id)
);

-- Every state a claim has been in.
CREATE TABLE claim_transition (
    claim_id        uuid        NOT NULL REFERENCES claim (claim_id),
    number          integer     NOT NULL CHECK (number > 0),
    state           text        NOT NULL CHECK (state IN ('CLAIMED', 'CONFIRMED', 'RELEASED')),
    release_reason  text        CHECK (release_reason IN ('CUSTOMER', 'EXPIRED', 'PAYMENT_FAILED', 'REJECTED')),
    transitioned_at timestamptz NOT NULL,
    PRIMARY KEY (claim_id, number),
    CHECK ((state = 'RELEASED') = (release_reason IS NOT NULL))
);
