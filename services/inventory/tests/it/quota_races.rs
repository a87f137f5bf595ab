//! Invitees, the public, organizers and returns compete: every unit has one owner, and the counts agree with the rows.

use std::collections::BTreeSet;

use futures_util::future::{join, join_all};
use onsale_proto::inventory::v1::{self as pb, EventState, QuotaState};
use onsale_testkit::wait_until;
use tonic::Status;

use crate::{
    support::quotas::an_invitee,
    support::{SOON, World, count, exactly, general, numbers, reason, seated},
};

/// Returns the holds of the served customers; the others must have been refused for one of `reasons`.
fn got(answers: Vec<Result<pb::Hold, Status>>, reasons: &[&str]) -> Vec<pb::Hold> {
    let mut holds = Vec::new();
    for answer in answers {
        match answer {
            Ok(hold) => holds.push(hold),
            Err(status) => {
                let text = reason(Err::<(), _>(status)).1;
                assert!(reasons.contains(&text.as_str()), "{text}");
            }
        }
    }
    holds
}

fn units(holds: &[pb::Hold]) -> Vec<u32> {
    let mut units: Vec<u32> = holds.iter().flat_map(|hold| numbers(hold, 0)).collect();
    units.sort_unstable();
    units
}

#[tokio::test]
async fn invitation_used_twice_concurrently_holds_once() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 20)]).await;
    let quota = world.keep(&event, count(&event, 0, 10)).await.unwrap();
    let token = world.invited(&quota, "ana", 2).await;
    let tries = (0..8).map(|_| world.hold_invited(&event, count(&event, 0, 2), "ana", &token));
    assert_eq!(got(join_all(tries).await, &["INVITATION_USED"]).len(), 1);
    assert_eq!(world.counts(&event).await, (10, 2));
    world.assert_counts().await;
}

#[tokio::test]
async fn invitation_accepted_concurrently_belongs_to_one_customer() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 20)]).await;
    let quota = world.keep(&event, count(&event, 0, 10)).await.unwrap();
    world.invite(&quota, vec![an_invitee("a@example.test", 1)]).await.unwrap();
    let token = &world.mailed_token("a@example.test").await;
    let names: Vec<String> = (0..8).map(|index| format!("customer-{index}")).collect();
    let answers = join_all(names.iter().map(|name| world.accept(name, token))).await;
    let (accepted, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!(accepted.len(), 1);
    for answer in refused {
        assert_eq!(reason(answer).1, "INVITATION_ACCEPTED_BY_ANOTHER");
    }
}

#[tokio::test]
async fn concurrent_invitations_never_exceed_the_quota() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 20)]).await;
    let quota = world.keep(&event, count(&event, 0, 10)).await.unwrap();
    let invite = |index: u32| {
        let invitees = vec![
            an_invitee(&format!("{index}@example.test"), 2),
            an_invitee(&format!("{}@example.test", index + 1), 1),
        ];
        world.invite(&quota, invitees)
    };
    let answers = join_all((0..12).map(invite)).await;
    for answer in answers {
        if let Err(status) = answer {
            assert_eq!(reason(Err::<(), _>(status)).1, "QUOTA_EXHAUSTED");
        }
    }
    assert!(world.list_quotas(&event).await[0].invited_count >= 9, "all units are promised");
    world.assert_counts().await;
}

#[tokio::test]
async fn rush_of_invitees_and_public_respects_the_quota() {
    let world = World::start().await;
    let event = world.on_sale(vec![seated("A", &[10, 10, 10, 10])]).await;
    let kept: Vec<u32> = (1..=20).collect();
    let quota = world.keep(&event, exactly(&event, 0, &kept)).await.unwrap();
    let mut invitees = Vec::new();
    for index in 0..10 {
        let name = format!("invitee-{index}");
        let token = world.invited(&quota, &name, 2).await;
        invitees.push((name, token));
    }
    let invited = invitees.iter().map(|(name, token)| async {
        let first = world.hold_invited(&event, count(&event, 0, 1), name, token).await.unwrap();
        world.release(&first.hold_id).await.unwrap();
        let hold = world.hold_invited(&event, count(&event, 0, 2), name, token).await.unwrap();
        world.commit(&hold.hold_id).await
    });
    let public = (0..20).map(|index| {
        let (world, event) = (&world, &event);
        async move {
            if index % 5 == 0 {
                world.set_pool(event, 0, &[0xff; 5]).await;
            }
            world.hold(event, vec![count(event, 0, 2)]).await
        }
    });
    let (invited, public) = join(join_all(invited), join_all(public)).await;
    let invited: Vec<_> = invited.into_iter().map(Result::unwrap).collect();
    assert_eq!(units(&invited), kept);
    let public = got(public, &["NOT_ENOUGH_UNITS"]);
    assert_eq!(units(&public), (21..=40).collect::<Vec<_>>());
    world.assert_counts().await;
    join_all(public.iter().map(|hold| world.commit(&hold.hold_id))).await;
    assert_eq!(world.get(&event.event_id).await.state(), EventState::SoldOut);
}

