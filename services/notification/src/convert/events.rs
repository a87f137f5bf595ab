//! Events of other services. Notification publishes none.

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::{
    events::v1::{
        GeneratedTicket, GenerationCompleted, OrderCompleted, PaymentRefunded, QuotaInvitation,
        TicketGenerated,
    },
    notification::v1::{DeliveredTicket, QuotaInvitationContent, RefundContent},
};
use onsale_types::{ClaimId, CustomerId, EventId, OrganizerId, PaymentId};
use uuid::Uuid;

use super::requests::Reader;
use crate::domain::{
    job::{Expiry, NewJob},
    language::Language,
    order::{IssuedTickets, Order},
};

/// Converts a completed order. `default` is the language of a buyer whose own is not supported.
pub(crate) fn order_completed(
    event: OrderCompleted,
    default: Language,
) -> Result<(ClaimId, Order), InvalidFields> {
    let mut violations = Violations::new();
    let mut reader = Reader::new(&mut violations);
    let claim_id = reader.check("claim_id", ClaimId::parse(&event.claim_id));
    let customer_id = reader.check("customer_id", CustomerId::parse(&event.customer_id));
    let language = Language::from_tag(&event.buyer_locale, default);
    let fields = ["customer_id", "buyer_email"];
    let recipient = reader.recipient(fields, &event.customer_id, &event.buyer_email, language);
    let summary = reader.event(event.event);
    let items = reader.items(event.items);
    let total = reader.money("total", event.total);
    violations.build(|| {
        let order = Order {
            customer_id: customer_id?,
            recipient: recipient?,
            event: summary?,
            items: items?,
            total: total?,
        };
        Some((claim_id?, order))
    })
}

/// Converts the tickets that one holder was issued or that were passed on to them.
pub(crate) fn ticket_generated(
    event: TicketGenerated,
    default: Language,
) -> Result<(ClaimId, IssuedTickets), InvalidFields> {
    let mut violations = Violations::new();
    let mut reader = Reader::new(&mut violations);
    let claim_id = reader.check("claim_id", ClaimId::parse(&event.claim_id));
    let language = Language::from_tag(&event.recipient_locale, default);
    let fields = ["customer_id", "recipient_email"];
    let recipient = reader.recipient(fields, &event.customer_id, &event.recipient_email, language);
    let summary = reader.event(event.event);
    let tickets = reader.tickets(event.tickets.into_iter().map(delivered_ticket).collect());
    let issue_time = reader.time("issue_time", event.issue_time);
    violations.build(|| {
        let issued = IssuedTickets {
            recipient: recipient?,
            event: summary?,
            tickets: tickets?,
            issue_time: issue_time?,
        };
        Some((claim_id?, issued))
    })
}

/// Converts between the two messages, so that both are read by the same [`Reader`].
fn delivered_ticket(ticket: GeneratedTicket) -> DeliveredTicket {
    DeliveredTicket {
        ticket_id: ticket.ticket_id,
        sector_name: ticket.sector_name,
        unit: ticket.unit,
        code: ticket.code,
    }
}

/// Returns the job of a refund mail, one per payment.
pub(crate) fn payment_refunded(event: PaymentRefunded, default: Language) -> Result<NewJob, InvalidFields> {
    let mut violations = Violations::new();
    let mut reader = Reader::new(&mut violations);
    let payment_id = reader.check("payment_id", PaymentId::parse(&event.payment_id));
    let language = Language::from_tag(&event.buyer_locale, default);
    let fields = ["customer_id", "buyer_email"];
    let recipient = reader.recipient(fields, &event.customer_id, &event.buyer_email, language);
    let PaymentRefunded { event, claim_id, amount, .. } = event;
    let content = reader.refund(RefundContent { event, claim_id, amount });
    violations.build(|| Some(NewJob::for_subject(payment_id?, recipient?, content?, Expiry::Never)))
}

/// Returns the job of an invitation mail, which is skipped after the invitation has expired.
pub(crate) fn quota_invitation(event: QuotaInvitation, default: Language) -> Result<NewJob, InvalidFields> {
    let mut violations = Violations::new();
    let mut reader = Reader::new(&mut violations);
    let invitation_id = Uuid::try_parse(&event.invitation_id).map_err(|_| "is not a UUID");
    let invitation_id = reader.check("invitation_id", invitation_id);
    let language = Language::from_tag(&event.locale, default);
    let recipient = reader.recipient(["customer_id", "email"], "", &event.email, language);
    let expire_time = reader.time("expire_time", event.expire_time);
    let content = reader.quota_invitation(QuotaInvitationContent {
        event: event.event,
        quota_name: event.quota_name,
        sector_name: event.sector_name,
        unit_count: event.unit_count,
        accept_url: event.accept_url,
        expire_time: event.expire_time,
    });
    violations
        .build(|| Some(NewJob::for_subject(invitation_id?, recipient?, content?, Expiry::At(expire_time?))))
}

/// Returns the event and its organizer.
pub(crate) fn generation_completed(
    event: &GenerationCompleted,
) -> Result<(EventId, OrganizerId), InvalidFields> {
    let mut violations = Violations::new();
    let event_id = event.event.as_ref().map(|it| it.event_id.as_str()).unwrap_or_default();
    let event_id = violations.check("event.event_id", EventId::parse(event_id));
    let organizer_id = violations.check("organizer_id", OrganizerId::parse(&event.organizer_id));
    violations.build(|| Some((event_id?, organizer_id?)))
}
