-- Locks: none that matter, every table is new. Time: milliseconds.
-- Queues, their lines and the entries in them. Whoever changes anything of an event's queue locks its row of `line` first;
-- that one lock puts joins, admissions, ends and controls of an event in one order.

-- How a queue is set: what Inventory said, what the organizer wants. Changes rarely.
CREATE TABLE queue (
    event_id              uuid        PRIMARY KEY,
    -- From event.created. Null until it has come; until then nobody sees the queue.
    organizer_id          uuid,
    created_revision      bigint      NOT NULL DEFAULT 0,
    -- The event's name and venue, for those who are told about turns.
    summary               jsonb       NOT NULL DEFAULT '{}',
    -- Ids and names of the event's sectors.
    sectors               jsonb       NOT NULL DEFAULT '[]',
    -- From event.activated and event.ended, whichever has the higher revision.
    life_revision         bigint      NOT NULL DEFAULT 0,
    is_active             boolean     NOT NULL DEFAULT false,
    -- From inventory.sold_out and inventory.available, whichever has the higher revision.
    stock_revision        bigint      NOT NULL DEFAULT 0,
    is_sold_out           boolean     NOT NULL DEFAULT false,
    state                 text        NOT NULL DEFAULT 'SCHEDULED'
        CHECK (state IN ('SCHEDULED', 'OPEN', 'PAUSED', 'CLOSED')),
    open_time             timestamptz,
    -- Set while the organizer keeps it paused, also through a sell-out in between.
    pause_time            timestamptz,
    joins_paused          boolean     NOT NULL DEFAULT false,
    close_reason          text        CHECK (close_reason IN ('SOLD_OUT', 'ENDED', 'CANCELED', 'ORGANIZER')),
    close_time            timestamptz,
    remaining_sectors     jsonb       NOT NULL DEFAULT '[]',
    notice                text        NOT NULL DEFAULT '',
    -- The policy; null: the default of the service's settings.
    admissions_per_minute bigint      CHECK (admissions_per_minute BETWEEN 0 AND 1000000),
    open_turns_max        bigint      CHECK (open_turns_max BETWEEN 0 AND 1000000),
    turn_seconds          bigint      CHECK (turn_seconds BETWEEN 60 AND 7200),
    idle_seconds          bigint      CHECK (idle_seconds BETWEEN 60 AND 86400),
    waiting_max           bigint      CHECK (waiting_max BETWEEN 1 AND 100000000),
    update_time           timestamptz NOT NULL DEFAULT now(),
    CHECK ((state = 'CLOSED') = (close_reason IS NOT NULL)),
    CHECK ((state = 'CLOSED') = (close_time IS NOT NULL)),
    CHECK (state <> 'PAUSED' OR pause_time IS NOT NULL),
    CHECK (state NOT IN ('OPEN', 'PAUSED') OR (is_active AND organizer_id IS NOT NULL))
);

-- The counters of a line. One row per event, hot and small: room in the page keeps its updates there.
CREATE TABLE line (
    event_id            uuid        PRIMARY KEY REFERENCES queue,
    -- Rises with every change of the queue.
    revision            bigint      NOT NULL DEFAULT 0,
    last_seq            bigint      NOT NULL DEFAULT 0,
    last_admitted_seq   bigint      NOT NULL DEFAULT 0,
    last_fencing_number bigint      NOT NULL DEFAULT 0,
    waiting_count       bigint      NOT NULL DEFAULT 0 CHECK (waiting_count >= 0),
    open_turn_count     bigint      NOT NULL DEFAULT 0 CHECK (open_turn_count >= 0),
    -- The token bucket of the admission rate: see domain::bucket.
    bucket_level        bigint      NOT NULL DEFAULT 0 CHECK (bucket_level >= 0),
    bucket_time         timestamptz NOT NULL DEFAULT now(),
    -- Rolling average of the time from a turn's grant to its end; null until one has ended.
    service_micros      bigint      CHECK (service_micros >= 0),
    CHECK (last_admitted_seq <= last_seq),
    CHECK (waiting_count + last_fencing_number <= last_seq),
    CHECK (open_turn_count <= last_fencing_number)
) WITH (fillfactor = 20);

CREATE TABLE entry (
    entry_id       uuid        PRIMARY KEY,
    event_id       uuid        NOT NULL REFERENCES line,
    customer_id    uuid        NOT NULL,
    -- Number in line: assigned once, gap-free within the event.
    seq            bigint      NOT NULL CHECK (seq > 0),
    state          text        NOT NULL CHECK (state IN ('WAITING', 'ADMITTED', 'COMPLETED', 'EXPIRED', 'LEFT')),
    -- The line's revision when this row last changed: what changed since is found by it.
    revision       bigint      NOT NULL,
    join_time      timestamptz NOT NULL,
    display_name   text        NOT NULL,
    avatar_url     text        NOT NULL,
    -- The request that made it, and what it said: asked again it answers this entry.
    request_id     uuid        NOT NULL,
    fingerprint    uuid        NOT NULL,
    -- The turn; null until admitted.
    fencing_number bigint      CHECK (fencing_number > 0),
    grant_time     timestamptz,
    expire_time    timestamptz,
    -- The end; null while it is open.
    end_time       timestamptz,
    expire_reason  text        CHECK (expire_reason IN ('NOT_SEEN', 'TURN_EXPIRED', 'LEFT', 'BLOCKED', 'QUEUE_CLOSED')),
    claim_id       uuid,
    CONSTRAINT entry_seq UNIQUE (event_id, seq),
    CONSTRAINT entry_request UNIQUE (customer_id, request_id),
    CHECK ((fencing_number IS NULL) = (grant_time IS NULL) AND (fencing_number IS NULL) = (expire_time IS NULL)),
    CHECK (state <> 'WAITING' OR fencing_number IS NULL),
    CHECK (state NOT IN ('ADMITTED', 'COMPLETED') OR fencing_number IS NOT NULL),
    CHECK ((state IN ('WAITING', 'ADMITTED')) = (end_time IS NULL)),
    CHECK ((state IN ('EXPIRED', 'LEFT')) = (expire_reason IS NOT NULL)),
    CHECK ((state = 'COMPLETED') = (claim_id IS NOT NULL))
);
-- One open entry per customer and event, whatever the number of devices.
CREATE UNIQUE INDEX entry_open ON entry (event_id, customer_id) WHERE state IN ('WAITING', 'ADMITTED');
-- One turn, one fencing number.
CREATE UNIQUE INDEX entry_fencing ON entry (event_id, fencing_number) WHERE fencing_number IS NOT NULL;
-- Who is next.
CREATE INDEX entry_waiting ON entry (event_id, seq) WHERE state = 'WAITING';
-- Whose turn has run out.
CREATE INDEX entry_turn ON entry (expire_time) WHERE state = 'ADMITTED';
-- A customer's newest entry and newest turn.
CREATE INDEX entry_customer ON entry (event_id, customer_id, seq);
-- What left the line since a revision.
CREATE INDEX entry_moved ON entry (event_id, revision) WHERE state <> 'WAITING';
-- Turns granted within the last minute.
CREATE INDEX entry_granted ON entry (event_id, grant_time) WHERE grant_time IS NOT NULL;
