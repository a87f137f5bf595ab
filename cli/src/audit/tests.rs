//! Every rule about money and units passes for a valid order and reports damaged data.

use onsale_testkit::stack;
use tokio_postgres::{Client, NoTls};

use super::queries;

/// One order of one unit of two, with its ticket and its mail. `#N` is the UUID that ends with that digit.
const GOOD_ORDER: &str = "
    INSERT INTO inventory.event (event_id, organizer_id, state, name, description, venue_name, venue_address, time_zone,
            start_time, currency_code, units_per_customer_max, capacity, activate_time)
        VALUES (#1, #9, 'ON_SALE', 'Derby', '', 'Arena', '', 'Europe/Zagreb', now(), 'EUR', 2, 2, now());
    INSERT INTO inventory.sector (sector_id, event_id, place, name, price_minor, capacity) VALUES (#6, #1, 0, 'A', 5, 2);
    INSERT INTO inventory.sector_sale (sector_id, event_id, capacity, taken_count, sold_count) VALUES (#6, #1, 2, 1, 1);
    INSERT INTO inventory.hold (hold_id, event_id, customer_id, state, unit_sectors, units, expire_time, end_time)
        VALUES (#4, #1, #2, 'COMMITTED', ARRAY[#6]::uuid[], '{1}', now() + interval '1h', now());
    INSERT INTO inventory.hold_unit (sector_id, unit, hold_id) VALUES (#6, 1, #4);
    INSERT INTO queue.queue (event_id, organizer_id, is_active, state) VALUES (#1, #9, true, 'OPEN');
    INSERT INTO queue.line (event_id, last_seq, last_admitted_seq, last_fencing_number) VALUES (#1, 1, 1, 1);
    INSERT INTO queue.entry (entry_id, event_id, customer_id, seq, state, revision, join_time, display_name, avatar_url,
            request_id, fingerprint, fencing_number, grant_time, expire_time, end_time, claim_id)
        VALUES (#7, #1, #2, 1, 'COMPLETED', 1, now(), '', '', #7, #7, 1, now(), now() + interval '1h', now(), #3);
    INSERT INTO claim.allowance (event_id, customer_id, units_max, units_taken) VALUES (#1, #2, 2, 1);
    INSERT INTO claim.hold_attempt (hold_id, hold_key, attempt, fingerprint, claim_id, state)
        VALUES (#4, #7, 1, #7, #3, 'COMMITTED');
    INSERT INTO claim.claim (claim_id, event_id, customer_id, hold_id, fencing_number, state, payment_id, unit_count,
            total_minor, currency_code, buyer_email, buyer_locale, event_name, venue_name, venue_address, time_zone,
            start_at, created_at, expires_at)
        VALUES (#3, #1, #2, #4, 1, 'CONFIRMED', #5, 1, 5, 'EUR', 'a@b.test', '', '', '', '', '', now(), now(),
            now() + interval '1h');
    INSERT INTO claim.claim_item (claim_id, place, sector_id, sector_name, unit_price_minor, group_count, units,
            row_labels, seat_labels)
        VALUES (#3, 1, #6, 'A', 5, 0, '{1}', '{}', '{}');
    INSERT INTO claim.claim_transition (claim_id, number, state, transitioned_at)
        VALUES (#3, 2, 'CONFIRMED', now());
    INSERT INTO payment.payment (payment_id, claim_id, event_id, customer_id, amount_minor, currency_code, provider,
            state, return_url, cancel_url, expires_at, charge, confirmed_at, settled_at)
        VALUES (#5, #3, #1, #2, 5, 'EUR', 'SANDBOX', 'CONFIRMED', '', '', now(), 'pi', now(), now());
    INSERT INTO ticketing.ticket (sector_id, unit, ticket_id, state, claim_id, customer_id, code, issue_time)
        VALUES (#6, 1, #7, 'ISSUED', #3, #2, 'code', now()), (#6, 2, #8, 'GENERATED', NULL, NULL, NULL, NULL);
    INSERT INTO notification.job (job_id, template, subject_key, event_id, email, locale, content)
        VALUES (#7, 'ORDER_CONFIRMATION', #3, #1, 'a@b.test', 'en', '{}');
    INSERT INTO notification.delivery (delivery_id, job_id, channel, state, due_at, ended_at)
        VALUES (#7, #7, 'EMAIL', 'DELIVERED', NULL, now());";

/// The same order in a WINDOWED queue, where the third ticket waits.
const WINDOWED: &str = "
    UPDATE queue.queue SET mode = 'WINDOWED';
    DELETE FROM queue.entry;
    UPDATE queue.line SET last_seq = 3, last_admitted_seq = 2, last_fencing_number = 2, waiting_count = 1, completed_count = 1;
    INSERT INTO queue.used_ticket (event_id, seq, customer_id, claim_id, use_time) VALUES (#1, 1, #2, #3, now());";

/// Statements that damage the data of a WINDOWED queue, each with the rule that it violates.
const WINDOWED_WRONGS: &[(&str, &str)] = &[
    (
        "UPDATE queue.line SET waiting_count = 0",
        "the counts of a WINDOWED line match its numbers and used tickets, and it has no entries",
    ),
    (
        "UPDATE queue.line SET last_fencing_number = 1",
        "the counts of a WINDOWED line match its numbers and used tickets, and it has no entries",
    ),
    (
        "UPDATE queue.line SET completed_count = 0",
        "the counts of a WINDOWED line match its numbers and used tickets, and it has no entries",
    ),
    ("UPDATE queue.used_ticket SET seq = 3", "every used ticket was admitted"),
    ("UPDATE queue.used_ticket SET seq = 2", "every used ticket belongs to the claim that was made with it"),
    ("DELETE FROM queue.used_ticket", "the ticket of every order in a WINDOWED queue is used"),
    (
        "UPDATE claim.claim SET fencing_number = 3",
        "every claim in a WINDOWED queue was made with an admitted ticket",
    ),
];

/// Statements that damage the data of the order, each with the rule that it violates.
const WRONGS: &[(&str, &str)] = &[
    (
        "UPDATE claim.allowance SET units_taken = 2",
        "a customer's unit count matches their claims, and their limit is the event's and is not exceeded",
    ),
    (
        "UPDATE claim.allowance SET units_max = 9",
        "a customer's unit count matches their claims, and their limit is the event's and is not exceeded",
    ),
    ("UPDATE inventory.hold SET units = '{2}'", "an active hold has taken exactly the units that it names"),
    (
        "UPDATE inventory.event SET state = 'SOLD_OUT'",
        "an event is SOLD_OUT if all its units are sold or kept, and a SOLD_OUT event has no unit free or held by the public",
    ),
    (
        "UPDATE inventory.sector_sale SET taken_count = 2, sold_count = 2",
        "an event is SOLD_OUT if all its units are sold or kept, and a SOLD_OUT event has no unit free or held by the public",
    ),
    (
        "UPDATE inventory.sector_sale SET taken_count = 2",
        "a sector's counts of taken, kept and sold units match its rows",
    ),
    ("UPDATE queue.queue SET is_sold_out = true", "no queue is closed as sold out while its event is ON_SALE"),
    (
        "UPDATE payment.payment SET settled_at = NULL, step = 'SETTLE', step_at = now()",
        "no payment waits for its settlement or refund",
    ),
    (
        "UPDATE payment.payment SET state = 'REFUNDED'",
        "a payment is REFUNDED if and only if its refund is COMPLETED",
    ),
    (
        "UPDATE payment.payment SET state = 'REFUNDED';
         UPDATE ticketing.ticket SET state = 'CHECKED_IN', check_in_time = now(), check_in_gate = '1' WHERE unit = 1",
        "no claim with a refunded payment has valid tickets",
    ),
    (
        "UPDATE payment.payment SET state = 'REFUNDED';
         INSERT INTO payment.refund (refund_id, payment_id, reason, state, completed_at)
             VALUES (#7, #5, 'CLAIM_REJECTED', 'COMPLETED', now())",
        "no confirmed claim is paid by a payment that is refunded as rejected or duplicate",
    ),
    (
        "UPDATE payment.payment SET state = 'REFUNDED';
         INSERT INTO payment.refund (refund_id, payment_id, reason, state, completed_at)
             VALUES (#7, #5, 'GOODWILL', 'COMPLETED', now())",
        "every refund has a notification job for its mail",
    ),
    (
        "INSERT INTO inventory.hold_unit (sector_id, unit, hold_id) VALUES (#6, 2, #4)",
        "an order and its hold have exactly as many units as were paid for",
    ),
    ("UPDATE claim.claim_item SET units = '{2}'", "every unit of an order is sold to it"),
    (
        "UPDATE claim.claim SET state = 'CLAIMED', payment_id = NULL; UPDATE claim.claim_item SET units = '{2}'",
        "an open claim's hold has exactly the units of the claim",
    ),
    (
        "UPDATE claim.claim SET state = 'CLAIMED', payment_id = NULL, created_at = now() - interval '2h',
             expires_at = now() - interval '1h'",
        "no unpaid claim stays open after its expiry",
    ),
    ("UPDATE claim.claim SET state = 'RELEASED', release_reason = 'REJECTED'", "every CONFIRMED payment paid for a CONFIRMED claim"),
    ("DELETE FROM ticketing.ticket WHERE unit = 1", "every order that is not refunded has all its tickets"),
    ("UPDATE claim.claim SET total_minor = 6", "every order is paid in full"),
    ("UPDATE claim.claim SET fencing_number = 2", "every claim was made with a turn of its customer"),
    ("DELETE FROM notification.delivery; DELETE FROM notification.job", "every order has a notification job for its confirmation mail"),
];

/// Another event of four units: a quota of three, of which one invitee bought one and another holds one. The fourth unit is
/// sold. `@N` is another UUID that ends with that digit.
const QUOTA: &str = "
    INSERT INTO inventory.event (event_id, organizer_id, state, name, description, venue_name, venue_address, time_zone,
            start_time, currency_code, units_per_customer_max, capacity, activate_time)
        VALUES (@1, #9, 'SOLD_OUT', 'Final', '', 'Arena', '', 'Europe/Zagreb', now(), 'EUR', 2, 4, now());
    INSERT INTO inventory.sector (sector_id, event_id, place, name, price_minor, capacity) VALUES (@2, @1, 0, 'A', 5, 4);
    INSERT INTO inventory.sector_sale (sector_id, event_id, capacity, taken_count, kept_count, sold_count)
        VALUES (@2, @1, 4, 4, 1, 2);
    INSERT INTO inventory.quota (quota_id, event_id, sector_id, name, units, invited_count, used_count, state, return_time)
        VALUES (@3, @1, @2, 'Fans', '{1,2,3}', 1, 2, 'OPEN', now() + interval '1h');
    INSERT INTO inventory.invitation (invitation_id, quota_id, email, unit_count, state, customer_id, accept_time, hold_id)
        VALUES (@4, @3, 'a@b.test', 2, 'USED', #2, now(), @6), (@5, @3, 'c@d.test', 2, 'ACCEPTED', #3, now(), @7);
    INSERT INTO inventory.hold (hold_id, event_id, customer_id, state, unit_sectors, units, expire_time, end_time,
            quota_id, invitation_id)
        VALUES (@6, @1, #2, 'COMMITTED', ARRAY[@2]::uuid[], '{1}', now() + interval '1h', now(), @3, @4),
            (@7, @1, #3, 'HELD', ARRAY[@2]::uuid[], '{2}', now() + interval '1h', NULL, @3, @5),
            (@8, @1, #4, 'COMMITTED', ARRAY[@2]::uuid[], '{4}', now() + interval '1h', now(), NULL, NULL);
    INSERT INTO inventory.hold_unit (sector_id, unit, hold_id)
        VALUES (@2, 1, @6), (@2, 2, @7), (@2, 3, @3), (@2, 4, @8);
    INSERT INTO claim.hold_attempt (hold_id, hold_key, attempt, fingerprint, claim_id, state)
        VALUES (@6, @6, 1, @6, @6, 'COMMITTED'), (@7, @7, 1, @7, @7, 'HELD'), (@8, @8, 1, @8, @8, 'COMMITTED');
    INSERT INTO ticketing.ticket (sector_id, unit, ticket_id, state)
        VALUES (@2, 1, @1, 'GENERATED'), (@2, 2, @2, 'GENERATED'), (@2, 3, @3, 'GENERATED'), (@2, 4, @4, 'GENERATED');
    INSERT INTO notification.job (job_id, template, subject_key, event_id, email, locale, content)
        SELECT invitation_id, 'QUOTA_INVITATION', invitation_id::text, @1, email, 'en', '{}' FROM inventory.invitation;
    INSERT INTO notification.delivery (delivery_id, job_id, channel, state, due_at, ended_at)
        SELECT job_id, job_id, 'EMAIL', 'DELIVERED', NULL, now() FROM notification.job WHERE event_id = @1;";

/// Rules that [`QUOTA`] itself violates: its holds have no claims.
const QUOTA_LACKS: &[&str] = &[
    "every hold in state COMMITTED belongs to an order",
    "every hold in state HELD belongs to an open claim",
];

/// Statements that damage the data of the quota, each with the rule that it violates.
const QUOTA_WRONGS: &[(&str, &str)] = &[
    (
        "UPDATE inventory.quota SET state = 'RETURNED', invited_count = 0",
        "every taken unit belongs to an active hold or an open quota",
    ),
    (
        "UPDATE inventory.sector_sale SET kept_count = 0",
        "a sector's counts of taken, kept and sold units match its rows",
    ),
    (
        "UPDATE inventory.quota SET invited_count = 0",
        "a quota's counts of used and invited units match its rows, and only an open quota keeps the rest",
    ),
    (
        "DELETE FROM inventory.hold_unit WHERE unit = 3",
        "a quota's counts of used and invited units match its rows, and only an open quota keeps the rest",
    ),
    (
        "UPDATE inventory.invitation SET state = 'ACCEPTED' WHERE state = 'USED'",
        "an invitation and its hold have the same customer, and it is USED if and only if the hold is COMMITTED",
    ),
    (
        "UPDATE inventory.invitation SET hold_id = NULL WHERE state = 'ACCEPTED'",
        "an invitation and its hold have the same customer, and it is USED if and only if the hold is COMMITTED",
    ),
    (
        "UPDATE inventory.invitation SET customer_id = #9 WHERE state = 'ACCEPTED'",
        "an invitation and its hold have the same customer, and it is USED if and only if the hold is COMMITTED",
    ),
    ("UPDATE inventory.quota SET units = '{2,3,4}'", "every hold of an invitee has only units of the quota"),
    (
        "UPDATE inventory.quota SET return_time = now() - interval '1s'",
        "no quota stays open after its return time",
    ),
    (
        "UPDATE inventory.hold SET quota_id = NULL, invitation_id = NULL WHERE state = 'HELD'",
        "an event is SOLD_OUT if all its units are sold or kept, and a SOLD_OUT event has no unit free or held by the public",
    ),
    (
        "DELETE FROM notification.job WHERE template = 'QUOTA_INVITATION'",
        "every invitation has a notification job for its mail",
    ),
];

/// Statements that damage the data of Claim, each with the rule that it violates.
const CLAIM_WRONGS: &[(&str, &str)] = &[
    (
        "UPDATE claim.claim_item SET unit_price_minor = 6",
        "a claim's total and unit count match its items",
    ),
    (
        "UPDATE claim.claim_item SET units = '{1,2}', unit_price_minor = 2",
        "a claim's total and unit count match its items",
    ),
    ("DELETE FROM claim.claim_transition", "a claim's history has no gap and ends in the claim's state"),
    ("UPDATE claim.claim_transition SET number = 3", "a claim's history has no gap and ends in the claim's state"),
    (
        "UPDATE claim.claim_transition SET state = 'RELEASED', release_reason = 'EXPIRED'",
        "a claim's history has no gap and ends in the claim's state",
    ),
    ("DELETE FROM claim.allowance", "every claim has an allowance and a hold of its own"),
    ("DELETE FROM claim.hold_attempt", "every claim has an allowance and a hold of its own"),
    (
        "INSERT INTO claim.claim SELECT (jsonb_populate_record(claim, '{\"claim_id\": \"00000000-0000-7000-8000-000000000008\",
             \"payment_id\": null, \"state\": \"CLAIMED\"}')).* FROM claim.claim",
        "every claim has an allowance and a hold of its own",
    ),
    (
        "UPDATE claim.claim_item SET claim_id = #8",
        "every item and transition belongs to a claim, and no claim has two items of one sector",
    ),
    (
        "UPDATE claim.claim_transition SET claim_id = #8",
        "every item and transition belongs to a claim, and no claim has two items of one sector",
    ),
    (
        "INSERT INTO claim.claim_item SELECT claim_id, 2, sector_id, sector_name, unit_price_minor, group_count, '{2}',
             row_labels, seat_labels FROM claim.claim_item",
        "every item and transition belongs to a claim, and no claim has two items of one sector",
    ),
    (
        "UPDATE claim.hold_attempt SET state = 'RELEASED'",
        "a claim's hold names the claim and is in the state that matches the claim's",
    ),
    (
        "UPDATE claim.claim SET state = 'CLAIMED', payment_id = NULL",
        "a claim's hold names the claim and is in the state that matches the claim's",
    ),
    ("UPDATE claim.claim SET extended_at = created_at - interval '1s'", "every extension of a claim was made between its creation and its expiry"),
    ("UPDATE claim.claim SET extended_at = expires_at", "every extension of a claim was made between its creation and its expiry"),
    (
        "UPDATE claim.allowance SET abandoned_count = 1, abandoned_at = now()",
        "a customer's count of abandoned claims is at most that of their released claims",
    ),
    (
        "INSERT INTO claim.hold_attempt (hold_id, hold_key, attempt, fingerprint, state, attempted_at)
             VALUES (#8, #8, 1, #8, 'RESERVING', now() - interval '31s')",
        "no attempt to obtain a hold is older than 30 s",
    ),
    (
        "INSERT INTO claim.hold_attempt (hold_id, hold_key, attempt, fingerprint, state) VALUES (#8, #8, 1, #8, 'RELEASING')",
        "no hold waits for its release",
    ),
    (
        "UPDATE inventory.hold SET state = 'HELD', end_time = NULL",
        "Claim and Inventory agree on the state of every hold",
    ),
    ("DELETE FROM inventory.hold", "Claim and Inventory agree on the state of every hold"),
    ("DELETE FROM claim.hold_attempt", "every active hold was requested by Claim"),
];

fn with_ids(sql: &str) -> String {
    (1..=9).fold(sql.to_owned(), |sql, digit| {
        let sql = sql.replace(&format!("#{digit}"), &format!("'00000000-0000-7000-8000-00000000000{digit}'"));
        sql.replace(&format!("@{digit}"), &format!("'10000000-0000-7000-8000-00000000000{digit}'"))
    })
}

async fn violated(client: &Client) -> Vec<&'static str> {
    let mut violated = Vec::new();
    for (rule, sql) in queries() {
        if !client
            .query(&sql, &[])
            .await
            .unwrap_or_else(|error| panic!("{}: {error:?}", rule.statement))
            .is_empty()
        {
            violated.push(rule.statement);
        }
    }
    violated
}

/// Asserts that only the rules in `lacks` are violated at first, and that each of `wrongs` violates its rule.
async fn assert_found(client: &Client, wrongs: &[(&str, &str)], lacks: &[&str]) {
    assert_eq!(violated(client).await, lacks);
    for (wrong, rule) in wrongs {
        client.batch_execute(&format!("BEGIN; {}", with_ids(wrong))).await.unwrap();
        let violated = violated(client).await;
        assert!(violated.contains(rule), "{wrong}: {violated:?}");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

#[tokio::test]
async fn valid_data_violates_no_rule_and_damaged_data_violates_its_rule() {
    let database = stack::database().await.unwrap();
    let (client, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    let audit = async {
        // Without foreign keys, which would refuse some of the damage.
        client.batch_execute("SET session_replication_role = replica").await.unwrap();
        client.batch_execute(&with_ids(GOOD_ORDER)).await.unwrap();
        assert_found(&client, WRONGS, &[]).await;
        assert_found(&client, CLAIM_WRONGS, &[]).await;
        client.batch_execute(&with_ids(WINDOWED)).await.unwrap();
        assert_found(&client, WINDOWED_WRONGS, &[]).await;
        client.batch_execute(&with_ids(QUOTA)).await.unwrap();
        assert_found(&client, QUOTA_WRONGS, QUOTA_LACKS).await;
    };
    tokio::select! {
        () = audit => {}
        lost = connection => panic!("the connection ended: {lost:?}"),
    }
}
