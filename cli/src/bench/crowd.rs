//! Customers whose turn it is: each with an own token of identity, an own entry in the line and an own turn token, all
//! made before the clock starts.

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
use onsale_testkit::tokens::{Mint, identity};
use onsale_types::Timestamp;
use serde_json::json;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
};
use uuid::Uuid;

use super::{
    customers::{buyer, on_all_processors},
    sale::{Place, UNITS},
    world::{World, entry_id, subject},
};

/// Who signs turn tokens, and what they are for: as Queue does.
const ISSUER: &str = "queue";
const TURN: &str = "onsale-turn";

/// People with a turn, in the order in which they call.
pub(crate) struct Crowd {
    people: Vec<Person>,
    next: AtomicU64,
}

struct Person {
    authorization: MetadataValue<Ascii>,
    turn_token: String,
    place: Arc<Place>,
}

impl Crowd {
    /// So many customers with a turn. The first place takes as many of them as it is good for, then the next.
    pub(crate) async fn gather<'a>(
        world: &World,
        places: impl Iterator<Item = &'a Place>,
        customers: u64,
    ) -> anyhow::Result<Self> {
        let mut people = Vec::new();
        let mut left = customers;
        for place in places {
            let count = left.min(place.calls);
            if count == 0 {
                break;
            }
            let until = world.turns(place.event_id, count).await?;
            let key = SigningKey::parse(&world.turns_key).context("failed to read a key")?;
            let (signer, mint) = (TokenSigner::new(key, ISSUER), Arc::clone(&world.mint));
            let place = Arc::new(place.clone());
            // Numbers in a line begin with 1.
            let make = move |number| person(&mint, &signer, until, &place, number + 1);
            people.extend(on_all_processors(count, make).await?);
            left -= count;
        }
        Ok(Self { people, next: AtomicU64::new(0) })
    }

    /// What the next customer asks Claim for; none when all have asked.
    pub(crate) fn next(&self) -> Option<Request<CreateClaimRequest>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let person = usize::try_from(number).ok().and_then(|number| self.people.get(number))?;
        let sector_id = person.place.sector_id.clone();
        let mut request = Request::new(CreateClaimRequest {
            request_id: Uuid::now_v7().to_string(),
            event_id: person.place.event_id.to_string(),
            right: Some(Right::TurnToken(person.turn_token.clone())),
            selections: vec![UnitSelection { sector_id, count: UNITS, ..UnitSelection::default() }],
        });
        request.metadata_mut().insert("authorization", person.authorization.clone());
        Some(request)
    }

    /// How many have asked.
    pub(crate) fn served(&self) -> u64 {
        let people = u64::try_from(self.people.len()).unwrap_or(u64::MAX);
        self.next.load(Ordering::Relaxed).min(people)
    }
}

fn person(
    mint: &Mint,
    signer: &TokenSigner,
    until: Timestamp,
    place: &Arc<Place>,
    seq: u64,
) -> Result<Person, Status> {
    let event_id = place.event_id;
    let customer_id = identity(&subject(event_id, seq)).customer_id().to_string();
    let facts = TokenFields { audience: TURN, subject: &customer_id, expiry: until };
    let claims = json!({ "event_id": event_id, "entry_id": entry_id(event_id, seq), "fencing_number": seq });
    let turn_token =
        signer.sign(&facts, &claims).map_err(|_| Status::internal("a turn token cannot be signed"))?;
    Ok(Person { authorization: buyer(mint, event_id, seq)?, turn_token, place: Arc::clone(place) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_asks_once_with_tokens_of_their_own() {
        let (mint, key) = (Mint::new(), SigningKey::generate().unwrap());
        let signer = TokenSigner::new(SigningKey::parse(&key).unwrap(), ISSUER);
        let place = Place::new(Uuid::now_v7(), "sector".to_owned(), 2);
        let (place, until) = (Arc::new(place), Timestamp::from_secs(60));
        let people = (1..=2).map(|seq| person(&mint, &signer, until, &place, seq).unwrap()).collect();
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
