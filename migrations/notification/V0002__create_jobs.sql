-- Locks: none that matter, every table is new. Time: milliseconds.
-- What is to be said to whom, how far that has got, and what is known of an order that is not ready to be told.

CREATE TABLE job (
    job_id      uuid        PRIMARY KEY,
    template    text        NOT NULL CHECK (template IN ('ORDER_CONFIRMATION', 'TICKET_DELIVERY', 'QUOTA_INVITATION',
                                'QUEUE_UPDATE', 'QUEUE_YOUR_TURN', 'REMINDER', 'REFUND')),
    -- What the message is about: the claim of a confirmation, the payment of a refund.
    subject_key text        NOT NULL CHECK (subject_key <> ''),
    event_id    uuid        NOT NULL,
    customer_id uuid,
    email       text        NOT NULL CHECK (email LIKE '%_@_%' AND length(email) <= 254),
    locale      text        NOT NULL CHECK (locale IN ('en', 'hr')),
    -- What to say: the domain's Content as JSON.
    content     jsonb       NOT NULL,
    -- After this it is no longer worth sending; null: it always is.
    expire_at   timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now(),
    -- One message about one thing, whatever happens: one confirmation per order.
    CONSTRAINT job_once UNIQUE (template, subject_key)
);
CREATE INDEX job_event ON job (event_id);

CREATE TABLE delivery (
    delivery_id         uuid        PRIMARY KEY,
    job_id              uuid        NOT NULL REFERENCES job (job_id),
    channel             text        NOT NULL CHECK (channel IN ('EMAIL', 'PUSH')),
    state               text        NOT NULL DEFAULT 'QUEUED'
                                    CHECK (state IN ('QUEUED', 'SENDING', 'DELIVERED', 'SKIPPED', 'DEAD')),
    -- When a worker may take it: QUEUED, its next attempt; SENDING, the end of the lease of who is sending it.
    due_at              timestamptz DEFAULT now(),
    -- Attempts ever, and those since it was last taken out of the dead letters.
    attempt_count       integer     NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    round_attempt_count integer     NOT NULL DEFAULT 0 CHECK (round_attempt_count BETWEEN 0 AND attempt_count),
    created_at          timestamptz NOT NULL DEFAULT now(),
    ended_at            timestamptz,
    CONSTRAINT delivery_open_is_due CHECK ((state IN ('QUEUED', 'SENDING')) = (due_at IS NOT NULL)),
    CONSTRAINT delivery_ended_has_time CHECK ((state IN ('DELIVERED', 'SKIPPED', 'DEAD')) = (ended_at IS NOT NULL))
);
-- A job is mailed once; pushes go to every device.
CREATE UNIQUE INDEX delivery_one_email ON delivery (job_id) WHERE channel = 'EMAIL';
CREATE INDEX delivery_due ON delivery (due_at) WHERE state IN ('QUEUED', 'SENDING');
CREATE INDEX delivery_dead ON delivery (ended_at DESC, delivery_id DESC) WHERE state = 'DEAD';

CREATE TABLE delivery_attempt (
    delivery_id         uuid        NOT NULL REFERENCES delivery (delivery_id),
    number              integer     NOT NULL CHECK (number > 0),
    -- Written before the send; an attempt without an end was under way when its worker died.
    began_at            timestamptz NOT NULL DEFAULT now(),
    ended_at            timestamptz,
    provider            text        NOT NULL,
    provider_message_id text,
    error               text,
    PRIMARY KEY (delivery_id, number),
    CHECK (ended_at IS NOT NULL OR (error IS NULL AND provider_message_id IS NULL))
);

-- An order whose confirmation waits for the other half: what was bought, or the tickets. Gone when the job exists.
CREATE TABLE waiting_order (
    claim_id    uuid        PRIMARY KEY,
    -- What was bought: the domain's Order as JSON.
    order_fact  jsonb,
    -- Tickets that came before it: a list of the domain's IssuedTickets as JSON.
    tickets     jsonb       NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(tickets) = 'array'),
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX waiting_order_created ON waiting_order (created_at);

-- Who may ask about the messages of an event.
CREATE TABLE event_owner (
    event_id     uuid PRIMARY KEY,
    organizer_id uuid NOT NULL
);
