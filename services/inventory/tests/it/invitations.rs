//! `InviteToQuota`, `AcceptInvitation` and reservations with a token: each invitation serves the one customer who accepted it.

use onsale_kit::auth::{SigningKey, TokenFields, TokenSigner};
use onsale_proto::{
    auth::v1::Role,
    events::v1::QuotaInvitation,
    inventory::v1::{self as pb, HoldState, InvitationState},
};
use onsale_types::Timestamp;
use tonic::Code;

use crate::{
    support::quotas::{RETURN_SECONDS, an_invited_reservation, an_invitee},
    support::{
        ACCEPT_PAGE, ORGANIZER, World, an_event, count, exactly, fields, general, numbers, reason, refusal,
        request_id, required, seated, time, with_token,
    },
};

#[tokio::test]
async fn each_invitee_gets_one_mail_with_a_token() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 10)]).await;
    let quota = world.keep(&event, count(&event, 0, 6)).await.unwrap();
    let ivo = pb::Invitee { locale: "hr".to_owned(), ..an_invitee("ivo@example.test", 0) };
    let answer = world.invite(&quota, vec![an_invitee("Ana@example.test", 3), ivo]).await.unwrap();
    let after = answer.quota.unwrap();
    assert_eq!((after.unit_count, after.invited_count, after.used_count), (6, 4, 0));
    let [first, second] = &answer.invitations[..] else { panic!("two: {:?}", answer.invitations) };
    assert_eq!((&first.email[..], first.unit_count, second.unit_count), ("Ana@example.test", 3, 1));
    assert_eq!((first.state(), first.accept_time), (InvitationState::Pending, None));
    assert_eq!((first.expire_time, &first.quota_id), (quota.return_time, &quota.quota_id));
    assert_eq!((&first.event_id, &first.sector_id), (&quota.event_id, &quota.sector_id));

    let published = world.published::<QuotaInvitation>().await;
    assert_eq!(published.len(), 2);
    let mail = &published[0];
    assert_eq!((&mail.invitation_id, &mail.email), (&first.invitation_id, &first.email));
    assert_eq!((&mail.quota_name[..], &mail.sector_name[..], mail.unit_count), ("Fan club", "A", 3));
    assert_eq!(
        (mail.expire_time, &mail.locale[..], &published[1].locale[..]),
        (time(RETURN_SECONDS), "", "hr")
    );
    let about = mail.event.as_ref().unwrap();
    assert_eq!((&about.event_id, &about.name), (&event.event_id, &event.name));
    let (page, token) = mail.accept_url.split_once("#token=").unwrap();
    assert_eq!((page, token.split('.').count()), (ACCEPT_PAGE, 3));
    assert_ne!(published[0].accept_url, published[1].accept_url);

    // A repeat in another case keeps the invitation and sends no second mail.
    let repeat = vec![an_invitee("new@example.test", 2), an_invitee("ANA@EXAMPLE.TEST", 1)];
    let answer = world.invite(&quota, repeat).await.unwrap();
    assert_eq!((&answer.invitations[1], answer.quota.unwrap().invited_count), (first, 6));
    assert_eq!(world.published::<QuotaInvitation>().await.len(), 3);
    world.assert_counts().await;
}

#[tokio::test]
async fn invitations_are_all_or_nothing() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 10)]).await;
    let quota = world.keep(&event, count(&event, 0, 3)).await.unwrap();
    world.invite(&quota, vec![an_invitee("a@example.test", 2)]).await.unwrap();
    let more = vec![an_invitee("b@example.test", 1), an_invitee("c@example.test", 1)];
    let (code, text, metadata) = refusal(world.invite(&quota, more).await);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "QUOTA_EXHAUSTED"));
    assert_eq!((&metadata["quota_id"], &metadata["free_count"][..]), (&quota.quota_id, "1"));
    assert_eq!(world.published::<QuotaInvitation>().await.len(), 1);
    world.invite(&quota, vec![an_invitee("b@example.test", 1)]).await.unwrap();
    // An existing invitation needs no further units of the quota.
    world.invite(&quota, vec![an_invitee("b@example.test", 5)]).await.unwrap();

    world.end_quotas().await;
    let (code, text, metadata) = refusal(world.invite(&quota, vec![an_invitee("d@example.test", 1)]).await);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "QUOTA_RETURNED"));
    assert_eq!(metadata["quota_id"], quota.quota_id);
}

