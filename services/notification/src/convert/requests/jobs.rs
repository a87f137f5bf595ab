//! Jobs of an `EnqueueNotifications` request.

use std::collections::HashSet;

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::notification::v1::{
    Channel, EnqueueNotificationsRequest, NotificationJob, notification_job::Content as PbContent,
};
use onsale_types::{JobId, RequestId};

use super::reader::Reader;
use crate::domain::{
    content::Content,
    job::{Expiry, NewJob},
    language::Language,
};

const JOBS_MAX: usize = 500;

/// Converts the request. Recipients without a supported language get `default`.
pub(crate) fn enqueue_notifications(
    request: EnqueueNotificationsRequest,
    default: Language,
) -> Result<(RequestId, Vec<NewJob>), InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    if !(1..=JOBS_MAX).contains(&request.jobs.len()) {
        violations.push("jobs", "must have 1 to 500 jobs");
    }
    let mut ids = HashSet::new();
    let mut jobs = Vec::new();
    for (index, job) in request.jobs.into_iter().take(JOBS_MAX).enumerate() {
        let path = format!("jobs[{index}].");
        if !ids.insert(job.job_id.to_ascii_lowercase()) {
            violations.push(format_args!("{path}job_id"), "is the id of another job of the request");
        }
        jobs.extend(new_job(Reader { violations: &mut violations, path }, job, default));
    }
    violations.build(|| Some((request_id?, jobs)))
}

fn new_job(mut reader: Reader<'_>, job: NotificationJob, default: Language) -> Option<NewJob> {
    let job_id = reader.check("job_id", JobId::parse(&job.job_id));
    let is_email = job.channels().all(|channel| channel == Channel::Email);
    let channels =
        reader.check("channels", if is_email { Ok(()) } else { Err("must be email, the only channel yet") });
    let to = reader.require("recipient", job.recipient);
    let recipient = to.and_then(|to| {
        let language = Language::from_tag(&to.locale, default);
        reader.inner("recipient").recipient(["customer_id", "email"], &to.customer_id, &to.email, language)
    });
    let expiry = match job.expire_time {
        None => Some(Expiry::DEFAULT),
        time => reader.time("expire_time", time).map(Expiry::At),
    };
    let content = reader.require("content", job.content);
    let content = content.and_then(|content| self::content(&mut reader, content));
    channels?;
    Some(NewJob::with_id(job_id?, recipient?, content?, expiry?))
}

fn content(reader: &mut Reader<'_>, content: PbContent) -> Option<Content> {
    match content {
        PbContent::OrderConfirmation(it) => reader.inner("order_confirmation").order_confirmation(it),
        PbContent::TicketDelivery(it) => reader.inner("ticket_delivery").ticket_delivery(it),
        PbContent::QuotaInvitation(it) => reader.inner("quota_invitation").quota_invitation(it),
        PbContent::QueueUpdate(it) => reader.inner("queue_update").queue_update(it),
        PbContent::QueueYourTurn(it) => reader.inner("queue_your_turn").queue_your_turn(it),
        PbContent::Reminder(it) => reader.inner("reminder").reminder(it),
        PbContent::Refund(it) => reader.inner("refund").refund(it),
    }
}
