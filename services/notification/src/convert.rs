//! Conversions between the contracts and the domain. No other module builds or reads protobuf messages.

pub(crate) mod events;
pub(crate) mod requests;
pub(crate) mod responses;

use onsale_proto::notification::v1 as pb;

use crate::domain::{content::Template, delivery::Channel};

fn channel_to_pb(channel: Channel) -> pb::Channel {
    match channel {
        Channel::Email => pb::Channel::Email,
        Channel::Push => pb::Channel::Push,
    }
}

fn template_to_pb(template: Template) -> pb::Template {
    match template {
        Template::OrderConfirmation => pb::Template::OrderConfirmation,
        Template::TicketDelivery => pb::Template::TicketDelivery,
        Template::QuotaInvitation => pb::Template::QuotaInvitation,
        Template::QueueUpdate => pb::Template::QueueUpdate,
        Template::QueueYourTurn => pb::Template::QueueYourTurn,
        Template::Reminder => pb::Template::Reminder,
        Template::Refund => pb::Template::Refund,
    }
}
