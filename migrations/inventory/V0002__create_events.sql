-- Locks: none that matter, every table is new. Time: milliseconds.
-- Events and their sectors. There are no rows for units: a unit is a number from 1 to its sector's capacity.

CREATE TABLE event (
    event_id               uuid        PRIMARY KEY,
    organizer_id           uuid        NOT NULL,
    state                  text        NOT NULL CHECK (state IN ('DRAFT', 'ON_SALE', 'PAUSED', 'SOLD_OUT', 'ENDED')),
    name                   text        NOT NULL CHECK (name <> ''),
    description            text        NOT NULL,
    venue_name             text        NOT NULL CHECK (venue_name <> ''),
    venue_address          text        NOT NULL,
    time_zone              text        NOT NULL CHECK (time_zone <> ''),
    start_time             timestamptz NOT NULL,
    -- Null: from the activation on.
    on_sale_time           timestamptz,
    currency_code          text        NOT NULL CHECK (currency_code ~ '^[A-Z]{3}$'),
    units_per_customer_max integer     NOT NULL CHECK (units_per_customer_max BETWEEN 1 AND 100),
    capacity               integer     NOT NULL CHECK (capacity BETWEEN 1 AND 1000000),
    revision               bigint      NOT NULL DEFAULT 1 CHECK (revision > 0),
    create_time            timestamptz NOT NULL DEFAULT now(),
    update_time            timestamptz NOT NULL DEFAULT now(),
    activate_time          timestamptz,
    end_time               timestamptz,
    -- Revision whose tickets Ticketing has made, all of them. Null: none yet.
    generated_revision     bigint,
    CHECK (on_sale_time IS NULL OR on_sale_time < start_time),
    CHECK ((state = 'DRAFT') = (activate_time IS NULL)),
    CHECK ((state = 'ENDED') = (end_time IS NOT NULL))
);
CREATE INDEX event_start ON event (start_time, event_id);
CREATE INDEX event_organizer ON event (organizer_id, start_time, event_id);

CREATE TABLE sector (
    sector_id   uuid    PRIMARY KEY,
    event_id    uuid    NOT NULL REFERENCES event (event_id),
    -- Order within the event, from 0.
    place       integer NOT NULL CHECK (place >= 0),
    name        text    NOT NULL CHECK (name <> ''),
    price_minor bigint  NOT NULL CHECK (price_minor >= 0),
    capacity    integer NOT NULL CHECK (capacity BETWEEN 1 AND 1000000),
    -- Rows and seats. Null: general admission.
    layout      jsonb,
    UNIQUE (event_id, place),
    UNIQUE (event_id, name)
);

-- What is sold of a sector, from its event's activation on. Written when a hold is committed and never when units are
-- reserved: the crowd reserves, few pay. Apart from `sector`, so that a change does not rewrite the layout.
CREATE TABLE sector_sale (
    sector_id  uuid    PRIMARY KEY REFERENCES sector (sector_id),
    event_id   uuid    NOT NULL REFERENCES event (event_id),
    capacity   integer NOT NULL,
    sold_count integer NOT NULL DEFAULT 0,
    CONSTRAINT sector_sale_no_oversell CHECK (sold_count BETWEEN 0 AND capacity)
) WITH (fillfactor = 50);
CREATE INDEX sector_sale_event ON sector_sale (event_id);
