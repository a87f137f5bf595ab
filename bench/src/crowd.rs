//! Customers with a turn: each has a user token, an entry in the line and a turn token of its own, all created before the
//! measurement starts.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::Context;
use onsale_kit::auth::{SigningKey, TokenFields, TokenSigner};
use onsale_proto::{
    claim::v1::{CreateClaimRequest, create_claim_request::Right},
    r#type::v1::UnitSelection,
};
use onsale_testkit::tokens::{TestIssuer, identity};
use onsale_types::Timestamp;
use serde_json::json;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
};
use uuid::Uuid;

use crate::{
    customers::{build_in_parallel, buyer},
    sale::{HotSector, UNITS},
    testbed::{Testbed, entry_id, subject},
};

/// Issuer and audience of turn tokens, as Queue signs them.
const ISSUER: &str = "queue";
const TURN: &str = "onsale-turn";

/// Customers with a turn, in the order in which they call.
pub(crate) struct Crowd {
    people: Vec<Person>,
    next: AtomicU64,
}

struct Person {
    authorization: MetadataValue<Ascii>,
    turn_token: String,
    sector: Arc<HotSector>,
}

impl Crowd {
    /// Prepares `customers` customers. They fill the sectors in order, each up to the number of calls that it takes.
    pub(crate) async fn prepare<'a>(
        testbed: &Testbed,
        sectors: impl Iterator<Item = &'a HotSector>,
        customers: u64,
    ) -> anyhow::Result<Self> {
        let mut people = Vec::new();
        let mut left = customers;
        for sector in sectors {
            let count = left.min(sector.calls);
            if count == 0 {
                break;
            }
            let until = testbed.turns(sector.event_id, count).await?;
            let key = SigningKey::parse(&testbed.turns_key).context("failed to read a key")?;
            let (signer, issuer) = (TokenSigner::new(key, ISSUER), Arc::clone(&testbed.issuer));
            let sector = Arc::new(sector.clone());
            // Numbers in a line start at 1.
            let make = move |number| person(&issuer, &signer, until, &sector, number + 1);
            people.extend(build_in_parallel(count, make).await?);
            left -= count;
        }
        Ok(Self { people, next: AtomicU64::new(0) })
    }

    /// Returns the next customer's `CreateClaim` request, or `None` after the last customer.
    pub(crate) fn next(&self) -> Option<Request<CreateClaimRequest>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let person = usize::try_from(number).ok().and_then(|number| self.people.get(number))?;
        let sector_id = person.sector.sector_id.clone();
        let mut request = Request::new(CreateClaimRequest {
            request_id: Uuid::now_v7().to_string(),
            event_id: person.sector.event_id.to_string(),
            right: Some(Right::TurnToken(person.turn_token.clone())),
            selections: vec![UnitSelection { sector_id, count: UNITS, ..UnitSelection::default() }],
        });
        request.metadata_mut().insert("authorization", person.authorization.clone());
        Some(request)
    }

    /// Returns the number of customers who have called.
    pub(crate) fn served(&self) -> u64 {
        let people = u64::try_from(self.people.len()).unwrap_or(u64::MAX);
        self.next.load(Ordering::Relaxed).min(people)
    }
}

fn person(
    issuer: &TestIssuer,
    signer: &TokenSigner,
    until: Timestamp,
    sector: &Arc<HotSector>,
    seq: u64,
) -> Result<Person, Status> {
    let event_id = sector.event_id;
    let customer_id = identity(&subject(event_id, seq)).customer_id().to_string();
    let facts = TokenFields { audience: TURN, subject: &customer_id, expiry: until };
    let claims = json!({ "event_id": event_id, "entry_id": entry_id(event_id, seq), "fencing_number": seq });
    let turn_token =
        signer.sign(&facts, &claims).map_err(|_| Status::internal("a turn token cannot be signed"))?;
    Ok(Person { authorization: buyer(issuer, event_id, seq)?, turn_token, sector: Arc::clone(sector) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_customer_calls_once_with_their_own_tokens() {
        let (issuer, key) = (TestIssuer::new(), SigningKey::generate().unwrap());
        let signer = TokenSigner::new(SigningKey::parse(&key).unwrap(), ISSUER);
        let sector = HotSector::new(Uuid::now_v7(), "sector".to_owned(), 2);
        let (sector, until) = (Arc::new(sector), Timestamp::from_secs(60));
        let people = (1..=2).map(|seq| person(&issuer, &signer, until, &sector, seq).unwrap()).collect();
        let crowd = Crowd { people, next: AtomicU64::new(0) };
        let (first, second) = (crowd.next().unwrap(), crowd.next().unwrap());
        assert!(crowd.next().is_none());
        assert_eq!(crowd.served(), 2);
        let authorization =
            |request: &Request<CreateClaimRequest>| request.metadata().get("authorization").cloned();
        assert_ne!(authorization(&first), authorization(&second));
        assert_ne!(first.get_ref().right, second.get_ref().right);
        assert_eq!(first.get_ref().selections[0].count, UNITS);
    }
}
