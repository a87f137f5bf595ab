-- Locks: none that matter, every table is new. Time: milliseconds.
-- Events on their way to other services. Written in the transaction that makes them true; see storage::messaging.

CREATE TABLE outbox (
    event_id   uuid        PRIMARY KEY,
    -- Order of arrival. Rolled-back inserts leave gaps, so it is no position.
    seq        bigint      GENERATED ALWAYS AS IDENTITY,
    topic      text        NOT NULL,
    -- Events of one key are published in order.
    key        text        NOT NULL,
    envelope   bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- Place in the topic, gap-free from 1; null until the relay has numbered it.
    position   bigint      CHECK (position > 0)
);
CREATE INDEX outbox_unnumbered ON outbox (topic, seq) WHERE position IS NULL;
CREATE UNIQUE INDEX outbox_position ON outbox (topic, position) WHERE position IS NOT NULL;

-- The counter of each topic. Its row lock puts the relays' commits in order, so that positions appear in order.
CREATE TABLE outbox_topic (
    topic         text   PRIMARY KEY,
    last_position bigint NOT NULL DEFAULT 0 CHECK (last_position >= 0)
);

-- How far each group of consumers has acknowledged, as last seen in Redis. Kept here because Redis may forget its
-- groups, and rows they have not handled must then stay. A listener of the contract without a row has acknowledged nothing.
CREATE TABLE outbox_group (
    topic                 text        NOT NULL,
    consumer_group        text        NOT NULL,
    acknowledged_position bigint      NOT NULL DEFAULT 0,
    seen_at               timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, consumer_group)
);