#[tokio::test]
async fn invalid_invitees_are_refused_with_every_field() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 100)]).await;
    let quota = world.keep(&event, count(&event, 0, 50)).await.unwrap();
    let empty = world.invite_as(ORGANIZER, pb::InviteToQuotaRequest::default()).await;
    assert_eq!(fields(empty), ["request_id", "quota_id", "invitees"]);
    let crowd = (0..501).map(|index| an_invitee(&format!("{index}@example.test"), 1)).collect();
    assert_eq!(fields(world.invite(&quota, crowd).await), ["invitees"]);
    let odd = vec![
        an_invitee("a@example.test", 1),
        an_invitee("A@example.test", 1),
        an_invitee("nobody", 1),
        an_invitee("a@b\r\nBcc: c@d", 1),
        pb::Invitee { locale: "de".to_owned(), ..an_invitee("b@example.test", 1) },
    ];
    let named = ["invitees[1].email", "invitees[2].email", "invitees[3].email", "invitees[4].locale"];
    assert_eq!(fields(world.invite(&quota, odd).await), named);
    let greedy = vec![an_invitee("a@example.test", 8), an_invitee("b@example.test", 9)];
    assert_eq!(fields(world.invite(&quota, greedy).await), ["invitees[1].unit_count"]);
    assert!(world.published::<QuotaInvitation>().await.is_empty());
}

#[tokio::test]
async fn quota_of_another_organizer_is_not_found() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 10)]).await;
    let quota = world.keep(&event, count(&event, 0, 3)).await.unwrap();
    let message = pb::InviteToQuotaRequest {
        request_id: request_id(),
        quota_id: quota.quota_id.clone(),
        invitees: vec![an_invitee("a@example.test", 1)],
    };
    let (code, text, metadata) = refusal(world.invite_as("organizer-two", message.clone()).await);
    assert_eq!((code, &text[..]), (Code::NotFound, "QUOTA_NOT_FOUND"));
    assert_eq!(metadata["quota_id"], quota.quota_id);
    let unknown = pb::InviteToQuotaRequest { quota_id: request_id(), ..message.clone() };
    assert_eq!(reason(world.invite_as(ORGANIZER, unknown).await).1, "QUOTA_NOT_FOUND");
    let answer = world.invite_as(ORGANIZER, message.clone()).await.unwrap();
    assert_eq!(world.invite_as(ORGANIZER, message).await.unwrap(), answer);
    assert_eq!(world.published::<QuotaInvitation>().await.len(), 1);
    world.end(&event.event_id).await.unwrap();
    let ended = world.invite(&quota, vec![an_invitee("b@example.test", 1)]).await;
    assert_eq!(reason(ended).1, "EVENT_TRANSITION_INVALID");
}

