-- Locks: none that matter, every table is new. Time: milliseconds.
-- Units set aside. No foreign keys here on purpose: each would lock the one row of its event or sector with every
-- reservation. `onsale audit` compares the tables instead.

CREATE TABLE hold (
    hold_id     uuid        PRIMARY KEY,
    event_id    uuid        NOT NULL,
    customer_id uuid        NOT NULL,
    state       text        NOT NULL CHECK (state IN ('HELD', 'COMMITTED', 'RELEASED')),
    -- Units with seats and prices as they were then: also the memory of a hold whose units went back.
    items       jsonb       NOT NULL,
    create_time timestamptz NOT NULL DEFAULT now(),
    -- When it is released by itself if it is still HELD.
    expire_time timestamptz NOT NULL,
    -- When it was committed or released.
    end_time    timestamptz,
    CHECK (expire_time > create_time),
    CHECK ((state = 'HELD') = (end_time IS NULL))
);
-- Counted for the revision of what is free.
CREATE INDEX hold_event ON hold (event_id, state);
CREATE INDEX hold_expiring ON hold (expire_time) WHERE state = 'HELD';

-- The truth about who has a unit: it can be inserted once, so it cannot be sold twice. Gone when it is given back.
CREATE TABLE hold_unit (
    sector_id uuid    NOT NULL,
    unit      integer NOT NULL CHECK (unit BETWEEN 1 AND 1000000),
    hold_id   uuid    NOT NULL,
    PRIMARY KEY (sector_id, unit)
);
