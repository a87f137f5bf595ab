//! Invariants of quotas and invitations: every unit of a quota is kept, held or sold for its invitees until the quota returns
//! it to the public.

use super::{Rule, always, settled};

pub(in crate::audit) const QUOTAS: &[Rule] = &[
    always(
        1,
        "a quota's counts of used and invited units match its rows, and only an open quota keeps the rest",
        "SELECT format('quota %s is %s with %s units; counts say %s used, %s invited; rows say %s, %s and %s kept', q.quota_id,
                       q.state, cardinality(q.units), q.used_count, q.invited_count, used.count, promised.count, kept.count)
         FROM inventory.quota q
         CROSS JOIN LATERAL (SELECT count(*) AS count, count(*) FILTER (WHERE h.state = 'HELD') AS held
                             FROM inventory.hold h JOIN inventory.hold_unit u USING (hold_id)
                             WHERE h.quota_id = q.quota_id) used
         CROSS JOIN LATERAL (SELECT coalesce(sum(i.unit_count), 0) - used.held AS count FROM inventory.invitation i
                             WHERE i.quota_id = q.quota_id AND i.state IN ('PENDING', 'ACCEPTED')) promised
         CROSS JOIN LATERAL (SELECT count(*) AS count FROM inventory.hold_unit u
                             WHERE u.sector_id = q.sector_id AND u.hold_id = q.quota_id) kept
         WHERE q.used_count <> used.count
             OR CASE q.state WHEN 'OPEN' THEN q.invited_count <> promised.count
                    OR kept.count <> cardinality(q.units) - used.count
                ELSE q.invited_count <> 0 OR kept.count <> 0 END",
    ),
    always(
        1,
        "an invitation and its hold have the same customer, and it is USED if and only if the hold is COMMITTED",
        "SELECT format('invitation %s is %s with hold %s, which is %s', i.invitation_id, i.state, i.hold_id,
                       coalesce(h.state, 'missing'))
         FROM inventory.invitation i FULL JOIN (SELECT * FROM inventory.hold
             WHERE invitation_id IS NOT NULL AND state <> 'RELEASED') h USING (hold_id)
         WHERE (i.hold_id IS NOT NULL OR h.hold_id IS NOT NULL)
             AND ((h.invitation_id, h.quota_id, h.customer_id) IS DISTINCT FROM (i.invitation_id, i.quota_id, i.customer_id)
                 OR i.state IS DISTINCT FROM CASE h.state WHEN 'COMMITTED' THEN 'USED' ELSE 'ACCEPTED' END)",
    ),
    always(
        1,
        "every hold of an invitee has only units of the quota",
        "SELECT format('hold %s: unit %s of sector %s', h.hold_id, u.unit, u.sector_id)
         FROM inventory.hold h JOIN inventory.hold_unit u USING (hold_id) JOIN inventory.quota q USING (quota_id)
         LEFT JOIN LATERAL unnest(q.units) AS own (unit) ON own.unit = u.unit
         WHERE own.unit IS NULL OR u.sector_id <> q.sector_id",
    ),
    settled(
        1,
        "no quota stays open after its return time",
        "SELECT format('quota %s was due for return at %s', quota_id, return_time) FROM inventory.quota
         WHERE state = 'OPEN' AND return_time < now()",
    ),
    settled(
        6,
        "every invitation has a notification job for its mail",
        "SELECT format('invitation %s', i.invitation_id) FROM inventory.invitation i
         LEFT JOIN notification.job j ON j.template = 'QUOTA_INVITATION' AND j.subject_key = i.invitation_id::text
         WHERE j.job_id IS NULL",
    ),
];