#[tokio::test]
async fn quotas_created_in_a_rush_take_free_units_only() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 60), seated("B", &[20, 20, 20])]).await;
    for sector in [0, 1] {
        let public = (0..40).map(|_| world.hold(&event, vec![count(&event, sector, 1)]));
        let quotas = (0..4).map(|_| world.keep(&event, count(&event, sector, 5)));
        let (public, quotas) = join(join_all(public), join_all(quotas)).await;
        assert!(quotas.iter().all(Result::is_ok), "{quotas:?}");
        assert_eq!(units(&got(public, &[])).len(), 40, "enough units for all customers");
    }
    assert_eq!(world.taken().await, 120);
    world.assert_counts().await;
}

#[tokio::test]
async fn seats_kept_and_bought_concurrently_have_one_owner() {
    let world = World::start().await;
    let event = world.on_sale(vec![seated("A", &[10])]).await;
    let seats = || exactly(&event, 0, &[4, 5, 6]);
    let buyers = join_all((0..10).map(|_| world.hold(&event, vec![seats()])));
    let keepers = join_all((0..3).map(|_| world.keep(&event, seats())));
    let (buyers, keepers) = join(buyers, keepers).await;
    let bought = got(buyers, &["UNITS_TAKEN"]).len();
    let kept = keepers.iter().filter(|kept| kept.is_ok()).count();
    for refused in keepers.into_iter().filter(Result::is_err) {
        assert_eq!(reason(refused).1, "UNITS_TAKEN");
    }
    assert_eq!(bought + kept, 1);
    world.assert_counts().await;
}

#[tokio::test]
async fn quotas_returned_during_a_rush_lose_no_unit() {
    let world = World::start_with(&[("QUOTAS__RETURN_EVERY", "20ms")]).await;
    let event = world.on_sale(vec![general("A", 60), general("B", 10)]).await;
    let mut invitees = Vec::new();
    for group in 0..3 {
        let quota = world.keep(&event, count(&event, 0, 10)).await.unwrap();
        for index in 0..5 {
            let name = format!("invitee-{group}-{index}");
            let token = world.invited(&quota, &name, 2).await;
            invitees.push((name, token));
        }
    }
    let reasons = &["INVITATION_EXPIRED", "NOT_ENOUGH_UNITS"];
    let bought = invitees.iter().enumerate().map(|(index, (name, token))| {
        let (world, event) = (&world, &event);
        async move {
            let hold = world.hold_invited(event, count(event, 0, 2), name, token).await?;
            if index % 2 == 0 {
                world.release(&hold.hold_id).await
            } else {
                world.commit(&hold.hold_id).await
            }
        }
    });
    let public = (0..30).map(|_| world.hold(&event, vec![count(&event, 0, 2)]));
    let ((bought, public), ()) = join(join(join_all(bought), join_all(public)), world.end_quotas()).await;
    got(bought, reasons);
    let public = got(public, reasons);
    wait_until("the quotas are returned", SOON, async || {
        world.list_quotas(&event).await.iter().all(|quota| quota.state() == QuotaState::Returned)
    })
    .await;
    world.assert_counts().await;
    let (free, held) = world.counts(&event).await;
    let sold = world.number("SELECT sum(sold_count) AS count FROM sector_sale", &[]).await;
    assert_eq!(i64::from(free + held) + sold, 60);
    // All remaining units can be bought by the public.
    let rest = join_all((0..free).map(|_| world.hold(&event, vec![count(&event, 0, 1)]))).await;
    let all: BTreeSet<u32> = units(&got(rest, &[])).into_iter().chain(units(&public)).collect();
    assert_eq!(all.len(), usize::try_from(free + held).unwrap());
}
