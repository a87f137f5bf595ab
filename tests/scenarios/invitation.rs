//! A purchase without a queue: an organizer reserves a quota and invites a customer by mail, who accepts with the token from
//! the mail, claims and pays.

use onsale::{front_door::FrontDoor, retry::reason};
use onsale_kit::deadline::Deadline;
use onsale_proto::{
    claim::v1::{Claim, CreateClaimRequest, create_claim_request::Right},
    inventory::v1::{
        AcceptInvitationRequest, CreateQuotaRequest, Event, InvitationState, InviteToQuotaRequest, Invitee,
        ListQuotasRequest, Quota,
    },
};
use tonic::Status;

use super::support::{
    TIMEOUT,
    mesh::{self, Mesh},
    sale,
};
use onsale::front_door::Person;

async fn reserve_quota(organizer: &Person, event: &Event, count: u32) -> Quota {
    let request = CreateQuotaRequest {
        request_id: sale::new_id(),
        event_id: event.event_id.clone(),
        name: "Season ticket holders".to_owned(),
        selection: Some(sale::any_units(&event.sectors[0], count)),
        return_time: Some(sale::in_days(7)),
    };
    organizer.quotas().create_quota(request).await.unwrap().into_inner().quota.unwrap()
}

async fn invite(organizer: &Person, quota: &Quota, email: &str, unit_count: u32) {
    let invitee = Invitee { email: email.to_owned(), unit_count, locale: "en".to_owned() };
    let request = InviteToQuotaRequest {
        request_id: sale::new_id(),
        quota_id: quota.quota_id.clone(),
        invitees: vec![invitee],
    };
    organizer.quotas().invite_to_quota(request).await.unwrap();
}

/// Returns the invitation token from the link in the newest mail to `email`.
async fn token_from_mail(mesh: &Mesh, door: &FrontDoor, email: &str) -> String {
    let deadline = Deadline::after(TIMEOUT);
    let mail = onsale::buy::order::wait_for_mail(door, mesh.mail_url(), email, deadline).await.unwrap();
    let request = door.http().get(format!("{}/api/mails/{}", mesh.mail_url(), mail.id));
    let mail: serde_json::Value = request.send().await.unwrap().json().await.unwrap();
    let text = mail["text"].as_str().unwrap();
    let (_, link) = text.split_once("/invitation#token=").unwrap_or_else(|| panic!("no link in {text}"));
    link.split_whitespace().next().unwrap().to_owned()
}

fn accepting(token: &str) -> AcceptInvitationRequest {
    AcceptInvitationRequest { request_id: sale::new_id(), invitation_token: token.to_owned() }
}

async fn claim(person: &Person, event: &Event, token: &str, count: u32) -> Result<Claim, Status> {
    let request = CreateClaimRequest {
        request_id: sale::new_id(),
        event_id: event.event_id.clone(),
        right: Some(Right::InvitationToken(token.to_owned())),
        selections: vec![sale::any_units(&event.sectors[0], count)],
    };
    Ok(person.claims().create_claim(request).await?.into_inner().claim.unwrap())
}

#[tokio::test]
async fn invitee_buys_quota_units_without_a_turn() {
    let mesh = mesh::shared();
    let door = mesh.front_door();
    let (organizer, event) = sale::on_sale(&door, vec![sale::seated(2, 5)]).await;
    let quota = reserve_quota(&organizer, &event, 5).await;
    let (person, thief) = (sale::customer(&door).await, sale::customer(&door).await);
    invite(&organizer, &quota, &person.email, 2).await;
    let token = token_from_mail(mesh, &door, &person.email).await;

    let refused = claim(&person, &event, &token, 2).await.unwrap_err();
    assert_eq!(reason(&refused).as_deref(), Some("INVITATION_NOT_ACCEPTED"), "{refused}");
    let answer = person.quotas().accept_invitation(accepting(&token)).await.unwrap().into_inner();
    assert_eq!(answer.invitation.unwrap().state(), InvitationState::Accepted);
    let refused = thief.quotas().accept_invitation(accepting(&token)).await.unwrap_err();
    assert_eq!(reason(&refused).as_deref(), Some("INVITATION_ACCEPTED_BY_ANOTHER"), "{refused}");
    let refused = claim(&thief, &event, &token, 1).await.unwrap_err();
    assert_eq!(reason(&refused).as_deref(), Some("INVITATION_ACCEPTED_BY_ANOTHER"), "{refused}");

    let claimed = claim(&person, &event, &token, 2).await.unwrap();
    assert_eq!(claimed.items[0].group_count, 1, "the seats are adjacent");
    let stock = sale::availability(&person, &event).await.remove(0);
    assert_eq!((stock.free_count, stock.held_count), (5, 2));
    let buyer = sale::buyer(&door, &person, &event.event_id);
    sale::pay(&buyer, &claimed).await;
    assert_eq!(buyer.tickets(&claimed.claim_id, 2).await.unwrap().len(), 2);
    let request = ListQuotasRequest { event_id: event.event_id.clone(), ..ListQuotasRequest::default() };
    let quotas = organizer.quotas().list_quotas(request).await.unwrap().into_inner().quotas;
    assert_eq!((quotas[0].unit_count, quotas[0].invited_count, quotas[0].used_count), (5, 0, 2));
    let again = claim(&person, &event, &token, 1).await.unwrap_err();
    assert_eq!(reason(&again).as_deref(), Some("INVITATION_USED"), "{again}");
    mesh.audit().await;
}
