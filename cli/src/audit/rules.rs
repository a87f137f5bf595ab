//! What must hold, as questions to Postgres: each selects what breaks the rule, one row of text per offender.
//!
//! All of them are asked in one snapshot, over all schemas: services never look into each other's books, the auditor does.

mod claims;
mod quotas;

pub(super) use self::{claims::CLAIMS, quotas::QUOTAS};

/// When a rule must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// At any moment.
    Always,
    /// Once what is under way has ended: between a payment and its tickets lie a few events.
    Settled,
}

/// One rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// The invariant it belongs to, as the design numbers what must always hold.
    pub(super) invariant: u8,
    /// What holds.
    pub(super) statement: &'static str,
    pub(super) when: When,
    /// Selects `what`: the offenders.
    pub(super) sql: &'static str,
}

const fn always(invariant: u8, statement: &'static str, sql: &'static str) -> Rule {
    Rule { invariant, statement, when: When::Always, sql }
}

const fn settled(invariant: u8, statement: &'static str, sql: &'static str) -> Rule {
    Rule { invariant, statement, when: When::Settled, sql }
}

/// All rules about one schema or several; those about what is on its way between services are made by [`event_rules`].
pub(super) const RULES: &[Rule] = &[
    // 1. No oversell.
    always(
        1,
        "a taken unit is one of its sector's",
        "SELECT format('unit %s of sector %s', u.unit, u.sector_id) AS what
         FROM inventory.hold_unit u LEFT JOIN inventory.sector s USING (sector_id)
         WHERE s.sector_id IS NULL OR u.unit > s.capacity",
    ),
    always(
        1,
        "a taken unit has a hold that stands, or is kept by an open quota",
        "SELECT format('unit %s of sector %s: hold %s is %s', u.unit, u.sector_id, u.hold_id,
                       coalesce(h.state, q.state, 'missing'))
         FROM inventory.hold_unit u LEFT JOIN inventory.hold h USING (hold_id)
         LEFT JOIN inventory.quota q ON q.quota_id = u.hold_id AND q.sector_id = u.sector_id
         WHERE (h.hold_id IS NULL OR h.state = 'RELEASED') AND q.state IS DISTINCT FROM 'OPEN'",
    ),
    always(
        1,
        "a hold that stands has the units it names, and no others",
        "SELECT format('unit %s of sector %s: hold %s %s', unit, sector_id, hold_id,
                       CASE WHEN is_named THEN 'has it not' ELSE 'does not name it' END)
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
        "a sector counts what is taken of it, and what of that is kept and sold",
        "SELECT format('sector %s: %s taken, %s kept and %s sold counted, there are %s, %s and %s', sector_id,
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
        "a customer has the units that are counted, and no more of an event than it allows",
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
        "an event is sold out when all its units are sold or kept; then nothing is free, and only invitees hold",
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
        "no queue is closed as sold out while units are for sale",
        "SELECT format('event %s', e.event_id) FROM inventory.event e JOIN queue.queue q USING (event_id)
         WHERE e.state = 'ON_SALE' AND q.is_sold_out",
    ),
    // 2. First come, first served.
    always(
        2,
        "numbers in line have no gap",
        "SELECT format('event %s: last number %s, %s entries', l.event_id, l.last_seq, count(e.seq))
         FROM queue.line l JOIN queue.queue q USING (event_id) LEFT JOIN queue.entry e USING (event_id)
         WHERE q.mode = 'TRACKED'
         GROUP BY l.event_id, l.last_seq HAVING count(e.seq) <> l.last_seq OR coalesce(max(e.seq), 0) <> l.last_seq",
    ),
    always(
        2,
        "every entry stands in a line",
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
        "nobody waits who stood before somebody admitted",
        "SELECT format('event %s: number %s waits, number %s was admitted', l.event_id, e.seq, l.last_admitted_seq)
         FROM queue.entry e JOIN queue.line l USING (event_id)
         WHERE e.state = 'WAITING' AND e.seq < l.last_admitted_seq",
    ),
    always(
        2,
        "a line knows how many wait and how many have a turn",
        "SELECT format('event %s: %s waiting and %s turns counted, there are %s and %s', l.event_id, l.waiting_count,
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
        "a window knows how many wait for it, and how many of its tickets bought something",
        "SELECT format('event %s: %s of %s tickets were active, %s waiting, %s fenced and %s completed counted',
                       l.event_id, l.last_admitted_seq, l.last_seq, l.waiting_count, l.last_fencing_number,
                       l.completed_count)
         FROM queue.line l JOIN queue.queue q USING (event_id)
         WHERE q.mode = 'WINDOWED' AND (l.waiting_count <> l.last_seq - l.last_admitted_seq
             OR l.last_fencing_number <> l.last_admitted_seq
             OR l.completed_count <> (SELECT count(*) FROM queue.used_ticket u WHERE u.event_id = l.event_id)
             OR EXISTS (SELECT FROM queue.entry e WHERE e.event_id = l.event_id))",
    ),
    // 3. Paid means served, or money back, never both.
    settled(
        3,
        "every payment is served or goes back",
        "SELECT format('payment %s of claim %s is CONFIRMED, the claim is %s', p.payment_id, p.claim_id,
                       coalesce(c.state, 'missing'))
         FROM payment.payment p LEFT JOIN claim.claim c USING (claim_id)
         WHERE p.state = 'CONFIRMED' AND (c.state IS DISTINCT FROM 'CONFIRMED' OR c.payment_id <> p.payment_id)",
    ),
    settled(
        3,
        "no money waits to be settled",
        "SELECT format('payment %s of claim %s is to %s, after %s attempts', payment_id, claim_id, step, step_attempts)
         FROM payment.payment WHERE step IN ('SETTLE', 'REFUND')",
    ),
    always(
        3,
        "a payment is REFUNDED when its refund is made, and only then",
        "SELECT format('payment %s is %s, its refund %s', p.payment_id, p.state, coalesce(r.state, 'missing'))
         FROM payment.payment p LEFT JOIN payment.refund r USING (payment_id)
         WHERE (p.state = 'REFUNDED') <> coalesce(r.state = 'COMPLETED', false)
             OR (r.state IS NOT NULL AND p.state NOT IN ('CONFIRMED', 'REFUNDED'))",
    ),
    always(
        3,
        "money that goes back as not served bought nothing",
        "SELECT format('claim %s is paid by payment %s, which goes back as %s', c.claim_id, r.payment_id, r.reason)
         FROM payment.refund r JOIN claim.claim c USING (payment_id)
         WHERE r.reason IN ('CLAIM_REJECTED', 'DUPLICATE') AND c.state = 'CONFIRMED'",
    ),
    settled(
        3,
        "every order has all its tickets",
        "SELECT format('claim %s has %s of %s tickets', c.claim_id, count(t.ticket_id), c.unit_count)
         FROM claim.claim c JOIN payment.payment p ON p.payment_id = c.payment_id AND p.state = 'CONFIRMED'
         LEFT JOIN ticketing.ticket t ON t.claim_id = c.claim_id AND t.state IN ('ISSUED', 'CHECKED_IN')
         WHERE c.state = 'CONFIRMED' AND NOT EXISTS
             (SELECT FROM payment.refund r WHERE r.payment_id = p.payment_id)
         GROUP BY c.claim_id, c.unit_count HAVING count(t.ticket_id) <> c.unit_count",
    ),
    settled(
        3,
        "every refund reaches the customer",
        "SELECT format('refund %s of payment %s', refund_id, payment_id) FROM payment.refund WHERE state = 'PENDING'",
    ),
    always(
        3,
        "nobody has both the money and the tickets",
        "SELECT DISTINCT format('claim %s: payment %s went back, ticket %s admits', c.claim_id, p.payment_id, t.ticket_id)
         FROM payment.payment p JOIN claim.claim c ON c.payment_id = p.payment_id
         JOIN ticketing.ticket t ON t.claim_id = c.claim_id AND t.state IN ('ISSUED', 'CHECKED_IN')
         WHERE p.state = 'REFUNDED'",
    ),
    always(
        3,
        "an order is paid, in full",
        "SELECT format('claim %s of %s %s, payment %s is %s of %s %s', c.claim_id, c.total_minor, c.currency_code,
                       c.payment_id, coalesce(p.state, 'missing'), p.amount_minor, p.currency_code)
         FROM claim.claim c LEFT JOIN payment.payment p ON p.payment_id = c.payment_id
         WHERE c.state = 'CONFIRMED' AND (p.payment_id IS NULL OR p.state NOT IN ('CONFIRMED', 'REFUNDED')
             OR p.amount_minor <> c.total_minor OR p.currency_code <> c.currency_code OR p.claim_id <> c.claim_id)",
    ),
    always(
        3,
        "an order's units are sold to it",
        "SELECT format('claim %s: unit %s of sector %s', c.claim_id, unit.number, i.sector_id)
         FROM claim.claim c JOIN claim.claim_item i USING (claim_id) CROSS JOIN LATERAL unnest(i.units) AS unit (number)
         LEFT JOIN inventory.hold_unit u ON u.sector_id = i.sector_id AND u.unit = unit.number AND u.hold_id = c.hold_id
         LEFT JOIN inventory.hold h ON h.hold_id = u.hold_id
         WHERE c.state = 'CONFIRMED' AND h.state IS DISTINCT FROM 'COMMITTED'",
    ),
    always(
        3,
        "an order has as many units as it paid for, and its hold has no others",
        "SELECT format('claim %s of %s units has %s, its hold %s', c.claim_id, c.unit_count, items.count, held.count)
         FROM claim.claim c
         CROSS JOIN LATERAL (SELECT coalesce(sum(cardinality(i.units)), 0) AS count
                             FROM claim.claim_item i WHERE i.claim_id = c.claim_id) items
         CROSS JOIN LATERAL (SELECT count(*) AS count FROM inventory.hold_unit u WHERE u.hold_id = c.hold_id) held
         WHERE c.state = 'CONFIRMED' AND (items.count <> c.unit_count OR held.count <> c.unit_count)",
    ),
    settled(
        3,
        "an open claim has its units held, and its hold has no others",
        "SELECT format('claim %s of %s units has %s held, its hold %s', c.claim_id, c.unit_count, own.count, held.count)
         FROM claim.claim c
         CROSS JOIN LATERAL (SELECT count(*) AS count FROM claim.claim_item i CROSS JOIN LATERAL unnest(i.units) AS n (unit)
                             JOIN inventory.hold_unit u ON u.sector_id = i.sector_id AND u.unit = n.unit
                             WHERE i.claim_id = c.claim_id AND u.hold_id = c.hold_id) own
         CROSS JOIN LATERAL (SELECT count(*) AS count FROM inventory.hold_unit u WHERE u.hold_id = c.hold_id) held
         WHERE c.state = 'CLAIMED' AND (own.count <> c.unit_count OR held.count <> c.unit_count)",
    ),
    settled(
        3,
        "no claim outlives its time unpaid",
        "SELECT format('claim %s ended at %s', claim_id, expires_at) FROM claim.claim
         WHERE state = 'CLAIMED' AND payment_id IS NULL AND expires_at < now()",
    ),
    settled(
        3,
        "sold units belong to an order",
        "SELECT format('hold %s', h.hold_id) FROM inventory.hold h LEFT JOIN claim.claim c USING (hold_id)
         WHERE h.state = 'COMMITTED' AND c.state IS DISTINCT FROM 'CONFIRMED'",
    ),
    settled(
        3,
        "held units belong to an open claim",
        "SELECT format('hold %s', h.hold_id) FROM inventory.hold h LEFT JOIN claim.claim c USING (hold_id)
         WHERE h.state = 'HELD' AND c.state IS DISTINCT FROM 'CLAIMED'",
    ),
    // 4. One turn, one fencing number.
    always(
        4,
        "a claim was made in a turn of its customer",
        "SELECT format('claim %s of turn %s', c.claim_id, c.fencing_number)
         FROM claim.claim c LEFT JOIN queue.entry e
             ON e.event_id = c.event_id AND e.customer_id = c.customer_id AND e.fencing_number = c.fencing_number
         LEFT JOIN queue.queue q ON q.event_id = c.event_id
         WHERE e.entry_id IS NULL AND c.fencing_number IS NOT NULL AND q.mode IS DISTINCT FROM 'WINDOWED'",
    ),
    always(
        4,
        "a claim in a WINDOWED queue was made with a ticket whose number had come",
        "SELECT format('claim %s of ticket %s, %s had come', c.claim_id, c.fencing_number, l.last_admitted_seq)
         FROM claim.claim c JOIN queue.queue q USING (event_id) JOIN queue.line l USING (event_id)
         WHERE q.mode = 'WINDOWED' AND c.fencing_number > l.last_admitted_seq",
    ),
    always(
        4,
        "only tickets whose number had come were used",
        "SELECT format('event %s: ticket %s was used, %s had come', u.event_id, u.seq, l.last_admitted_seq)
         FROM queue.used_ticket u JOIN queue.line l USING (event_id) WHERE u.seq > l.last_admitted_seq",
    ),
    always(
        4,
        "a ticket was used for a claim that was made with it",
        "SELECT format('event %s: ticket %s, claim %s', u.event_id, u.seq, u.claim_id)
         FROM queue.used_ticket u LEFT JOIN claim.claim c ON c.claim_id = u.claim_id AND c.event_id = u.event_id
             AND c.customer_id = u.customer_id AND c.fencing_number = u.seq
         WHERE c.claim_id IS NULL",
    ),
    settled(
        4,
        "the ticket of an order is used",
        "SELECT format('claim %s of ticket %s', c.claim_id, c.fencing_number)
         FROM claim.claim c JOIN queue.queue q USING (event_id)
         LEFT JOIN queue.used_ticket u ON u.event_id = c.event_id AND u.seq = c.fencing_number AND u.claim_id = c.claim_id
         WHERE q.mode = 'WINDOWED' AND c.state = 'CONFIRMED' AND c.fencing_number IS NOT NULL AND u.claim_id IS NULL",
    ),
    always(
        4,
        "a claim was made while its turn ran",
        "SELECT format('claim %s of turn %s', c.claim_id, c.fencing_number)
         FROM claim.claim c JOIN queue.entry e
             ON e.event_id = c.event_id AND e.customer_id = c.customer_id AND e.fencing_number = c.fencing_number
         WHERE c.created_at > e.expire_time",
    ),
    settled(
        4,
        "the turn of an order is completed",
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
        "every unit of an event has its ticket",
        "SELECT format('sector %s: %s tickets, %s units', s.sector_id, count(t.ticket_id), s.capacity)
         FROM inventory.sector s JOIN inventory.event e USING (event_id) LEFT JOIN ticketing.ticket t USING (sector_id)
         GROUP BY s.sector_id, s.capacity HAVING count(t.ticket_id) <> s.capacity",
    ),
    always(
        5,
        "a ticket that was issued belongs to an order, which has that unit",
        "SELECT format('ticket %s of claim %s', t.ticket_id, t.claim_id)
         FROM ticketing.ticket t LEFT JOIN claim.claim c USING (claim_id)
         LEFT JOIN claim.claim_item i ON i.claim_id = c.claim_id AND i.sector_id = t.sector_id AND t.unit = ANY (i.units)
         WHERE t.claim_id IS NOT NULL AND (c.state IS DISTINCT FROM 'CONFIRMED' OR i.claim_id IS NULL)",
    ),
    settled(
        5,
        "no order was refused its tickets",
        "SELECT format('claim %s is %s', claim_id, state) FROM ticketing.issuance WHERE state IN ('PENDING', 'REFUSED')",
    ),
    // 6. No notification vanishes.
    settled(
        6,
        "every order is confirmed by one mail",
        "SELECT format('claim %s', c.claim_id) FROM claim.claim c
         LEFT JOIN notification.job j ON j.template = 'ORDER_CONFIRMATION' AND j.subject_key = c.claim_id::text
         WHERE c.state = 'CONFIRMED' AND j.job_id IS NULL",
    ),
    settled(
        6,
        "every refund is told by one mail",
        "SELECT format('payment %s', p.payment_id) FROM payment.payment p
         LEFT JOIN notification.job j ON j.template = 'REFUND' AND j.subject_key = p.payment_id::text
         WHERE p.state = 'REFUNDED' AND j.job_id IS NULL",
    ),
    always(
        6,
        "every job has a delivery",
        "SELECT format('job %s', j.job_id) FROM notification.job j LEFT JOIN notification.delivery d USING (job_id)
         WHERE d.delivery_id IS NULL",
    ),
    settled(
        6,
        "every delivery has ended, in the mailbox or in the dead letters",
        "SELECT format('delivery %s is %s after %s attempts', delivery_id, state, attempt_count)
         FROM notification.delivery WHERE state IN ('QUEUED', 'SENDING')",
    ),
];

/// What holds for the events of every schema. `SCHEMA` stands for its name.
const EVENT_RULES: &[Rule] = &[
    settled(
        6,
        "every event was handled by all its listeners",
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

/// The rules of [`EVENT_RULES`] for one schema, with their questions.
pub(super) fn event_rules(schema: &str) -> impl Iterator<Item = (Rule, String)> {
    EVENT_RULES.iter().map(move |rule| (*rule, rule.sql.replace("SCHEMA", schema)))
}
