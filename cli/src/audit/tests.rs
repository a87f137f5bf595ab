//! Every rule about money and units holds for a good order, and says so when the books are wrong.

use onsale_testkit::stack;
use tokio_postgres::{Client, NoTls};

use super::questions;

/// One order of one unit of two, served, with its mail. Ids are written by their last digit.
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

/// What somebody did to the books of a WINDOWED queue, and the rule that it breaks.
const WINDOWED_WRONGS: &[(&str, &str)] = &[
    (
        "UPDATE queue.line SET waiting_count = 0",
        "a window knows how many wait for it, and how many of its tickets bought something",
    ),
    (
        "UPDATE queue.line SET last_fencing_number = 1",
        "a window knows how many wait for it, and how many of its tickets bought something",
    ),
    (
        "UPDATE queue.line SET completed_count = 0",
        "a window knows how many wait for it, and how many of its tickets bought something",
    ),
    ("UPDATE queue.used_ticket SET seq = 3", "only tickets whose number had come were used"),
    ("UPDATE queue.used_ticket SET seq = 2", "a ticket was used for a claim that was made with it"),
    ("DELETE FROM queue.used_ticket", "the ticket of an order is used"),
    (
        "UPDATE claim.claim SET fencing_number = 3",
        "a claim in a WINDOWED queue was made with a ticket whose number had come",
    ),
];

