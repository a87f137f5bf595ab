//! Internal methods are unreachable: by gRPC, gRPC-Web and REST, directly and through Envoy, in any spelling of the path.

use onsale_proto::auth::v1::Role;
use onsale_testkit::call;
use tokio_stream::StreamExt;
use tonic::{Code, Request, Status, transport::Channel};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::{
    raw_http,
    support::{Envoy, TestGateway, internal_paths, public_methods},
};

/// Returns spellings of a path that a lenient server could treat as equal.
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
        format!("http://gateway/{service}/{method}"),
    ]
}

#[tokio::test]
async fn internal_methods_are_unimplemented_over_grpc() {
    let gateway = TestGateway::open().await;
    let channel = gateway.channel().await;
    for path in internal_paths() {
        for token in
            [None, Some(gateway.issuer.token(Role::Service)), Some(gateway.issuer.token(Role::Staff))]
        {
            let status = call(&channel, &path, token.as_deref()).await.expect_err(&path);
            assert_eq!(status.code(), Code::Unimplemented, "{path}: {status:?}");
        }
    }
    assert!(gateway.services.calls().is_empty());
    gateway.close().await;
}

#[tokio::test]
async fn no_spelling_of_an_internal_path_is_forwarded() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    let bearer = format!("Bearer {}", gateway.issuer.token(Role::Service));
    for address in [gateway.http, envoy.address] {
        for path in internal_paths().iter().flat_map(|path| spellings(path)) {
            for content_type in ["application/grpc-web+proto", "application/grpc", "application/json"] {
                let headers =
                    [("content-type", content_type), ("authorization", bearer.as_str()), ("te", "trailers")];
                raw_http::post(address, &path, &headers).await;
                let calls = gateway.services.calls();
                assert!(calls.is_empty(), "{path} as {content_type} at {address} reached {calls:?}");
            }
        }
    }
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn path_rewriting_headers_are_ignored() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    let bearer = format!("Bearer {}", gateway.issuer.token(Role::Service));
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
            raw_http::post(envoy.address, path, &headers).await;
            assert!(gateway.services.calls().is_empty(), "{name}");
        }
    }
    drop(envoy);
    gateway.close().await;
}

async fn reflect(channel: Channel, request: MessageRequest) -> Result<MessageResponse, Status> {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let mut client = ServerReflectionClient::new(channel);
    let responses = client.server_reflection_info(Request::new(tokio_stream::iter([request]))).await;
    let mut responses = responses.expect("reflection responds").into_inner();
    let response = responses.next().await.expect("a response")?;
    Ok(response.message_response.expect("a response"))
}

#[tokio::test]
async fn reflection_shows_only_the_public_contract() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    for channel in [gateway.channel().await, envoy.channel().await] {
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
    gateway.close().await;
}
