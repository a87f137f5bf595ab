//! What is internal is not there: by gRPC, by gRPC-Web, by REST, through Envoy, in any spelling.

use onsale_proto::auth::v1::Role;
use onsale_testkit::call;
use tokio_stream::StreamExt;
use tonic::{Code, Request, Status, transport::Channel};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::{
    raw,
    support::{Door, Envoy, internal_paths, public_methods},
};

/// Other ways to write a path that somebody might take for the same.
fn spellings(path: &str) -> Vec<String> {
    let (service, method) = path.trim_start_matches('/').split_once('/').expect("/service/method");
    vec![
        path.to_owned(),
        format!("/{path}"),
        format!("//{path}"),
        format!("{path}/"),
        format!("{path}?x=1"),
        format!("{path}#x"),
        format!("/{service}//{method}"),
        format!("/{service}%2F{method}"),
        format!("/{service}%2f{method}"),
        format!("/{service}%5C{method}"),
        format!("/{service}\\{method}"),
        format!("/./{service}/{method}"),
        format!("/x/../{service}/{method}"),
        format!("/x/%2e%2e/{service}/{method}"),
        format!("/webhooks/../{service}/{method}"),
        format!("/webhooks/%2e%2e/{service}/{method}"),
        format!("/dev/..%2f{service}/{method}"),
        format!("/onsale.queue.v1.QueueService/../{service}/{method}"),
        format!("/{service}/./{method}"),
        format!("/%6f{}/{method}", &service[1..]),
        format!("/{service}/%{:02x}{}", method.as_bytes()[0], &method[1..]),
        format!("/{}/{}", service.to_lowercase(), method.to_lowercase()),
        format!("/{}/{}", service.to_uppercase(), method.to_uppercase()),
        format!("/{service}/{method};x"),
        format!("/{service}/{method}%00"),
        format!("/{service}.{method}"),
        format!("http://door/{service}/{method}"),
    ]
}

#[tokio::test]
async fn an_internal_method_is_unknown_to_grpc() {
    let door = Door::open().await;
    let channel = door.channel().await;
    for path in internal_paths() {
        for token in [None, Some(door.issuer.token(Role::Service)), Some(door.issuer.token(Role::Staff))] {
            let status = call(&channel, &path, token.as_deref()).await.expect_err(&path);
            assert_eq!(status.code(), Code::Unimplemented, "{path}: {status:?}");
        }
    }
    assert!(door.services.seen().is_empty());
    door.close().await;
}

#[tokio::test]
async fn no_spelling_of_an_internal_method_leads_in() {
    let door = Door::open().await;
    let envoy = Envoy::start(&door).await;
    let bearer = format!("Bearer {}", door.issuer.token(Role::Service));
    for address in [door.http, envoy.address] {
        for path in internal_paths().iter().flat_map(|path| spellings(path)) {
            for content_type in ["application/grpc-web+proto", "application/grpc", "application/json"] {
                let headers =
                    [("content-type", content_type), ("authorization", bearer.as_str()), ("te", "trailers")];
                raw::post(address, &path, &headers).await;
                let seen = door.services.seen();
                assert!(seen.is_empty(), "{path} as {content_type} at {address} reached {seen:?}");
            }
        }
    }
    drop(envoy);
    door.close().await;
}

#[tokio::test]
async fn headers_that_rewrite_paths_lead_nowhere() {
    let door = Door::open().await;
    let envoy = Envoy::start(&door).await;
    let bearer = format!("Bearer {}", door.issuer.token(Role::Service));
    let internal = "/onsale.claim.v1.ClaimInternalService/ConfirmClaim";
    for name in [
        "x-original-url",
        "x-rewrite-url",
        "x-envoy-original-path",
        "x-forwarded-prefix",
        "x-http-method-override",
    ] {
        let headers = [
            ("content-type", "application/grpc-web+proto"),
            ("authorization", bearer.as_str()),
            (name, internal),
        ];
        for path in ["/", "/onsale.inventory.v1.EventService/GetEvent"] {
            raw::post(envoy.address, path, &headers).await;
            assert!(door.services.seen().is_empty(), "{name}");
        }
    }
    drop(envoy);
    door.close().await;
}

async fn reflect(channel: Channel, request: MessageRequest) -> Result<MessageResponse, Status> {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let mut client = ServerReflectionClient::new(channel);
    let answers = client.server_reflection_info(Request::new(tokio_stream::iter([request]))).await;
    let mut answers = answers.expect("reflection answers").into_inner();
    let answer = answers.next().await.expect("an answer")?;
    Ok(answer.message_response.expect("an answer"))
}

#[tokio::test]
async fn reflection_shows_what_is_public_and_nothing_else() {
    let door = Door::open().await;
    let envoy = Envoy::start(&door).await;
    for channel in [door.channel().await, envoy.channel().await] {
        let Ok(MessageResponse::ListServicesResponse(list)) =
            reflect(channel.clone(), MessageRequest::ListServices(String::new())).await
        else {
            panic!("no list")
        };
        let listed: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
        for service in public_methods().services() {
            assert!(listed.contains(&service), "{service}");
            let symbol = MessageRequest::FileContainingSymbol(service.to_owned());
            let found = reflect(channel.clone(), symbol).await;
            assert!(matches!(found, Ok(MessageResponse::FileDescriptorResponse(_))), "{service}");
        }
        for symbol in ["onsale.claim.v1.ClaimInternalService", "onsale.payment.v1.HandleWebhookRequest"] {
            let hidden =
                reflect(channel.clone(), MessageRequest::FileContainingSymbol(symbol.to_owned())).await;
            assert_eq!(hidden.expect_err(symbol).code(), Code::NotFound);
        }
        let file = MessageRequest::FileByFilename("onsale/claim/v1/claim_internal_service.proto".to_owned());
        assert_eq!(reflect(channel, file).await.expect_err("internal").code(), Code::NotFound);
        assert!(!listed.iter().any(|service| service.contains("Internal")), "{listed:?}");
    }
    drop(envoy);
    door.close().await;
}