/// What somebody did to the books, and the rule that it breaks.
const WRONGS: &[(&str, &str)] = &[
    (
        "UPDATE claim.allowance SET units_taken = 2",
        "a customer has the units that are counted, and no more of an event than it allows",
    ),
    (
        "UPDATE claim.allowance SET units_max = 9",
        "a customer has the units that are counted, and no more of an event than it allows",
    ),
    ("UPDATE inventory.hold SET units = '{2}'", "a hold that stands has the units it names, and no others"),
    (
        "UPDATE inventory.event SET state = 'SOLD_OUT'",
        "an event is sold out when all its units are sold or kept; then nothing is free, and only invitees hold",
    ),
    (
        "UPDATE inventory.sector_sale SET taken_count = 2, sold_count = 2",
        "an event is sold out when all its units are sold or kept; then nothing is free, and only invitees hold",
    ),
    (
        "UPDATE inventory.sector_sale SET taken_count = 2",
        "a sector counts what is taken of it, and what of that is kept and sold",
    ),
    ("UPDATE queue.queue SET is_sold_out = true", "no queue is closed as sold out while units are for sale"),
    (
        "UPDATE payment.payment SET settled_at = NULL, step = 'SETTLE', step_at = now()",
        "no money waits to be settled",
    ),
    (
        "UPDATE payment.payment SET state = 'REFUNDED'",
        "a payment is REFUNDED when its refund is made, and only then",
    ),
    (
        "UPDATE payment.payment SET state = 'REFUNDED';
         UPDATE ticketing.ticket SET state = 'CHECKED_IN', check_in_time = now(), check_in_gate = '1' WHERE unit = 1",
        "nobody has both the money and the tickets",
    ),
    (
        "UPDATE payment.payment SET state = 'REFUNDED';
         INSERT INTO payment.refund (refund_id, payment_id, reason, state, completed_at)
             VALUES (#7, #5, 'CLAIM_REJECTED', 'COMPLETED', now())",
        "money that goes back as not served bought nothing",
    ),
    (
        "UPDATE payment.payment SET state = 'REFUNDED';
         INSERT INTO payment.refund (refund_id, payment_id, reason, state, completed_at)
             VALUES (#7, #5, 'GOODWILL', 'COMPLETED', now())",
        "every refund is told by one mail",
    ),
    (
        "INSERT INTO inventory.hold_unit (sector_id, unit, hold_id) VALUES (#6, 2, #4)",
        "an order has as many units as it paid for, and its hold has no others",
    ),
    ("UPDATE claim.claim_item SET units = '{2}'", "an order's units are sold to it"),
    (
        "UPDATE claim.claim SET state = 'CLAIMED', payment_id = NULL; UPDATE claim.claim_item SET units = '{2}'",
        "an open claim has its units held, and its hold has no others",
    ),
    (
        "UPDATE claim.claim SET state = 'CLAIMED', payment_id = NULL, created_at = now() - interval '2h',
             expires_at = now() - interval '1h'",
        "no claim outlives its time unpaid",
    ),
    ("UPDATE claim.claim SET state = 'RELEASED', release_reason = 'REJECTED'", "every payment is served or goes back"),
    ("DELETE FROM ticketing.ticket WHERE unit = 1", "every order has all its tickets"),
    ("UPDATE claim.claim SET total_minor = 6", "an order is paid, in full"),
    ("UPDATE claim.claim SET fencing_number = 2", "a claim was made in a turn of its customer"),
    ("DELETE FROM notification.delivery; DELETE FROM notification.job", "every order is confirmed by one mail"),
];

/// Another event of four units: a quota of three, of which an invitee bought one and another holds one. The rest is sold.
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

/// What is missing around that quota: its holds have no claims.
const QUOTA_LACKS: &[&str] = &["sold units belong to an order", "held units belong to an open claim"];

/// What somebody did to the books of a quota, and the rule that it breaks.
const QUOTA_WRONGS: &[(&str, &str)] = &[
    (
        "UPDATE inventory.quota SET state = 'RETURNED', invited_count = 0",
        "a taken unit has a hold that stands, or is kept by an open quota",
    ),
    (
        "UPDATE inventory.sector_sale SET kept_count = 0",
        "a sector counts what is taken of it, and what of that is kept and sold",
    ),
    (
        "UPDATE inventory.quota SET invited_count = 0",
        "a quota counts what is used and promised of it, and keeps all the rest until it is returned",
    ),
    (
        "DELETE FROM inventory.hold_unit WHERE unit = 3",
        "a quota counts what is used and promised of it, and keeps all the rest until it is returned",
    ),
    (
        "UPDATE inventory.invitation SET state = 'ACCEPTED' WHERE state = 'USED'",
        "an invitation has the hold of its customer, and is used when that is committed",
    ),
    (
        "UPDATE inventory.invitation SET hold_id = NULL WHERE state = 'ACCEPTED'",
        "an invitation has the hold of its customer, and is used when that is committed",
    ),
    (
        "UPDATE inventory.invitation SET customer_id = #9 WHERE state = 'ACCEPTED'",
        "an invitation has the hold of its customer, and is used when that is committed",
    ),
    ("UPDATE inventory.quota SET units = '{2,3,4}'", "who was invited has units of their quota"),
    ("UPDATE inventory.quota SET return_time = now() - interval '1s'", "no quota outlives its time"),
    (
        "UPDATE inventory.hold SET quota_id = NULL, invitation_id = NULL WHERE state = 'HELD'",
        "an event is sold out when all its units are sold or kept; then nothing is free, and only invitees hold",
    ),
    (
        "DELETE FROM notification.job WHERE template = 'QUOTA_INVITATION'",
        "every invitation is told by one mail",
    ),
];

/// What somebody did to the books of Claim, and the rule that it breaks.
const CLAIM_WRONGS: &[(&str, &str)] = &[
    (
        "UPDATE claim.claim_item SET unit_price_minor = 6",
        "a claim costs what its units cost, and has as many as it counts",
    ),
    (
        "UPDATE claim.claim_item SET units = '{1,2}', unit_price_minor = 2",
        "a claim costs what its units cost, and has as many as it counts",
    ),
    ("DELETE FROM claim.claim_transition", "a claim's history has no gap, and ends where the claim is"),
    ("UPDATE claim.claim_transition SET number = 3", "a claim's history has no gap, and ends where the claim is"),
    (
        "UPDATE claim.claim_transition SET state = 'RELEASED', release_reason = 'EXPIRED'",
        "a claim's history has no gap, and ends where the claim is",
    ),
    ("DELETE FROM claim.allowance", "a claim has an allowance and a hold, and no other has that hold"),
    ("DELETE FROM claim.hold_attempt", "a claim has an allowance and a hold, and no other has that hold"),
    (
        "INSERT INTO claim.claim SELECT (jsonb_populate_record(claim, '{\"claim_id\": \"00000000-0000-7000-8000-000000000008\",
             \"payment_id\": null, \"state\": \"CLAIMED\"}')).* FROM claim.claim",
        "a claim has an allowance and a hold, and no other has that hold",
    ),
    (
        "UPDATE claim.claim_item SET claim_id = #8",
        "what is claimed and every step of a history belong to a claim, each sector once",
    ),
    (
        "UPDATE claim.claim_transition SET claim_id = #8",
        "what is claimed and every step of a history belong to a claim, each sector once",
    ),
    (
        "INSERT INTO claim.claim_item SELECT claim_id, 2, sector_id, sector_name, unit_price_minor, group_count, '{2}',
             row_labels, seat_labels FROM claim.claim_item",
        "what is claimed and every step of a history belong to a claim, each sector once",
    ),
    (
        "UPDATE claim.hold_attempt SET state = 'RELEASED'",
        "a claim's hold is what the claim is: kept while it is open, sold with it, given back with it",
    ),
    (
        "UPDATE claim.claim SET state = 'CLAIMED', payment_id = NULL",
        "a claim's hold is what the claim is: kept while it is open, sold with it, given back with it",
    ),
    ("UPDATE claim.claim SET extended_at = created_at - interval '1s'", "a claim was extended while it ran"),
    ("UPDATE claim.claim SET extended_at = expires_at", "a claim was extended while it ran"),
    (
        "UPDATE claim.allowance SET abandoned_count = 1, abandoned_at = now()",
        "a customer let go of as many claims as are counted, at least",
    ),
    (
        "INSERT INTO claim.hold_attempt (hold_id, hold_key, attempt, fingerprint, state, attempted_at)
             VALUES (#8, #8, 1, #8, 'RESERVING', now() - interval '31s')",
        "an attempt that became no claim is given up",
    ),
    (
        "INSERT INTO claim.hold_attempt (hold_id, hold_key, attempt, fingerprint, state) VALUES (#8, #8, 1, #8, 'RELEASING')",
        "a hold that is to be given back is",
    ),
    (
        "UPDATE inventory.hold SET state = 'HELD', end_time = NULL",
        "Claim and Inventory say the same of a hold",
    ),
    ("DELETE FROM inventory.hold", "Claim and Inventory say the same of a hold"),
    ("DELETE FROM claim.hold_attempt", "a hold was asked for by Claim"),
];

fn with_ids(sql: &str) -> String {
    (1..=9).fold(sql.to_owned(), |sql, digit| {
        let sql = sql.replace(&format!("#{digit}"), &format!("'00000000-0000-7000-8000-00000000000{digit}'"));
        sql.replace(&format!("@{digit}"), &format!("'10000000-0000-7000-8000-00000000000{digit}'"))
    })
}

async fn broken(client: &Client) -> Vec<&'static str> {
    let mut broken = Vec::new();
    for (rule, sql) in questions() {
        if !client
            .query(&sql, &[])
            .await
            .unwrap_or_else(|error| panic!("{}: {error:?}", rule.says))
            .is_empty()
        {
            broken.push(rule.says);
        }
    }
    broken
}

/// Nothing is wrong as it is but what it `lacks`, and each of the wrongs is found.
async fn assert_found(client: &Client, wrongs: &[(&str, &str)], lacks: &[&str]) {
    assert_eq!(broken(client).await, lacks);
    for (wrong, rule) in wrongs {
        client.batch_execute(&format!("BEGIN; {}", with_ids(wrong))).await.unwrap();
        let broken = broken(client).await;
        assert!(broken.contains(rule), "{wrong}: {broken:?}");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

#[tokio::test]
async fn rules_hold_for_a_good_order_and_find_what_is_wrong_with_a_bad_one() {
    let database = stack::database().await.unwrap();
    let (client, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    let audit = async {
        // Wrongs that keys between tables would refuse, too.
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
