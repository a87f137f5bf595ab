-- Locks: none that matter, every table is new. Time: milliseconds.
-- Events as Inventory last described them, the jobs that make their tickets, the tickets, and the orders they went to.

-- The event of the highest revision seen. Printed on tickets and mails.
CREATE TABLE event (
    event_id      uuid        PRIMARY KEY,
    organizer_id  uuid        NOT NULL,
    -- Of the last `event.created`; a lower one is out of date.
    revision      bigint      NOT NULL CHECK (revision >= 0),
    name          text        NOT NULL,
    venue_name    text        NOT NULL,
    venue_address text,
    time_zone     text        NOT NULL,
    start_time    timestamptz NOT NULL
);

-- When an event was made public and when its sale ended. Apart from `event`, because these may be heard of before it.
CREATE TABLE event_phase (
    event_id      uuid        PRIMARY KEY,
    activate_time timestamptz,
    end_time      timestamptz
);

-- Its tickets are the units 1 to generated_count, always: batches add at the end and take from the end, under this row's
-- lock. The job is done with the sector when both counts are equal.
CREATE TABLE sector (
    sector_id       uuid     PRIMARY KEY,
    event_id        uuid     NOT NULL REFERENCES event (event_id),
    -- Place in the event's order.
    place           integer  NOT NULL,
    name            text     NOT NULL,
    -- 0: the draft lost the sector, and its tickets go.
    capacity        integer  NOT NULL CHECK (capacity >= 0),
    generated_count integer  NOT NULL DEFAULT 0 CHECK (generated_count >= 0)
);
CREATE INDEX sector_event ON sector (event_id, place);

-- The rows of a seated sector, by the first unit in each.
CREATE TABLE seat_row (
    sector_id   uuid    NOT NULL REFERENCES sector (sector_id),
    first_unit  integer NOT NULL CHECK (first_unit > 0),
    label       text    NOT NULL,
    -- Empty: `1`, `2`, and so on.
    seat_labels text[]  NOT NULL,
    PRIMARY KEY (sector_id, first_unit)
);

-- The job that makes an event's tickets for one revision. COMPLETED is final; until then a higher revision changes its aim.
CREATE TABLE generation (
    generation_id     uuid        PRIMARY KEY,
    event_id          uuid        NOT NULL REFERENCES event (event_id),
    revision          bigint      NOT NULL,
    state             text        NOT NULL DEFAULT 'PENDING'
        CHECK (state IN ('PENDING', 'RUNNING', 'COMPLETED', 'FAILED')),
    -- The sectors in the event's order, and how many tickets each is to have.
    sector_ids        uuid[]      NOT NULL,
    ticket_counts     integer[]   NOT NULL,
    -- Failures in a row; a success sets it back.
    failure_count     integer     NOT NULL DEFAULT 0,
    next_attempt_time timestamptz NOT NULL DEFAULT now(),
    create_time       timestamptz NOT NULL DEFAULT now(),
    start_time        timestamptz,
    end_time          timestamptz,
    CHECK (cardinality(sector_ids) = cardinality(ticket_counts)),
    CHECK ((end_time IS NOT NULL) = (state IN ('COMPLETED', 'FAILED')))
);
-- An event has one job that is not done, at most.
CREATE UNIQUE INDEX generation_open ON generation (event_id) WHERE state <> 'COMPLETED';
CREATE INDEX generation_event ON generation (event_id, create_time DESC);
CREATE INDEX generation_due ON generation (next_attempt_time) WHERE state IN ('PENDING', 'RUNNING');

-- Ticket n of a sector belongs to unit n: the primary key. Holder, claim and code come when it is issued. No reference to
-- the sector: it would be looked up for every one of a million rows, while a batch holds that very row locked.
CREATE TABLE ticket (
    sector_id     uuid        NOT NULL,
    unit          integer     NOT NULL CHECK (unit > 0),
    ticket_id     uuid        NOT NULL,
    state         text        NOT NULL DEFAULT 'GENERATED'
        CHECK (state IN ('GENERATED', 'ISSUED', 'CHECKED_IN', 'VOID')),
    claim_id      uuid,
    customer_id   uuid,
    -- The signed code, as it was mailed: a later key must not change it.
    code          text,
    -- The seat as it was printed.
    row_label     text,
    seat_label    text,
    issue_time    timestamptz,
    check_in_time timestamptz,
    check_in_gate text,
    void_time     timestamptz,
    PRIMARY KEY (sector_id, unit),
    CONSTRAINT ticket_id_unique UNIQUE (ticket_id),
    CONSTRAINT ticket_belongs CHECK (
        (state = 'GENERATED') = (claim_id IS NULL) AND (claim_id IS NULL) = (customer_id IS NULL)
        AND (claim_id IS NULL) = (code IS NULL) AND (claim_id IS NULL) = (issue_time IS NULL)),
    CONSTRAINT ticket_checked_in CHECK (
        (state = 'CHECKED_IN') = (check_in_time IS NOT NULL) AND (check_in_time IS NULL) = (check_in_gate IS NULL)),
    CONSTRAINT ticket_void CHECK ((state = 'VOID') = (void_time IS NOT NULL))
);
CREATE UNIQUE INDEX ticket_code_unique ON ticket (code) WHERE code IS NOT NULL;
CREATE INDEX ticket_customer ON ticket (customer_id) WHERE customer_id IS NOT NULL;
CREATE INDEX ticket_claim ON ticket (claim_id) WHERE claim_id IS NOT NULL;

-- A confirmed claim and what became of its tickets. PENDING: paid before its tickets existed; they are issued as soon as
-- they do. REFUSED: a unit's ticket was another's; a human must look. VOID also stands for claims that had no tickets.
CREATE TABLE issuance (
    claim_id          uuid        PRIMARY KEY,
    state             text        NOT NULL
        CHECK (state IN ('PENDING', 'ISSUED', 'REFUSED', 'VOID')),
    event_id          uuid,
    customer_id       uuid,
    buyer_email       text,
    buyer_locale      text,
    -- The units, as pairs of sector and number.
    sector_ids        uuid[]      NOT NULL DEFAULT '{}',
    units             integer[]   NOT NULL DEFAULT '{}',
    attempt_count     integer     NOT NULL DEFAULT 0,
    next_attempt_time timestamptz NOT NULL DEFAULT now(),
    create_time       timestamptz NOT NULL DEFAULT now(),
    CHECK (cardinality(sector_ids) = cardinality(units)),
    CHECK (state = 'VOID' OR (event_id IS NOT NULL AND customer_id IS NOT NULL AND buyer_email IS NOT NULL
        AND cardinality(units) > 0))
);
CREATE INDEX issuance_due ON issuance (next_attempt_time) WHERE state = 'PENDING';
