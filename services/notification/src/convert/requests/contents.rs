//! Contents of messages: one function per template.

use onsale_proto::notification::v1::{
    OrderConfirmationContent, QueueUpdateContent, QueueYourTurnContent, QuotaInvitationContent,
    RefundContent, ReminderContent, TicketDeliveryContent,
};
use onsale_types::ClaimId;

use super::Reader;
use crate::domain::content::Content;

const TICKETS_MAX: usize = 100;

impl Reader<'_> {
    pub(in crate::convert) fn order_confirmation(
        &mut self,
        content: OrderConfirmationContent,
    ) -> Option<Content> {
        let event = self.event(content.event);
        let claim_id = self.check("claim_id", ClaimId::parse(&content.claim_id));
        let items = self.items(content.items);
        let total = self.money("total", content.total);
        let (event, claim_id, items, total) = (event?, claim_id?, items?, total?);
        Some(Content::OrderConfirmation { event, claim_id, items, total, tickets: Vec::new() })
    }

    pub(in crate::convert) fn ticket_delivery(&mut self, content: TicketDeliveryContent) -> Option<Content> {
        let event = self.event(content.event);
        if content.tickets.len() > TICKETS_MAX {
            return self.check("tickets", Err("has more than 100 tickets"));
        }
        let tickets = self.tickets(content.tickets);
        Some(Content::TicketDelivery { event: event?, tickets: tickets? })
    }

    pub(in crate::convert) fn quota_invitation(
        &mut self,
        content: QuotaInvitationContent,
    ) -> Option<Content> {
        let event = self.event(content.event);
        let quota_name = self.name("quota_name", &content.quota_name);
        let sector_name = self.name("sector_name", &content.sector_name);
        let accept_url = self.url("accept_url", content.accept_url);
        let expire_time = self.time("expire_time", content.expire_time);
        Some(Content::QuotaInvitation {
            event: event?,
            quota_name: quota_name?,
            sector_name: sector_name?,
            unit_count: content.unit_count,
            accept_url: accept_url?,
            expire_time: expire_time?,
        })
    }

    pub(in crate::convert) fn queue_update(&mut self, content: QueueUpdateContent) -> Option<Content> {
        let event = self.event(content.event);
        let wait_min = self.optional_duration("wait_min", content.wait_min);
        let wait_max = self.optional_duration("wait_max", content.wait_max);
        let (event, wait_min, wait_max) = (event?, wait_min?, wait_max?);
        Some(Content::QueueUpdate { event, position: content.position, wait_min, wait_max })
    }

    pub(in crate::convert) fn queue_your_turn(&mut self, content: QueueYourTurnContent) -> Option<Content> {
        let event = self.event(content.event);
        let turn_expire_time = self.time("turn_expire_time", content.turn_expire_time);
        let checkout_url = match content.checkout_url {
            url if url.is_empty() => Some(None),
            url => self.url("checkout_url", url).map(Some),
        };
        let (event, turn_expire_time) = (event?, turn_expire_time?);
        Some(Content::QueueYourTurn { event, turn_expire_time, checkout_url: checkout_url? })
    }

    pub(in crate::convert) fn reminder(&mut self, content: ReminderContent) -> Option<Content> {
        let event = self.event(content.event);
        Some(Content::Reminder { event: event?, ticket_count: content.ticket_count })
    }

    pub(in crate::convert) fn refund(&mut self, content: RefundContent) -> Option<Content> {
        let event = self.event(content.event);
        let claim_id = self.check("claim_id", ClaimId::parse(&content.claim_id));
        let amount = self.money("amount", content.amount);
        Some(Content::Refund { event: event?, claim_id: claim_id?, amount: amount? })
    }
}
