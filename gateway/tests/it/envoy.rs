//! Envoy accepts its configuration, routes all public methods and enforces the rate limit.

use onsale_gateway::envoy::EnvoySettings;
use onsale_proto::auth::v1::Role;
use onsale_testkit::call;
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::support::{Envoy, TestGateway, envoy_program, http_client, public_methods, write_config};

#[tokio::test]
async fn envoy_accepts_the_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let production = EnvoySettings {
        listen: ([0, 0, 0, 0], 8080).into(),
        gateway_grpc: "gateway.onsale.svc:7100".parse().expect("host:port"),
        gateway_http: "gateway.onsale.svc:7110".parse().expect("host:port"),
        descriptor_path: folder.path().join("onsale.pb"),
        cors_origins: vec!["https://tickets.example".to_owned()],
        ..EnvoySettings::default()
    };
    let bare = EnvoySettings { cors_origins: Vec::new(), ..production.clone() };
    for settings in [production, bare] {
        let config = write_config(&settings, folder.path());
        let validated = tokio::process::Command::new(envoy_program())
            .args(["--mode", "validate", "-c"])
            .arg(config)
            .output()
            .await
            .expect("Envoy runs: scripts/setup.sh installs it");
        assert!(validated.status.success(), "{}", String::from_utf8_lossy(&validated.stderr));
    }
}

#[tokio::test]
async fn every_public_method_is_reachable_through_envoy() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    let channel = envoy.channel().await;
    for method in public_methods().iter() {
        let outside = [Role::Customer, Role::Organizer, Role::Staff];
        let role = outside.into_iter().find(|role| method.roles.contains(*role)).unwrap_or(Role::Customer);
        let token = gateway.issuer.token(role);
        call(&channel, &method.path, Some(&token))
            .await
            .unwrap_or_else(|status| panic!("{}: {status:?}", method.path));
        assert_eq!(gateway.services.last_call().path, method.path);
    }
    drop(channel);
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn unknown_method_is_unimplemented() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start(&gateway).await;
    let channel = envoy.channel().await;
    for path in ["/onsale.queue.v1.QueueService/Nothing", "/nobody.Service/Method"] {
        let status = call(&channel, path, None).await.expect_err("the method does not exist");
        assert_eq!(status.code(), Code::Unimplemented, "{status:?}");
    }
    drop(channel);
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn health_checks_are_exempt_from_the_rate_limit() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start_with(&gateway, |settings| settings.requests_per_second = 1).await;
    let mut client = HealthClient::new(envoy.channel().await);
    for _ in 0..5 {
        let checked = client.check(HealthCheckRequest::default()).await.expect("healthy").into_inner();
        assert_eq!(checked.status(), tonic_health::pb::health_check_response::ServingStatus::Serving);
    }
    drop(client);
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn calls_over_the_rate_limit_are_refused() {
    let gateway = TestGateway::open().await;
    let envoy = Envoy::start_with(&gateway, |settings| settings.requests_per_second = 1).await;
    let channel = envoy.channel().await;
    let mut codes = Vec::new();
    for _ in 0..4 {
        let called = call(&channel, "/onsale.inventory.v1.EventService/GetEvent", None).await;
        codes.push(called.map_or_else(|status| status.code(), |()| Code::Ok));
    }
    assert!(codes.contains(&Code::ResourceExhausted), "{codes:?}");
    let response = http_client().get(envoy.url("/api/v1/events/1")).send().await.expect("a response");
    assert_eq!(response.status(), 429, "REST requests count too");
    drop(channel);
    drop(envoy);
    gateway.close().await;
}