#[tokio::test]
async fn invitation_is_accepted_by_one_customer() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 10)]).await;
    let quota = world.keep(&event, count(&event, 0, 3)).await.unwrap();
    world.invite(&quota, vec![an_invitee("ana@example.test", 2)]).await.unwrap();
    let token = world.mailed_token("ana@example.test").await;
    let answer = world.accept("ana", &token).await.unwrap();
    let invitation = answer.invitation.clone().unwrap();
    assert_eq!((invitation.state(), &invitation.email[..]), (InvitationState::Accepted, ""));
    assert!(invitation.accept_time.is_some());
    assert_eq!((invitation.unit_count, invitation.expire_time), (2, quota.return_time));
    assert_eq!((&answer.sector_name[..], &answer.event.as_ref().unwrap().name), ("A", &event.name));
    assert_eq!(world.accept("ana", &token).await.unwrap(), answer);
    let (code, text, metadata) = refusal(world.accept("eve", &token).await);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "INVITATION_ACCEPTED_BY_ANOTHER"));
    assert_eq!(metadata["invitation_id"], invitation.invitation_id);

    let message = pb::AcceptInvitationRequest::default();
    let request = with_token(message, &world.service.issuer.token_for("ana", &[Role::Customer]));
    let empty = world.quotas().await.accept_invitation(request).await;
    assert_eq!(fields(empty), ["request_id", "invitation_token"]);
}

#[tokio::test]
async fn other_tokens_are_no_invitations() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 10)]).await;
    let quota = world.keep(&event, count(&event, 0, 3)).await.unwrap();
    let token = world.invited(&quota, "ana", 2).await;
    let own_key = || SigningKey::parse(required()[0].1).unwrap();
    let named = world.published::<QuotaInvitation>().await[0].invitation_id.clone();
    let claims = serde_json::json!({
        "invitation_id": named, "quota_id": quota.quota_id, "event_id": event.event_id,
    });
    let facts =
        |audience| TokenFields { audience, subject: &named, expiry: Timestamp::from_secs(RETURN_SECONDS) };
    let (head, signature) = token.rsplit_once('.').unwrap();
    let strange = SigningKey::parse(&SigningKey::generate().unwrap()).unwrap();
    let forgeries = [
        TokenSigner::new(strange, "inventory").sign(&facts("onsale-invitation"), &claims).unwrap(),
        TokenSigner::new(own_key(), "inventory").sign(&facts("onsale-turn"), &claims).unwrap(),
        TokenSigner::new(own_key(), "queue").sign(&facts("onsale-invitation"), &claims).unwrap(),
        world.service.issuer.token_for("ana", &[Role::Customer]),
        format!("{head}x.{signature}"),
        "nonsense".to_owned(),
    ];
    let invalid = (Code::PermissionDenied, "INVITATION_TOKEN_INVALID".to_owned());
    for forged in &forgeries {
        assert_eq!(reason(world.accept("ana", forged).await), invalid, "{forged}");
        let hold = world.hold_invited(&event, count(&event, 0, 1), "ana", forged).await;
        assert_eq!(reason(hold), invalid, "{forged}");
    }
    let genuine =
        TokenSigner::new(own_key(), "inventory").sign(&facts("onsale-invitation"), &claims).unwrap();
    assert_eq!(genuine, token, "equal fields make equal tokens");
    let other = world.on_sale(vec![general("A", 10)]).await;
    let elsewhere = world.hold_invited(&other, count(&other, 0, 1), "ana", &token).await;
    assert_eq!(reason(elsewhere), invalid);
}

#[tokio::test]
async fn invitee_holds_the_best_kept_seats() {
    let world = World::start().await;
    let event = world.on_sale(vec![seated("A", &[6, 6])]).await;
    let quota = world.keep(&event, exactly(&event, 0, &[2, 3, 5, 9, 10, 11])).await.unwrap();
    let token = world.invited(&quota, "ana", 4).await;
    let hold = world.hold_invited(&event, count(&event, 0, 3), "ana", &token).await.unwrap();
    assert_eq!((numbers(&hold, 0), hold.items[0].group_count), (vec![9, 10, 11], 1));
    assert_eq!((&hold.quota_id, hold.state()), (&quota.quota_id, HoldState::Held));
    assert_eq!(world.counts(&event).await, (6, 3), "held like any other unit");
    let [now] = &world.list_quotas(&event).await[..] else { panic!("one quota") };
    assert_eq!((now.invited_count, now.used_count), (1, 3));

    let second = world.invited(&quota, "ivo", 2).await;
    let taken = world.hold_invited(&event, exactly(&event, 0, &[2, 9]), "ivo", &second).await;
    let (code, text, metadata) = refusal(taken);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "UNITS_TAKEN"));
    assert_eq!((&metadata["taken_units"][..], &metadata["alternative_units"][..]), ("9", "2,3"));
    let public = world.hold_invited(&event, exactly(&event, 0, &[1, 2]), "ivo", &second).await;
    assert_eq!(refusal(public).2["taken_units"], "1", "a unit that the quota does not keep");
    let exact = world.hold_invited(&event, exactly(&event, 0, &[5, 2]), "ivo", &second).await.unwrap();
    assert_eq!(numbers(&exact, 0), [2, 5]);
    world.assert_counts().await;
}

