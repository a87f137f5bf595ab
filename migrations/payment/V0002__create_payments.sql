-- Locks: none that matter, every table is new. Time: milliseconds.
-- Payments with the step that is to be done next for each, their refunds, and the webhooks that were taken.

CREATE TABLE payment (
    payment_id     uuid        PRIMARY KEY,
    claim_id       uuid        NOT NULL,
    event_id       uuid        NOT NULL,
    customer_id    uuid        NOT NULL,
    amount_minor   bigint      NOT NULL CHECK (amount_minor >= 0),
    currency_code  text        NOT NULL CHECK (currency_code ~ '^[A-Z]{3}$'),
    provider       text        NOT NULL CHECK (provider IN ('STRIPE', 'PAYSTACK', 'SANDBOX')),
    state          text        NOT NULL
        CHECK (state IN ('INITIALIZING', 'PENDING', 'CONFIRMED', 'FAILED', 'REFUNDED')),
    return_url     text        NOT NULL,
    cancel_url     text        NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    -- When the provider's page stops taking money. Said once: a repeated request must be the same request.
    expires_at     timestamptz NOT NULL,
    -- The provider's names for the payment and for the money it took.
    reference      text,
    charge         text,
    checkout_url   text,
    failure_reason text        CHECK (failure_reason IN ('DECLINED', 'CANCELED', 'EXPIRED', 'PROVIDER')),
    confirmed_at   timestamptz,
    -- When Claim served it.
    settled_at     timestamptz,
    -- What is to be done next, when a worker looks at it, and how often that was in vain. Null: nothing.
    step           text        CHECK (step IN ('INITIALIZE', 'ASK', 'SETTLE', 'REFUND')),
    step_at        timestamptz,
    step_attempts  integer     NOT NULL DEFAULT 0 CHECK (step_attempts >= 0),
    CONSTRAINT payment_pending_has_page
        CHECK (state <> 'PENDING' OR (reference IS NOT NULL AND checkout_url IS NOT NULL)),
    CONSTRAINT payment_money_is_named
        CHECK ((state IN ('CONFIRMED', 'REFUNDED')) = (confirmed_at IS NOT NULL AND charge IS NOT NULL)),
    CONSTRAINT payment_failure_has_reason
        CHECK ((state = 'FAILED') = (failure_reason IS NOT NULL)),
    CONSTRAINT payment_settled_has_money
        CHECK (settled_at IS NULL OR confirmed_at IS NOT NULL),
    CONSTRAINT payment_step_has_time
        CHECK ((step IS NULL) = (step_at IS NULL)),
    -- Money that is neither settled nor on its way back always has somebody to look after it.
    CONSTRAINT payment_money_is_looked_after
        CHECK (state <> 'CONFIRMED' OR settled_at IS NOT NULL OR step IN ('SETTLE', 'REFUND'))
);
CREATE UNIQUE INDEX payment_open_per_claim ON payment (claim_id) WHERE state IN ('INITIALIZING', 'PENDING');
CREATE INDEX payment_by_claim ON payment (claim_id, created_at);
CREATE INDEX payment_due ON payment (step, step_at) WHERE step IS NOT NULL;

CREATE TABLE refund (
    refund_id    uuid        PRIMARY KEY,
    -- Unique: a payment is refunded as a whole, and once.
    payment_id   uuid        NOT NULL UNIQUE REFERENCES payment (payment_id),
    reason       text        NOT NULL
        CHECK (reason IN ('CLAIM_REJECTED', 'DUPLICATE', 'EVENT_CANCELED', 'GOODWILL')),
    state        text        NOT NULL CHECK (state IN ('PENDING', 'COMPLETED')),
    created_at   timestamptz NOT NULL DEFAULT now(),
    completed_at timestamptz,
    CONSTRAINT refund_completed_has_time CHECK ((state = 'COMPLETED') = (completed_at IS NOT NULL))
);

-- Webhooks that were taken, by the provider's event id: a repeat finds itself here.
CREATE TABLE webhook (
    provider    text        NOT NULL,
    event_id    text        NOT NULL,
    event_type  text        NOT NULL,
    -- Null: about nothing of ours.
    payment_id  uuid,
    -- By the gateway's clock.
    received_at timestamptz NOT NULL,
    stored_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (provider, event_id)
);
CREATE INDEX webhook_stored_at ON webhook (stored_at);
