//! People who call, each with a token of their own that was made before.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use anyhow::Context;
use onsale_proto::auth::v1::Role;
use onsale_testkit::tokens::TestIssuer;
use onsale_types::{Clock as _, SystemClock};
use serde_json::json;
use tonic::{
    Status,
    metadata::{Ascii, MetadataValue},
};
use uuid::Uuid;

use super::{
    load::Load,
    world::{bearer, subject},
};

/// Tokens made ahead, per second of load. More customers than that get theirs while it runs.
const TOKENS_PER_SECOND: u64 = 20_000;
/// How long the token of a buyer lasts: longer than all that is prepared and measured with it.
const BUYER_SECONDS: i64 = 7_200;

/// Makes the `authorization` header of whoever has this number in the line of an event.
pub(crate) type Authorization = fn(&TestIssuer, Uuid, u64) -> Result<MetadataValue<Ascii>, Status>;

/// People who have not called yet.
pub(crate) struct Customers {
    issuer: Arc<TestIssuer>,
    event_id: Uuid,
    authorization: Authorization,
    tokens: Vec<MetadataValue<Ascii>>,
    next: AtomicUsize,
    late: AtomicUsize,
}

impl Customers {
    /// Makes tokens for as many as may call in this load.
    pub(crate) async fn with_tokens(
        issuer: &Arc<TestIssuer>,
        event_id: Uuid,
        load: Load,
        authorization: Authorization,
    ) -> anyhow::Result<Self> {
        let count = load.calls_at(TOKENS_PER_SECOND);
        let maker = Arc::clone(issuer);
        let tokens = on_all_processors(count, move |number| authorization(&maker, event_id, number)).await?;
        let (next, late) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Self { issuer: Arc::clone(issuer), event_id, authorization, tokens, next, late })
    }

    /// The next customer.
    pub(crate) fn next(&self) -> Result<MetadataValue<Ascii>, Status> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(token) = self.tokens.get(number) {
            return Ok(token.clone());
        }
        self.late.fetch_add(1, Ordering::Relaxed);
        (self.authorization)(&self.issuer, self.event_id, u64::try_from(number).unwrap_or(u64::MAX))
    }

    /// How many have called.
    pub(crate) fn served(&self) -> u64 {
        u64::try_from(self.next.load(Ordering::Relaxed)).unwrap_or(u64::MAX)
    }

    /// How many of them got their token only then.
    pub(crate) fn late(&self) -> usize {
        self.late.load(Ordering::Relaxed)
    }
}

/// Makes something for each of the numbers below `count`, in their order, on all processors.
pub(crate) async fn on_all_processors<T: Send + 'static>(
    count: u64,
    make: impl Fn(u64) -> Result<T, Status> + Send + Sync + 'static,
) -> anyhow::Result<Vec<T>> {
    let make = Arc::new(make);
    let workers =
        std::thread::available_parallelism().map_or(1, |count| u64::try_from(count.get()).unwrap_or(1));
    let border = |worker: u64| count.saturating_mul(worker) / workers;
    let start = |worker: u64| {
        let (make, numbers) = (Arc::clone(&make), border(worker)..border(worker + 1));
        tokio::task::spawn_blocking(move || numbers.map(|number| make(number)).collect())
    };
    let making: Vec<_> = (0..workers).map(start).collect();
    let mut all = Vec::new();
    for made in making {
        let made: Result<Vec<_>, Status> = made.await.context("failed to make tokens")?;
        all.extend(made?);
    }
    Ok(all)
}

/// A customer of whom no more is known than who it is.
pub(crate) fn plain(
    issuer: &TestIssuer,
    event_id: Uuid,
    number: u64,
) -> Result<MetadataValue<Ascii>, Status> {
    header(&bearer(issuer, &subject(event_id, number), Role::Customer))
}

/// A customer who may buy: with a verified address.
pub(crate) fn buyer(
    issuer: &TestIssuer,
    event_id: Uuid,
    number: u64,
) -> Result<MetadataValue<Ascii>, Status> {
    let mut claims = issuer.claims(&subject(event_id, number), &[Role::Customer]);
    if let Some(claims) = claims.as_object_mut() {
        let expiry = SystemClock.now().to_seconds_and_nanos().0.saturating_add(BUYER_SECONDS);
        claims.insert("exp".to_owned(), json!(expiry));
        claims.insert("email".to_owned(), json!(format!("customer-{number}@example.test")));
        claims.insert("email_verified".to_owned(), json!(true));
    }
    header(&format!("Bearer {}", issuer.sign(&claims)))
}

fn header(bearer: &str) -> Result<MetadataValue<Ascii>, Status> {
    bearer.parse().map_err(|_| Status::internal("a token is no header"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_made_on_all_processors_keeps_its_order() {
        assert_eq!(on_all_processors(1_000, Ok).await.unwrap(), (0..1_000).collect::<Vec<u64>>());
        assert!(on_all_processors(3, |_| Err::<u64, _>(Status::internal("no"))).await.is_err());
    }
}