#[tokio::test]
async fn invitation_is_limited_to_its_customer_sector_and_count() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 20), general("B", 20)]).await;
    let quota = world.keep(&event, count(&event, 0, 6)).await.unwrap();
    world.invite(&quota, vec![an_invitee("ana@example.test", 2)]).await.unwrap();
    let token = &world.mailed_token("ana@example.test").await;
    let hold = |customer: &'static str, selection| world.hold_invited(&event, selection, customer, token);
    let (code, text, metadata) = refusal(hold("ana", count(&event, 0, 1)).await);
    assert_eq!((code, &text[..]), (Code::FailedPrecondition, "INVITATION_NOT_ACCEPTED"));
    assert!(metadata.contains_key("invitation_id"));
    world.accept("ana", token).await.unwrap();
    let stolen = hold("eve", count(&event, 0, 1)).await;
    assert_eq!(reason(stolen), (Code::FailedPrecondition, "INVITATION_ACCEPTED_BY_ANOTHER".to_owned()));
    assert_eq!(fields(hold("ana", count(&event, 0, 3)).await), ["selections"]);
    assert_eq!(fields(hold("ana", count(&event, 1, 1)).await), ["selections[0].sector_id"]);
    let mut two = an_invited_reservation(&event, count(&event, 0, 1), "ana", token);
    two.selections.push(count(&event, 1, 1));
    assert_eq!(fields(world.reserve(two).await), ["selections[1].sector_id"]);
    assert_eq!(world.number("SELECT count(*) FROM hold", &[]).await, 0);
    hold("ana", count(&event, 0, 2)).await.unwrap();
}

#[tokio::test]
async fn invitation_buys_once() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 20)]).await;
    let quota = world.keep(&event, count(&event, 0, 6)).await.unwrap();
    let token = world.invited(&quota, "ana", 4).await;
    let hold = world.hold_invited(&event, count(&event, 0, 3), "ana", &token).await.unwrap();
    let used = (Code::FailedPrecondition, "INVITATION_USED".to_owned());
    let again = world.hold_invited(&event, count(&event, 0, 1), "ana", &token).await;
    assert_eq!(reason(again), used);
    let held = world.accept("ana", &token).await.unwrap().invitation.unwrap();
    assert_eq!(held.state(), InvitationState::Accepted, "the invitation keeps its state");
    world.commit(&hold.hold_id).await.unwrap();
    world.commit(&hold.hold_id).await.unwrap();
    let (code, text, metadata) =
        refusal(world.hold_invited(&event, count(&event, 0, 1), "ana", &token).await);
    assert_eq!((code, text), used);
    assert_eq!(metadata["invitation_id"], held.invitation_id);
    assert_eq!(reason(world.accept("ana", &token).await), used);
    let [now] = &world.list_quotas(&event).await[..] else { panic!("one quota") };
    assert_eq!(
        (now.invited_count, now.used_count),
        (0, 3),
        "units that were not bought can be promised again"
    );
    let answer = world.invite(&quota, vec![an_invitee("ana@example.test", 1)]).await.unwrap();
    assert_eq!(answer.invitations[0].state(), InvitationState::Used);
    world.invite(&quota, vec![an_invitee("ivo@example.test", 3)]).await.unwrap();
    assert_eq!(world.counts(&event).await, (14, 0));
    world.assert_counts().await;
}

