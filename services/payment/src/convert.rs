//! Conversions between the contracts and the domain. No other module builds or reads protobuf messages.

pub(crate) mod clients;
mod events;
pub(crate) mod requests;
pub(crate) mod responses;

use onsale_proto::payment::v1 as pb;

use crate::domain::{FailureReason, Provider, RefundReason};

fn provider_to_pb(provider: Provider) -> pb::Provider {
    match provider {
        Provider::Stripe => pb::Provider::Stripe,
        Provider::Paystack => pb::Provider::Paystack,
        Provider::Sandbox => pb::Provider::Sandbox,
    }
}

fn failure_reason_to_pb(reason: FailureReason) -> pb::FailureReason {
    match reason {
        FailureReason::Declined => pb::FailureReason::Declined,
        FailureReason::Canceled => pb::FailureReason::Canceled,
        FailureReason::Expired => pb::FailureReason::Expired,
        FailureReason::Provider => pb::FailureReason::Provider,
    }
}

fn refund_reason_to_pb(reason: RefundReason) -> pb::RefundReason {
    match reason {
        RefundReason::ClaimRejected => pb::RefundReason::ClaimRejected,
        RefundReason::Duplicate => pb::RefundReason::Duplicate,
        RefundReason::EventCanceled => pb::RefundReason::EventCanceled,
        RefundReason::Goodwill => pb::RefundReason::Goodwill,
    }
}
