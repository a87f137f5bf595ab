//! Invariants as queries to Postgres. Each query selects one row of text per violation.
//!
//! All queries read one snapshot over all schemas. Services never read each other's schema; only the audit does.

mod claims;
mod quotas;

pub(super) use self::{claims::CLAIMS, quotas::QUOTAS};

/// Time at which a rule must be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// True in every snapshot.
    Always,
    /// True after work in progress has ended: a few events must be processed between a payment and its tickets, for example.
    Settled,
}

/// An invariant, and the query for its violations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// Number of the design's invariant that the rule belongs to, 1 to 6.
    pub(super) invariant: u8,
    /// The invariant as a sentence, for the report.
    pub(super) statement: &'static str,
    pub(super) when: When,
    /// Selects one text column with a description of each violation.
    pub(super) sql: &'static str,
}

const fn always(invariant: u8, statement: &'static str, sql: &'static str) -> Rule {
    Rule { invariant, statement, when: When::Always, sql }
}

const fn settled(invariant: u8, statement: &'static str, sql: &'static str) -> Rule {
    Rule { invariant, statement, when: When::Settled, sql }
}

/// Rules about stock, lines, payments, turns, tickets and notifications. [`event_rules`] returns those about events.
pub(super) const RULES: &[Rule] = &[
    // 1. No oversell.
    always(
        1,
        "every taken unit exists in its sector",
        "SELECT format('unit %s of sector %s', u.unit, u.sector_id) AS what
         FROM inventory.hold_unit u LEFT JOIN inventory.sector s USING (sector_id)
         WHERE s.sector_id IS NULL OR u.unit > s.capacity",
    ),
    always(
        1,
        "every taken unit belongs to an active hold or an open quota",
        "SELECT format('unit %s of sector %s: hold %s is %s', u.unit, u.sector_id, u.hold_id,
                       coalesce(h.state, q.state, 'missing'))
         FROM inventory.hold_unit u LEFT JOIN inventory.hold h USING (hold_id)
         LEFT JOIN inventory.quota q ON q.quota_id = u.hold_id AND q.sector_id = u.sector_id
         WHERE (h.hold_id IS NULL OR h.state = 'RELEASED') AND q.state IS DISTINCT FROM 'OPEN'",
    ),
    always(
        1,
        "an active hold has taken exactly the units that it names",
        "SELECT format('unit %s of sector %s: hold %s %s', unit, sector_id, hold_id,
                       CASE WHEN is_named THEN 'does not have it' ELSE 'does not name it' END)
         FROM (SELECT h.hold_id, own.sector_id, own.unit, true AS is_named
               FROM inventory.hold h CROSS JOIN unnest(h.unit_sectors, h.units) AS own (sector_id, unit)
               WHERE h.state <> 'RELEASED') named
         FULL JOIN (SELECT u.hold_id, u.sector_id, u.unit, true AS is_taken
                    FROM inventory.hold_unit u JOIN inventory.hold h USING (hold_id) WHERE h.state <> 'RELEASED') taken
         USING (hold_id, sector_id, unit)
         WHERE is_named IS NULL OR is_taken IS NULL",
    ),
    always(
        1,
        "a sector's counts of taken, kept and sold units match its rows",
        "SELECT format('sector %s: counts say %s taken, %s kept, %s sold; rows say %s, %s, %s', sector_id,
                       s.taken_count, s.kept_count, s.sold_count, c.taken, c.kept, c.sold)
         FROM inventory.sector_sale s
         FULL JOIN (SELECT u.sector_id, count(*) AS taken, count(q.quota_id) AS kept,
                        count(*) FILTER (WHERE h.state = 'COMMITTED') AS sold
                    FROM inventory.hold_unit u LEFT JOIN inventory.hold h USING (hold_id)
                    LEFT JOIN inventory.quota q ON q.quota_id = u.hold_id GROUP BY u.sector_id) c USING (sector_id)
         WHERE (s.taken_count, s.kept_count, s.sold_count) IS DISTINCT FROM
             (coalesce(c.taken, 0), coalesce(c.kept, 0), coalesce(c.sold, 0))",
    ),
    always(
        1,
        "a customer's unit count matches their claims, and their limit is the event's and is not exceeded",
        "SELECT format('customer %s of event %s: %s claimed, %s counted, %s allowed', a.customer_id, a.event_id,
                       coalesce(c.units, 0), a.units_taken, e.units_per_customer_max)
         FROM claim.allowance a LEFT JOIN inventory.event e USING (event_id)
         LEFT JOIN (SELECT event_id, customer_id, sum(unit_count) AS units FROM claim.claim
                    WHERE state <> 'RELEASED' OR (payment_id IS NOT NULL AND release_reason <> 'REJECTED')
                    GROUP BY event_id, customer_id) c USING (event_id, customer_id)
         WHERE coalesce(c.units, 0) <> a.units_taken OR a.units_max IS DISTINCT FROM e.units_per_customer_max
             OR a.units_taken > a.units_max",
    ),
    always(
        1,
        "an event is SOLD_OUT if all its units are sold or kept, and a SOLD_OUT event has no unit free or held by the public",
        "SELECT format('event %s is %s: of %s units %s are taken, %s kept, %s sold', e.event_id, e.state, sum(s.capacity),
                       sum(s.taken_count), sum(s.kept_count), sum(s.sold_count))
         FROM inventory.event e JOIN inventory.sector_sale s USING (event_id)
         WHERE e.state IN ('ON_SALE', 'PAUSED', 'SOLD_OUT') GROUP BY e.event_id, e.state
         HAVING (e.state <> 'SOLD_OUT' AND sum(s.sold_count + s.kept_count) = sum(s.capacity))
             OR (e.state = 'SOLD_OUT' AND (sum(s.taken_count) < sum(s.capacity) OR EXISTS (
                 SELECT FROM inventory.hold h
                 WHERE h.event_id = e.event_id AND h.state = 'HELD' AND h.quota_id IS NULL)))",
    ),
    settled(
        1,
        "no queue is closed as sold out while its event is ON_SALE",
        "SELECT format('event %s', e.event_id) FROM inventory.event e JOIN queue.queue q USING (event_id)
         WHERE e.state = 'ON_SALE' AND q.is_sold_out",
    ),
    // 2. First come, first served.
    always(
        2,
        "the numbers of a line have no gap",
        "SELECT format('event %s: last number %s, %s entries', l.event_id, l.last_seq, count(e.seq))
         FROM queue.line l JOIN queue.queue q USING (event_id) LEFT JOIN queue.entry e USING (event_id)
         WHERE q.mode = 'TRACKED'
         GROUP BY l.event_id, l.last_seq HAVING count(e.seq) <> l.last_seq OR coalesce(max(e.seq), 0) <> l.last_seq",
    ),
    always(
        2,
        "every entry belongs to a line",
        "SELECT format('entry %s', entry_id) FROM queue.entry LEFT JOIN queue.line USING (event_id)
         WHERE line.event_id IS NULL",
    ),
    always(
        2,
        "turns were granted in the order of the line",
        "SELECT format('event %s: number %s had its turn after number %s', event_id, seq, before)
         FROM (SELECT event_id, seq, lag(seq) OVER (PARTITION BY event_id ORDER BY fencing_number) AS before
               FROM queue.entry WHERE fencing_number IS NOT NULL) turns
         WHERE before > seq",
    ),
    always(
        2,
        "no entry waits in front of an admitted entry",
        "SELECT format('event %s: number %s waits, number %s was admitted', l.event_id, e.seq, l.last_admitted_seq)
         FROM queue.entry e JOIN queue.line l USING (event_id)
         WHERE e.state = 'WAITING' AND e.seq < l.last_admitted_seq",
    ),
    always(
        2,
        "a line's counts of waiting entries and open turns match its entries",
        "SELECT format('event %s: counts say %s waiting, %s turns; rows say %s, %s', l.event_id, l.waiting_count,
                       l.open_turn_count, count(*) FILTER (WHERE e.state = 'WAITING'),
                       count(*) FILTER (WHERE e.state = 'ADMITTED'))
         FROM queue.line l JOIN queue.queue q USING (event_id) LEFT JOIN queue.entry e USING (event_id)
         WHERE q.mode = 'TRACKED'
         GROUP BY l.event_id, l.waiting_count, l.open_turn_count
         HAVING l.waiting_count <> count(*) FILTER (WHERE e.state = 'WAITING')
             OR l.open_turn_count <> count(*) FILTER (WHERE e.state = 'ADMITTED')",
    ),
    always(
        2,
        "the counts of a WINDOWED line match its numbers and used tickets, and it has no entries",
        "SELECT format('event %s: %s of %s tickets are admitted; counts say %s waiting, last turn %s, %s completed',
                       l.event_id, l.last_admitted_seq, l.last_seq, l.waiting_count, l.last_fencing_number,
                       l.completed_count)
         FROM queue.line l JOIN queue.queue q USING (event_id)
         WHERE q.mode = 'WINDOWED' AND (l.waiting_count <> l.last_seq - l.last_admitted_seq
             OR l.last_fencing_number <> l.last_admitted_seq
             OR l.completed_count <> (SELECT count(*) FROM queue.used_ticket u WHERE u.event_id = l.event_id)
             OR EXISTS (SELECT FROM queue.entry e WHERE e.event_id = l.event_id))",
    ),
    // 3. A payment buys the units or is refunded, never both.
    settled(
        3,
        "every CONFIRMED payment paid for a CONFIRMED claim",
        "SELECT format('payment %s of claim %s is CONFIRMED, the claim is %s', p.payment_id, p.claim_id,
                       coalesce(c.state, 'missing'))
         FROM payment.payment p LEFT JOIN claim.claim c USING (claim_id)
         WHERE p.state = 'CONFIRMED' AND (c.state IS DISTINCT FROM 'CONFIRMED' OR c.payment_id <> p.payment_id)",
    ),
    settled(
        3,
        "no payment waits for its settlement or refund",
        "SELECT format('payment %s of claim %s waits for step %s after %s attempts', payment_id, claim_id, step, step_attempts)
         FROM payment.payment WHERE step IN ('SETTLE', 'REFUND')",
    ),
    always(
        3,
        "a payment is REFUNDED if and only if its refund is COMPLETED",
        "SELECT format('payment %s is %s, its refund %s', p.payment_id, p.state, coalesce(r.state, 'missing'))
         FROM payment.payment p LEFT JOIN payment.refund r USING (payment_id)
         WHERE (p.state = 'REFUNDED') <> coalesce(r.state = 'COMPLETED', false)
             OR (r.state IS NOT NULL AND p.state NOT IN ('CONFIRMED', 'REFUNDED'))",
    ),
    always(
        3,
        "no confirmed claim is paid by a payment that is refunded as rejected or duplicate",
        "SELECT format('claim %s is paid by payment %s, which is refunded as %s', c.claim_id, r.payment_id, r.reason)
         FROM payment.refund r JOIN claim.claim c USING (payment_id)
         WHERE r.reason IN ('CLAIM_REJECTED', 'DUPLICATE') AND c.state = 'CONFIRMED'",
    ),
    settled(
        3,
        "every order that is not refunded has all its tickets",
        "SELECT format('claim %s has %s of %s tickets', c.claim_id, count(t.ticket_id), c.unit_count)
         FROM claim.claim c JOIN payment.payment p ON p.payment_id = c.payment_id AND p.state = 'CONFIRMED'
         LEFT JOIN ticketing.ticket t ON t.claim_id = c.claim_id AND t.state IN ('ISSUED', 'CHECKED_IN')
         WHERE c.state = 'CONFIRMED' AND NOT EXISTS
             (SELECT FROM payment.refund r WHERE r.payment_id = p.payment_id)
         GROUP BY c.claim_id, c.unit_count HAVING count(t.ticket_id) <> c.unit_count",
    ),
    settled(
        3,
        "no refund is pending",
        "SELECT format('refund %s of payment %s', refund_id, payment_id) FROM payment.refund WHERE state = 'PENDING'",
    ),
    always(
        3,
        "no claim with a refunded payment has valid tickets",
        "SELECT DISTINCT format('claim %s: payment %s is refunded, ticket %s is valid', c.claim_id, p.payment_id, t.ticket_id)
         FROM payment.payment p JOIN claim.claim c ON c.payment_id = p.payment_id
         JOIN ticketing.ticket t ON t.claim_id = c.claim_id AND t.state IN ('ISSUED', 'CHECKED_IN')
         WHERE p.state = 'REFUNDED'",
    ),
    always(
        3,
        "every order is paid in full",
        "SELECT format('claim %s costs %s %s, payment %s is %s over %s %s', c.claim_id, c.total_minor, c.currency_code,
                       c.payment_id, coalesce(p.state, 'missing'), p.amount_minor, p.currency_code)
         FROM claim.claim c LEFT JOIN payment.payment p ON p.payment_id = c.payment_id
         WHERE c.state = 'CONFIRMED' AND (p.payment_id IS NULL OR p.state NOT IN ('CONFIRMED', 'REFUNDED')
             OR p.amount_minor <> c.total_minor OR p.currency_code <> c.currency_code OR p.claim_id <> c.claim_id)",
    ),
    always(
        3,
        "every unit of an order is sold to it",
        "SELECT format('claim %s: unit %s of sector %s', c.claim_id, unit.number, i.sector_id)
         FROM claim.claim c JOIN claim.claim_item i USING (claim_id) CROSS JOIN LATERAL unnest(i.units) AS unit (number)
         LEFT JOIN inventory.hold_unit u ON u.sector_id = i.sector_id AND u.unit = unit.number AND u.hold_id = c.hold_id
         LEFT JOIN inventory.hold h ON h.hold_id = u.hold_id
         WHERE c.state = 'CONFIRMED' AND h.state IS DISTINCT FROM 'COMMITTED'",
    ),
    always(
        3,
        "an order and its hold have exactly as many units as were paid for",
        "SELECT format('claim %s counts %s units, its items have %s, its hold %s', c.claim_id, c.unit_count, items.count, held.count)
         FROM claim.claim c
         CROSS JOIN LATERAL (SELECT coalesce(sum(cardinality(i.units)), 0) AS count
                             FROM claim.claim_item i WHERE i.claim_id = c.claim_id) items
         CROSS JOIN LATERAL (SELECT count(*) AS count FROM inventory.hold_unit u WHERE u.hold_id = c.hold_id) held
         WHERE c.state = 'CONFIRMED' AND (items.count <> c.unit_count OR held.count <> c.unit_count)",
    ),
    settled(
        3,
        "an open claim's hold has exactly the units of the claim",
        "SELECT format('claim %s counts %s units, %s of them are held, its hold has %s', c.claim_id, c.unit_count, own.count, held.count)
         FROM claim.claim c
         CROSS JOIN LATERAL (SELECT count(*) AS count FROM claim.claim_item i CROSS JOIN LATERAL unnest(i.units) AS n (unit)
                             JOIN inventory.hold_unit u ON u.sector_id = i.sector_id AND u.unit = n.unit
                             WHERE i.claim_id = c.claim_id AND u.hold_id = c.hold_id) own
         CROSS JOIN LATERAL (SELECT count(*) AS count FROM inventory.hold_unit u WHERE u.hold_id = c.hold_id) held
         WHERE c.state = 'CLAIMED' AND (own.count <> c.unit_count OR held.count <> c.unit_count)",
    ),
    settled(
        3,
        "no unpaid claim stays open after its expiry",
        "SELECT format('claim %s expired at %s', claim_id, expires_at) FROM claim.claim
         WHERE state = 'CLAIMED' AND payment_id IS NULL AND expires_at < now()",
    ),
    settled(
        3,
        "every hold in state COMMITTED belongs to an order",
        "SELECT format('hold %s', h.hold_id) FROM inventory.hold h LEFT JOIN claim.claim c USING (hold_id)
         WHERE h.state = 'COMMITTED' AND c.state IS DISTINCT FROM 'CONFIRMED'",
    ),
    settled(
        3,
        "every hold in state HELD belongs to an open claim",
        "SELECT format('hold %s', h.hold_id) FROM inventory.hold h LEFT JOIN claim.claim c USING (hold_id)
         WHERE h.state = 'HELD' AND c.state IS DISTINCT FROM 'CLAIMED'",
    ),
    // 4. One turn, one fencing number.
    always(
        4,
        "every claim was made with a turn of its customer",
        "SELECT format('claim %s names turn %s', c.claim_id, c.fencing_number)
         FROM claim.claim c LEFT JOIN queue.entry e
             ON e.event_id = c.event_id AND e.customer_id = c.customer_id AND e.fencing_number = c.fencing_number
         LEFT JOIN queue.queue q ON q.event_id = c.event_id
         WHERE e.entry_id IS NULL AND c.fencing_number IS NOT NULL AND q.mode IS DISTINCT FROM 'WINDOWED'",
    ),
    always(
        4,
        "every claim in a WINDOWED queue was made with an admitted ticket",
        "SELECT format('claim %s names ticket %s, the last admitted one is %s', c.claim_id, c.fencing_number, l.last_admitted_seq)
         FROM claim.claim c JOIN queue.queue q USING (event_id) JOIN queue.line l USING (event_id)
         WHERE q.mode = 'WINDOWED' AND c.fencing_number > l.last_admitted_seq",
    ),
    always(
        4,
        "every used ticket was admitted",
        "SELECT format('event %s: ticket %s was used, the last admitted one is %s', u.event_id, u.seq, l.last_admitted_seq)
         FROM queue.used_ticket u JOIN queue.line l USING (event_id) WHERE u.seq > l.last_admitted_seq",
    ),
    always(
        4,
        "every used ticket belongs to the claim that was made with it",
        "SELECT format('event %s: ticket %s, claim %s', u.event_id, u.seq, u.claim_id)
         FROM queue.used_ticket u LEFT JOIN claim.claim c ON c.claim_id = u.claim_id AND c.event_id = u.event_id
             AND c.customer_id = u.customer_id AND c.fencing_number = u.seq
         WHERE c.claim_id IS NULL",
    ),
    settled(
        4,
        "the ticket of every order in a WINDOWED queue is used",
        "SELECT format('claim %s names ticket %s', c.claim_id, c.fencing_number)
         FROM claim.claim c JOIN queue.queue q USING (event_id)
         LEFT JOIN queue.used_ticket u ON u.event_id = c.event_id AND u.seq = c.fencing_number AND u.claim_id = c.claim_id
         WHERE q.mode = 'WINDOWED' AND c.state = 'CONFIRMED' AND c.fencing_number IS NOT NULL AND u.claim_id IS NULL",
    ),
    always(
        4,
        "every claim was made before its turn expired",
        "SELECT format('claim %s names turn %s', c.claim_id, c.fencing_number)
         FROM claim.claim c JOIN queue.entry e
             ON e.event_id = c.event_id AND e.customer_id = c.customer_id AND e.fencing_number = c.fencing_number
         WHERE c.created_at > e.expire_time",
    ),
    settled(
        4,
        "the turn of every order is completed",
        "SELECT format('claim %s: its turn %s is %s', c.claim_id, c.fencing_number, e.state)
         FROM claim.claim c JOIN queue.entry e
             ON e.event_id = c.event_id AND e.customer_id = c.customer_id AND e.fencing_number = c.fencing_number
         WHERE c.state = 'CONFIRMED' AND e.state = 'ADMITTED'",
    ),
    // 5. Exactly capacity tickets, each issued once.
    always(
        5,
        "no sector has more tickets than units",
        "SELECT format('sector %s: %s tickets, %s units', s.sector_id, count(*), s.capacity)
         FROM ticketing.ticket t JOIN inventory.sector s USING (sector_id) JOIN inventory.event e USING (event_id)
         WHERE e.state <> 'DRAFT' GROUP BY s.sector_id, s.capacity HAVING count(*) > s.capacity OR max(t.unit) > s.capacity",
    ),
    settled(
        5,
        "every unit of an event has a ticket",
        "SELECT format('sector %s: %s tickets, %s units', s.sector_id, count(t.ticket_id), s.capacity)
         FROM inventory.sector s JOIN inventory.event e USING (event_id) LEFT JOIN ticketing.ticket t USING (sector_id)
         GROUP BY s.sector_id, s.capacity HAVING count(t.ticket_id) <> s.capacity",
    ),
    always(
        5,
        "every issued ticket belongs to an order that has its unit",
        "SELECT format('ticket %s of claim %s', t.ticket_id, t.claim_id)
         FROM ticketing.ticket t LEFT JOIN claim.claim c USING (claim_id)
         LEFT JOIN claim.claim_item i ON i.claim_id = c.claim_id AND i.sector_id = t.sector_id AND t.unit = ANY (i.units)
         WHERE t.claim_id IS NOT NULL AND (c.state IS DISTINCT FROM 'CONFIRMED' OR i.claim_id IS NULL)",
    ),
    settled(
        5,
        "no issuance of tickets is pending or refused",
        "SELECT format('claim %s is %s', claim_id, state) FROM ticketing.issuance WHERE state IN ('PENDING', 'REFUSED')",
    ),
    // 6. No notification is lost.
    settled(
        6,
        "every order has a notification job for its confirmation mail",
        "SELECT format('claim %s', c.claim_id) FROM claim.claim c
         LEFT JOIN notification.job j ON j.template = 'ORDER_CONFIRMATION' AND j.subject_key = c.claim_id::text
         WHERE c.state = 'CONFIRMED' AND j.job_id IS NULL",
    ),
    settled(
        6,
        "every refund has a notification job for its mail",
        "SELECT format('payment %s', p.payment_id) FROM payment.payment p
         LEFT JOIN notification.job j ON j.template = 'REFUND' AND j.subject_key = p.payment_id::text
         WHERE p.state = 'REFUNDED' AND j.job_id IS NULL",
    ),
    always(
        6,
        "every notification job has a delivery",
        "SELECT format('job %s', j.job_id) FROM notification.job j LEFT JOIN notification.delivery d USING (job_id)
         WHERE d.delivery_id IS NULL",
    ),
    settled(
        6,
        "every delivery has ended",
        "SELECT format('delivery %s is %s after %s attempts', delivery_id, state, attempt_count)
         FROM notification.delivery WHERE state IN ('QUEUED', 'SENDING')",
    ),
];

/// Rules about the events of every schema. `SCHEMA` is replaced by its name.
const EVENT_RULES: &[Rule] = &[
    settled(
        6,
        "every event was published and acknowledged by all its consumer groups",
        "SELECT format('event %s of topic %s from SCHEMA', o.event_id, o.topic) FROM SCHEMA.outbox o
         WHERE o.position IS NULL OR EXISTS (SELECT FROM SCHEMA.outbox_group g
             WHERE g.topic = o.topic AND g.acknowledged_position < o.position)",
    ),
    settled(
        6,
        "no event is in the dead letters",
        "SELECT format('event %s of topic %s at SCHEMA: %s', event_id, topic, error) FROM SCHEMA.dead_letter",
    ),
];

/// Returns the [`EVENT_RULES`] of one schema with their queries.
pub(super) fn event_rules(schema: &str) -> impl Iterator<Item = (Rule, String)> {
    EVENT_RULES.iter().map(move |rule| (*rule, rule.sql.replace("SCHEMA", schema)))
}
