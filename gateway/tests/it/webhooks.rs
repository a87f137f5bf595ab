//! Webhooks reach Payment byte for byte, and a provider receives 200 only after Payment has accepted them.

use onsale_kit::error::DOMAIN;
use onsale_proto::payment::v1::{HandleWebhookRequest, HandleWebhookResponse, Provider};
use tokio::io::AsyncWriteExt;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::support::{Envoy, TIMEOUT, TestGateway, http_client};

const HANDLE: &str = "/onsale.payment.v1.PaymentInternalService/HandleWebhook";

fn refused(code: Code, reason: &str) -> Status {
    Status::with_error_details(code, "why", ErrorDetails::with_error_info(reason, DOMAIN, []))
}

#[tokio::test]
async fn raw_body_and_provider_headers_reach_payment() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    // Bytes that no text or JSON parser would preserve.
    let body: Vec<u8> = (0..=255).chain(*b"{ \"b\": 1,  \"a\":\t2.0 }\r\n").collect();
    for address in [gateway.http, envoy.address] {
        let response = http_client()
            .post(format!("http://{address}/webhooks/stripe"))
            .header("stripe-signature", "t=1,v1=abc")
            .header("content-type", "application/json")
            .header("cookie", "session=1")
            .header("authorization", "Bearer of-the-provider")
            .header("x-onsale-roles", "SERVICE")
            .body(body.clone())
            .send()
            .await
            .expect("a response");
        assert_eq!(response.status(), 200);
        let received = gateway.services.last_call();
        assert_eq!(received.path, HANDLE);
        assert_eq!(received.identity.as_ref().map(|identity| identity.subject.as_str()), Some("gateway"));
        let webhook: HandleWebhookRequest = received.message();
        assert_eq!(webhook.provider(), Provider::Stripe);
        assert_eq!(webhook.body, body);
        assert!(webhook.receive_time.is_some());
        let header = |name: &str| webhook.headers.iter().find(|header| header.name == name);
        assert_eq!(header("stripe-signature").expect("the signature").value, b"t=1,v1=abc");
        for name in ["cookie", "authorization", "x-onsale-roles", "x-forwarded-for"] {
            assert!(header(name).is_none(), "{name}");
        }
    }
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn response_depends_on_the_status_of_payment() {
    let gateway = TestGateway::open().await;
    let post = async |provider: &str| {
        let request = http_client().post(format!("http://{}/webhooks/{provider}", gateway.http)).body("{}");
        request.send().await.expect("a response")
    };
    gateway.services.respond_with(HANDLE, &HandleWebhookResponse { duplicate: true });
    assert_eq!(post("sandbox").await.status(), 200);
    for (status, expected) in [
        (refused(Code::PermissionDenied, "WEBHOOK_SIGNATURE_INVALID"), 403),
        (refused(Code::PermissionDenied, "WEBHOOK_TOO_OLD"), 403),
        (refused(Code::InvalidArgument, "WEBHOOK_MALFORMED"), 400),
        (refused(Code::FailedPrecondition, "PROVIDER_NOT_CONFIGURED"), 404),
        // Failures on our side: the provider must retry.
        (refused(Code::PermissionDenied, "ROLE_MISSING"), 503),
        (refused(Code::Internal, "INTERNAL"), 503),
        (refused(Code::ResourceExhausted, "OVERLOADED"), 503),
    ] {
        gateway.services.fail_in_headers(HANDLE, status.clone());
        let response = post("sandbox").await;
        assert_eq!(response.status(), expected, "{status:?}");
        assert_eq!(response.headers().contains_key("retry-after"), expected == 503);
    }
    gateway.close().await;
}

#[tokio::test]
async fn invalid_webhooks_do_not_reach_payment() {
    let gateway = TestGateway::open_with(&[("HTTP__WEBHOOK_BYTES_MAX", "1000")]).await;
    let url = |path: &str| format!("http://{}/webhooks/{path}", gateway.http);
    let long = http_client().post(url("stripe")).body("x".repeat(1001)).send().await.expect("a response");
    assert_eq!(long.status(), 413);
    for path in ["unspecified", "STRIPE", "nobody", "stripe/x"] {
        let response = http_client().post(url(path)).body("{}").send().await.expect("a response");
        assert_eq!(response.status(), 404, "{path}");
    }
    let read = http_client().get(url("stripe")).send().await.expect("a response");
    assert_eq!(read.status(), 405);
    assert!(gateway.services.calls().is_empty());
    gateway.close().await;
}

#[tokio::test]
async fn slow_webhook_releases_its_permit_after_the_timeout() {
    let gateway =
        TestGateway::open_with(&[("HTTP__REQUESTS_IN_FLIGHT_MAX", "1"), ("HTTP__REQUEST_TIMEOUT", "2s")])
            .await;
    let mut slow = tokio::net::TcpStream::connect(gateway.http).await.expect("the port is open");
    let head = b"POST /webhooks/sandbox HTTP/1.1\r\nhost: gateway\r\ncontent-length: 10\r\n\r\n{";
    slow.write_all(head).await.expect("the request begins");
    let post = async || {
        let request = http_client().post(format!("http://{}/webhooks/sandbox", gateway.http)).body("{}");
        request.send().await.expect("a response")
    };
    onsale_testkit::wait_until("the permit is in use", TIMEOUT, async || post().await.status() == 503).await;
    assert!(post().await.headers().contains_key("retry-after"));
    onsale_testkit::wait_until("the permit is released", TIMEOUT, async || post().await.status() == 200)
        .await;
    gateway.close().await;
}