#[tokio::test]
async fn hold_id_belongs_to_one_invitation_and_one_request() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 20)]).await;
    let quota = world.keep(&event, count(&event, 0, 6)).await.unwrap();
    let (ana, ivo) = (world.invited(&quota, "ana", 2).await, world.invited(&quota, "ivo", 2).await);
    let message = an_invited_reservation(&event, count(&event, 0, 2), "ana", &ana);
    let first = world.reserve(message.clone()).await.unwrap();
    let repeat = pb::ReserveUnitsRequest { request_id: request_id(), ..message.clone() };
    assert_eq!(world.reserve(repeat).await.unwrap(), first);
    let others = [
        an_invited_reservation(&event, count(&event, 0, 1), "ana", &ana),
        an_invited_reservation(&event, count(&event, 0, 2), "ivo", &ivo),
        pb::ReserveUnitsRequest { invitation_token: ivo, ..message.clone() },
    ];
    for other in others {
        let other = pb::ReserveUnitsRequest { hold_id: message.hold_id.clone(), ..other };
        let (code, text, metadata) = refusal(world.reserve(other).await);
        assert_eq!((code, &text[..]), (Code::InvalidArgument, "HOLD_ID_REUSED"));
        assert_eq!(metadata["hold_id"], message.hold_id);
    }
    assert_eq!(world.counts(&event).await, (14, 2));
    world.assert_counts().await;
}

#[tokio::test]
async fn invitation_needs_a_public_event_that_is_not_paused() {
    let world = World::start().await;
    let mut asked = an_event(vec![general("A", 5)]);
    asked.on_sale_time = time(3_800_000_000);
    let draft = world.create(asked).await.unwrap();
    let quota = world.keep(&draft, count(&draft, 0, 4)).await.unwrap();
    let token = world.invited(&quota, "ana", 2).await;
    let refused = |state: &'static str| {
        let (world, draft, token) = (&world, &draft, &token);
        async move {
            let hold = world.hold_invited(draft, count(draft, 0, 2), "ana", token).await;
            let (code, text, metadata) = refusal(hold);
            assert_eq!((code, &text[..]), (Code::FailedPrecondition, "EVENT_NOT_ON_SALE"));
            assert_eq!(metadata["state"], state);
        }
    };
    refused("DRAFT").await;
    let event = world.activate(&draft.event_id).await.unwrap();
    assert_eq!(reason(world.hold(&event, vec![count(&event, 0, 1)]).await).1, "EVENT_NOT_ON_SALE");
    let hold = world.hold_invited(&event, count(&event, 0, 2), "ana", &token).await.unwrap();
    world.release(&hold.hold_id).await.unwrap();
    world.postgres.execute("pause", "UPDATE event SET state = 'PAUSED'", &[]).await.unwrap();
    refused("PAUSED").await;
    world.activate(&draft.event_id).await.unwrap();
    world.end(&draft.event_id).await.unwrap();
    refused("ENDED").await;
    world.assert_counts().await;
}

#[tokio::test]
async fn tombstone_takes_nothing_from_the_quota() {
    let world = World::start().await;
    let event = world.on_sale(vec![general("A", 20)]).await;
    let quota = world.keep(&event, count(&event, 0, 6)).await.unwrap();
    let token = world.invited(&quota, "ana", 2).await;
    let message = an_invited_reservation(&event, count(&event, 0, 2), "ana", &token);
    world.release(&message.hold_id).await.unwrap();
    let hold = world.reserve(message).await.unwrap().hold.unwrap();
    assert_eq!((hold.state(), hold.items.len()), (HoldState::Released, 0));
    world.assert_counts().await;
    world.hold_invited(&event, count(&event, 0, 2), "ana", &token).await.unwrap();
}
