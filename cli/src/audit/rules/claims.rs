//! Invariants of claims: their items, history and allowance, and the agreement of Claim and Inventory on their holds.

use super::{Rule, always, settled};

pub(in crate::audit) const CLAIMS: &[Rule] = &[
    always(
        3,
        "a claim's total and unit count match its items",
        "SELECT format('claim %s says %s units for %s, its items %s for %s', c.claim_id, c.unit_count, c.total_minor, i.units,
                       i.amount)
         FROM claim.claim c
         CROSS JOIN LATERAL (SELECT coalesce(sum(cardinality(units)), 0) AS units,
                                    coalesce(sum(cardinality(units) * unit_price_minor), 0) AS amount
                             FROM claim.claim_item WHERE claim_id = c.claim_id) i
         WHERE i.units <> c.unit_count OR i.amount <> c.total_minor",
    ),
    // The claim's row stands for the first transition, to CLAIMED, so the history begins with number 2.
    always(
        3,
        "a claim's history has no gap and ends in the claim's state",
        "SELECT format('claim %s is %s, its history of %s steps ends with %s', c.claim_id, c.state, t.count,
                       coalesce(last.state, 'CLAIMED'))
         FROM claim.claim c
         CROSS JOIN LATERAL (SELECT count(*) AS count, coalesce(max(number), 1) AS last
                             FROM claim.claim_transition WHERE claim_id = c.claim_id AND number > 1) t
         LEFT JOIN claim.claim_transition last
             ON last.claim_id = c.claim_id AND last.number = t.last AND last.number > 1
         WHERE t.count + 1 <> t.last OR coalesce(last.state, 'CLAIMED') <> c.state
             OR last.release_reason IS DISTINCT FROM c.release_reason",
    ),
    always(
        3,
        "every claim has an allowance and a hold of its own",
        "SELECT format('claim %s names hold %s', c.claim_id, c.hold_id)
         FROM claim.claim c LEFT JOIN claim.hold_attempt h USING (hold_id) LEFT JOIN claim.allowance a USING (event_id, customer_id)
         WHERE h.hold_id IS NULL OR a.event_id IS NULL OR EXISTS
             (SELECT FROM claim.claim other WHERE other.hold_id = c.hold_id AND other.claim_id <> c.claim_id)",
    ),
    always(
        3,
        "every item and transition belongs to a claim, and no claim has two items of one sector",
        "SELECT format('item %s of claim %s', i.place, i.claim_id) FROM claim.claim_item i
         LEFT JOIN claim.claim c USING (claim_id)
         WHERE c.claim_id IS NULL OR EXISTS (SELECT FROM claim.claim_item other
             WHERE other.claim_id = i.claim_id AND other.sector_id = i.sector_id AND other.place <> i.place)
         UNION ALL
         SELECT format('step %s of claim %s', t.number, t.claim_id) FROM claim.claim_transition t
         LEFT JOIN claim.claim c USING (claim_id) WHERE c.claim_id IS NULL",
    ),
    always(
        3,
        "a claim's hold names the claim and is in the state that matches the claim's",
        "SELECT format('claim %s is %s, its hold %s is %s', c.claim_id, c.state, c.hold_id, h.state)
         FROM claim.claim c JOIN claim.hold_attempt h USING (hold_id)
         WHERE h.claim_id IS DISTINCT FROM c.claim_id
             OR (c.payment_id IS NULL AND (h.state = 'HELD') <> (c.state = 'CLAIMED'))
             OR (h.state = 'COMMITTED') <> (c.state = 'CONFIRMED')",
    ),
    always(
        3,
        "every extension of a claim was made between its creation and its expiry",
        "SELECT format('claim %s from %s to %s was extended at %s', claim_id, created_at, expires_at, extended_at)
         FROM claim.claim WHERE extended_at < created_at OR extended_at >= expires_at",
    ),
    always(
        3,
        "a customer's count of abandoned claims is at most that of their released claims",
        "SELECT format('customer %s of event %s: %s abandoned claims counted, the last at %s; %s released', a.customer_id, a.event_id,
                       a.abandoned_count, coalesce(a.abandoned_at::text, 'no time'), released.count)
         FROM claim.allowance a
         CROSS JOIN LATERAL (SELECT count(*) AS count FROM claim.claim c
                             WHERE c.event_id = a.event_id AND c.customer_id = a.customer_id
                                 AND c.state = 'RELEASED') released
         WHERE a.abandoned_count > released.count OR (a.abandoned_count > 0 AND a.abandoned_at IS NULL)",
    ),
    settled(
        3,
        "no attempt to obtain a hold is older than 30 s",
        "SELECT format('hold %s, attempted at %s', hold_id, attempted_at) FROM claim.hold_attempt
         WHERE state = 'RESERVING' AND attempted_at < now() - interval '30 seconds'",
    ),
    settled(
        3,
        "no hold waits for its release",
        "SELECT format('hold %s of claim %s', hold_id, coalesce(claim_id::text, 'none')) FROM claim.hold_attempt
         WHERE state = 'RELEASING'",
    ),
    settled(
        3,
        "Claim and Inventory agree on the state of every hold",
        "SELECT format('hold %s is %s for Claim, %s for Inventory', h.hold_id, h.state, coalesce(i.state, 'unknown'))
         FROM claim.hold_attempt h LEFT JOIN inventory.hold i USING (hold_id)
         WHERE CASE h.state WHEN 'RELEASED' THEN coalesce(i.state, 'RELEASED') <> 'RELEASED'
                            WHEN 'RESERVING' THEN i.state = 'COMMITTED'
                            WHEN 'RELEASING' THEN i.state = 'COMMITTED'
                            ELSE i.state IS DISTINCT FROM h.state END",
    ),
    settled(
        3,
        "every active hold was requested by Claim",
        "SELECT format('hold %s', i.hold_id) FROM inventory.hold i LEFT JOIN claim.hold_attempt h USING (hold_id)
         WHERE i.state <> 'RELEASED' AND h.hold_id IS NULL",
    ),
];
