//! A purchase by REST: Envoy transcodes JSON to gRPC and back.

use onsale_testkit::wait_until;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use onsale::front_door::{FrontDoor, Person};

use super::support::{TIMEOUT, mesh, sale};

async fn send(
    door: &FrontDoor,
    person: &Person,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> (StatusCode, Value) {
    let mut request =
        door.http().request(method, format!("{}/api/v1{path}", door.url())).bearer_auth(&person.token);
    if let Some(body) = body {
        request = request.json(&body);
    }
    let answer = request.send().await.unwrap();
    let status = answer.status();
    let text = answer.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{path} answered {status}: {text}")))
}

async fn ok(door: &FrontDoor, person: &Person, method: Method, path: &str, body: Option<Value>) -> Value {
    let (status, answer) = send(door, person, method, path, body).await;
    assert_eq!(status, StatusCode::OK, "{path}: {answer}");
    answer
}

#[tokio::test]
async fn partner_buys_by_rest() {
    let mesh = mesh::shared();
    let door = mesh.front_door();
    let (_, event) = sale::on_sale(&door, vec![sale::general(10)]).await;
    let person = sale::customer(&door).await;
    let event_id = &event.event_id;

    let body = json!({ "requestId": sale::new_id() });
    let joined = ok(&door, &person, Method::POST, &format!("/queue/{event_id}/join"), Some(body)).await;
    assert_eq!(joined["standing"]["entry"]["seq"], "1", "64-bit numbers are strings in JSON");

    let path = format!("/queue/{event_id}/position");
    wait_until("the turn is granted", TIMEOUT, || async {
        let standing = ok(&door, &person, Method::GET, &path, None).await;
        standing["standing"]["turn"]["token"].is_string()
    })
    .await;
    let standing = ok(&door, &person, Method::GET, &path, None).await;
    let token = standing["standing"]["turn"]["token"].as_str().unwrap();

    let wish = |count: Value| {
        json!({
            "requestId": sale::new_id(), "turnToken": token,
            "selections": [{ "sectorId": event.sectors[0].sector_id, "count": count }],
        })
    };
    // Counts outside the range or the type of the contract are refused and hold no unit.
    for count in [json!(-1), json!(0), json!(1.5), json!(4_294_967_297_u64), json!("many"), json!(11)] {
        let url = format!("{}/api/v1/events/{event_id}/claims", door.url());
        let answer = door.http().post(url).bearer_auth(&person.token).json(&wish(count.clone())).send().await;
        assert_eq!(answer.unwrap().status(), StatusCode::BAD_REQUEST, "{count}");
        let free = sale::availability(&person, &event).await.remove(0);
        assert_eq!((free.free_count, free.held_count), (10, 0), "{count}");
    }
    let body = wish(json!(2));
    let claim = ok(&door, &person, Method::POST, &format!("/events/{event_id}/claims"), Some(body)).await;
    let claim_id = claim["claim"]["claimId"].as_str().unwrap();
    assert_eq!(claim["claim"]["total"]["amountMinor"], "9800");

    let body = json!({ "requestId": sale::new_id() });
    let payment = ok(&door, &person, Method::POST, &format!("/claims/{claim_id}/payments"), Some(body)).await;
    let checkout = payment["payment"]["checkoutUrl"].as_str().unwrap();
    let paid = door.http().post(format!("{checkout}/pay")).header("accept", "application/json").send().await;
    assert!(paid.unwrap().status().is_success());

    wait_until("the tickets are issued", TIMEOUT, || async {
        let listed = ok(&door, &person, Method::GET, &format!("/tickets?claimId={claim_id}"), None).await;
        listed["tickets"].as_array().is_some_and(|tickets| tickets.len() == 2)
    })
    .await;
    mesh.audit().await;
}

#[tokio::test]
async fn refusal_is_json_with_its_reason() {
    let mesh = mesh::shared();
    let door = mesh.front_door();
    let person = sale::customer(&door).await;
    let nowhere = sale::new_id();
    let body = json!({ "requestId": sale::new_id() });
    let (status, answer) =
        send(&door, &person, Method::POST, &format!("/queue/{nowhere}/join"), Some(body)).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let details = answer["details"].to_string();
    assert!(details.contains("EVENT_NOT_FOUND"), "{answer}");

    let (status, answer) =
        send(&door, &person, Method::POST, "/queue/not-a-uuid/join", Some(json!({}))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let details = answer["details"].to_string();
    assert!(details.contains("event_id") && details.contains("request_id"), "lists all violations: {answer}");
}
