//! One confirmation mail per order, with items and tickets, in any order of the events and with repeats.

use onsale_testkit::wait_until;

use crate::support::{BUYER, WAIT_MAX, World, id, order, seconds};

#[tokio::test]
async fn confirmation_contains_the_order_and_its_tickets() {
    let world = World::new().await;
    let (order, tickets) = order("Ljetni koncert");
    world.publish(&order).await;
    world.publish(&tickets).await;
    let mail = world.only_mail(BUYER).await;
    assert_eq!(mail.subject, "Your tickets for Ljetni koncert");
    assert_eq!(mail.from, "tickets@onsale.localhost");
    let (text, html) = (mail.text.unwrap(), mail.html.unwrap());
    for part in [
        "Ljetni koncert",
        "Monday, 6 July 2026, 20:00",
        "Arena Zagreb, Lanište 1",
        "row A, seat 7; row A, seat 8",
        "2 × €49.90 = €99.80",
        "https://tickets.example.com",
        order.claim_id.as_str(),
        tickets.tickets[0].code.as_str(),
        tickets.tickets[1].code.as_str(),
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
        assert!(html.contains(part), "{part} in\n{html}");
    }
    assert!(text.contains("Total: €99.80"));
    assert_eq!(mail.pictures.len(), 2, "one picture per ticket");
    for picture in &mail.pictures {
        assert_eq!(picture.media_type, "image/png");
        assert!(picture.content.starts_with("iVBORw0KGgo"), "a whole PNG");
        assert!(html.contains(&format!("\"cid:{}\"", picture.content_id)), "{html}");
    }
    assert_eq!(world.count("SELECT count(*) FROM waiting_order").await, 0);
}

#[tokio::test]
async fn tickets_before_the_order_and_repeats_make_one_mail() {
    let world = World::new().await;
    let (mut order, tickets) = order("Koncert");
    order.buyer_locale = "hr".to_owned();
    world.publish(&tickets).await;
    world.publish(&tickets).await;
    wait_until("the tickets wait", WAIT_MAX, async || {
        world.count("SELECT count(*) FROM waiting_order WHERE jsonb_array_length(tickets) = 1").await == 1
    })
    .await;
    world.publish(&order).await;
    let mail = world.only_mail(BUYER).await;
    assert_eq!(mail.subject, "Vaše ulaznice: Koncert");
    assert!(mail.text.unwrap().contains("Ukupno: 99,80\u{a0}€"));
    world.publish(&order).await;
    world.publish(&tickets).await;
    world.only_mail(BUYER).await;
    assert_eq!(world.count("SELECT count(*) FROM job").await, 1);
    assert_eq!(world.count("SELECT count(*) FROM waiting_order").await, 0);
}

#[tokio::test]
async fn concurrent_orders_get_one_mail_each() {
    let world = World::new().await;
    let orders: Vec<_> = (0..20).map(|number| order(&format!("Event {number}"))).collect();
    for (index, (order, tickets)) in orders.iter().enumerate() {
        if index % 2 == 0 {
            world.publish(order).await;
            world.publish(tickets).await;
        } else {
            world.publish(tickets).await;
            world.publish(order).await;
        }
    }
    wait_until("every order is confirmed", WAIT_MAX, async || world.mails(BUYER).await.len() >= orders.len())
        .await;
    world.wait_until_idle().await;
    let mut subjects: Vec<_> = world.mails(BUYER).await.into_iter().map(|mail| mail.subject).collect();
    subjects.sort();
    subjects.dedup();
    assert_eq!(subjects.len(), orders.len());
    assert_eq!(world.mails(BUYER).await.len(), orders.len());
}

#[tokio::test]
async fn passed_on_ticket_is_mailed_to_its_new_holder() {
    let world = World::new().await;
    let (order, tickets) = order("Koncert");
    world.publish(&order).await;
    world.publish(&tickets).await;
    let mut passed_on = tickets.clone();
    passed_on.tickets.truncate(1);
    passed_on.customer_id = String::new();
    passed_on.recipient_email = "iva@example.com".to_owned();
    passed_on.recipient_locale = "hr".to_owned();
    passed_on.issue_time = Some(seconds(3));
    world.publish(&passed_on).await;
    world.publish(&passed_on).await;
    let mail = world.only_mail("iva@example.com").await;
    assert_eq!(mail.subject, "Vaša ulaznica: Koncert");
    let text = mail.text.unwrap();
    assert!(text.contains(&tickets.tickets[0].code) && !text.contains(&tickets.tickets[1].code), "{text}");
    world.only_mail(BUYER).await;
}

#[tokio::test]
async fn invalid_event_goes_to_the_dead_letters_without_a_mail() {
    let world = World::new().await;
    let (mut order, tickets) = order("Koncert");
    order.buyer_email = "ana@example.com\r\nBcc: iva@example.com".to_owned();
    world.publish(&order).await;
    world.publish(&tickets).await;
    wait_until("the event is a dead letter", WAIT_MAX, async || !world.dead_event_errors().await.is_empty())
        .await;
    world.wait_until_idle().await;
    assert!(world.dead_event_errors().await[0].contains("buyer_email"));
    assert_eq!(world.count("SELECT count(*) FROM job").await, 0);
}

#[tokio::test]
async fn hostile_names_add_no_markup_and_no_header() {
    let world = World::new().await;
    let name = "Evil\r\nBcc: iva@example.com\r\n\r\n<script>alert(1)</script> Žešće";
    let (mut order, mut tickets) = order(name);
    order.items[0].sector_name = "<img src=x onerror=alert(1)>".to_owned();
    tickets.tickets[0].sector_name = "\"><b>".to_owned();
    let id = id();
    tickets.tickets[0].code = format!("<i>{id}</i>");
    world.publish(&order).await;
    world.publish(&tickets).await;
    let mail = world.only_mail(BUYER).await;
    assert_eq!(mail.to, [BUYER]);
    assert!(world.mails("iva@example.com").await.is_empty());
    assert!(mail.headers.iter().all(|header| !header.name.eq_ignore_ascii_case("bcc")), "{:?}", mail.headers);
    assert_eq!(mail.subject, "Your tickets for Evil Bcc: iva@example.com <script>alert(1)</script> Žešće");
    let html = mail.html.unwrap();
    for markup in ["<script", "<img src=x", "<b>", "<i>"] {
        assert!(!html.contains(markup), "{markup} in\n{html}");
    }
}
