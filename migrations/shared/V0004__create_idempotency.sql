-- Locks: none that matter, the table is new. Time: milliseconds.
-- The answers to requests already done, kept with their effect; see storage::idempotency.

CREATE TABLE idempotency (
    method      text        NOT NULL,
    -- Who asked: one caller's id must not answer another's request.
    caller      text        NOT NULL,
    request_id  uuid        NOT NULL,
    -- Of the request's body: the same id with another body is a mistake of the caller.
    fingerprint uuid        NOT NULL,
    -- Null only inside the transaction that does the request.
    response    bytea,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (method, caller, request_id)
);
CREATE INDEX idempotency_created_at ON idempotency (created_at);
