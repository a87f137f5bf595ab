-- Locks: none that matter, the table is new. Time: milliseconds.
-- The fencing epoch of each lease: what makes a paused old holder harmless; see storage::lease.

CREATE TABLE lease (
    name        text        PRIMARY KEY,
    epoch       bigint      NOT NULL CHECK (epoch > 0),
    holder      text        NOT NULL,
    acquired_at timestamptz NOT NULL DEFAULT now()
);
