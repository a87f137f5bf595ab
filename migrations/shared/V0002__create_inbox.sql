-- Locks: none that matter, every table is new. Time: milliseconds.
-- What this service has handled of others' events, and what it could not handle; see storage::messaging.

CREATE TABLE inbox (
    consumer   text        NOT NULL,
    event_id   uuid        NOT NULL,
    handled_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, event_id)
);
CREATE INDEX inbox_handled_at ON inbox (handled_at);

CREATE TABLE dead_letter (
    consumer           text        NOT NULL,
    event_id           uuid        NOT NULL,
    topic              text        NOT NULL,
    position           bigint      NOT NULL,
    key                text        NOT NULL,
    -- As it came: an envelope, unless that could not be decoded.
    envelope           bytea       NOT NULL,
    -- Why it is here: the last error, with its causes.
    error              text        NOT NULL,
    attempts           integer     NOT NULL CHECK (attempts > 0),
    dead_at            timestamptz NOT NULL DEFAULT now(),
    -- Set when somebody asked for another try; a consumer takes it from there.
    retry_requested_at timestamptz,
    PRIMARY KEY (consumer, event_id)
);
CREATE INDEX dead_letter_retry ON dead_letter (consumer, retry_requested_at) WHERE retry_requested_at IS NOT NULL;
