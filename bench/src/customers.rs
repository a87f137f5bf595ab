//! Callers, each with a user token of its own that is created before the measurement.

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

use crate::{
    load::Load,
    testbed::{bearer, subject},
};

/// Tokens created in advance per second of load. Further customers get theirs during the measurement.
const TOKENS_PER_SECOND: u64 = 20_000;
/// Lifetime of a buyer's token: longer than preparation and measurement together.
const BUYER_SECONDS: i64 = 7_200;

/// Creates the `authorization` header of the customer with this number in the line of an event.
pub(crate) type Authorization = fn(&TestIssuer, Uuid, u64) -> Result<MetadataValue<Ascii>, Status>;

/// Customers of one load.
pub(crate) struct Customers {
    issuer: Arc<TestIssuer>,
    event_id: Uuid,
    authorization: Authorization,
    tokens: Vec<MetadataValue<Ascii>>,
    next: AtomicUsize,
    late: AtomicUsize,
}

impl Customers {
    /// Creates tokens for `load` in advance.
    pub(crate) async fn prepare(
        issuer: &Arc<TestIssuer>,
        event_id: Uuid,
        load: Load,
        authorization: Authorization,
    ) -> anyhow::Result<Self> {
        let count = load.calls_at(TOKENS_PER_SECOND);
        let maker = Arc::clone(issuer);
        let tokens = build_in_parallel(count, move |number| authorization(&maker, event_id, number)).await?;
        let (next, late) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Self { issuer: Arc::clone(issuer), event_id, authorization, tokens, next, late })
    }

    /// Returns the next customer's header.
    pub(crate) fn next(&self) -> Result<MetadataValue<Ascii>, Status> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(token) = self.tokens.get(number) {
            return Ok(token.clone());
        }
        self.late.fetch_add(1, Ordering::Relaxed);
        (self.authorization)(&self.issuer, self.event_id, u64::try_from(number).unwrap_or(u64::MAX))
    }

    /// Returns the number of customers who have called.
    pub(crate) fn served(&self) -> u64 {
        u64::try_from(self.next.load(Ordering::Relaxed)).unwrap_or(u64::MAX)
    }

    /// Returns the number of customers whose token was created during the measurement.
    pub(crate) fn late(&self) -> usize {
        self.late.load(Ordering::Relaxed)
    }
}

/// Calls `make` for each number below `count` on all processors. The results are in the order of the numbers.
pub(crate) async fn build_in_parallel<T: Send + 'static>(
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
        let made: Result<Vec<_>, Status> = made.await.context("a task that creates tokens panicked")?;
        all.extend(made?);
    }
    Ok(all)
}

/// Creates the header of a customer without further claims.
pub(crate) fn plain(
    issuer: &TestIssuer,
    event_id: Uuid,
    number: u64,
) -> Result<MetadataValue<Ascii>, Status> {
    header(&bearer(issuer, &subject(event_id, number), Role::Customer))
}

/// Creates the header of a customer with a verified email address, which `CreateClaim` requires.
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
    bearer.parse().map_err(|_| Status::internal("a token is not a valid header"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn parallel_results_keep_their_order() {
        assert_eq!(build_in_parallel(1_000, Ok).await.unwrap(), (0..1_000).collect::<Vec<u64>>());
        assert!(build_in_parallel(3, |_| Err::<u64, _>(Status::internal("no"))).await.is_err());
    }
}
