//! Which methods of the contracts have no behaviour yet. Every service is started, every method called by somebody who
//! may call it; those that answer METHOD_NOT_IMPLEMENTED must be exactly the ones the README lists.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};

use onsale_kit::contract::{Contract, Method};
use onsale_proto::{auth::v1::Role, r#type::v1::ErrorReason};
use onsale_testkit::service::TestService;
use onsale_tests::repository;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt;

const BEGIN: &str = "<!-- unserved methods: begin -->";
const END: &str = "<!-- unserved methods: end -->";

fn contract() -> Contract {
    Contract::load(&[onsale_proto::DESCRIPTORS]).unwrap()
}

/// Calls `method` with an empty message. Whatever comes back is read as an empty message too: fields are skipped.
async fn call(channel: Channel, method: &Method, authorization: &str) -> Result<(), Status> {
    let mut client = Grpc::new(channel);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path: PathAndQuery = method.path.parse().unwrap();
    let mut request = Request::new(());
    let value: MetadataValue<Ascii> = authorization.parse().unwrap();
    request.metadata_mut().insert("authorization", value);
    let codec = ProstCodec::<(), ()>::default();
    if method.server_streaming {
        client.server_streaming(request, path, codec).await?.into_inner().message().await.map(drop)
    } else {
        client.unary(request, path, codec).await.map(drop)
    }
}

/// Whether a running service says that the method has no behaviour yet.
async fn is_unserved(service: &TestService, channel: Channel, method: &Method) -> bool {
    let role = method.roles.iter().next().unwrap();
    let authorization = match role {
        Role::Service => service.mint.service_tokens("tests").bearer().to_str().unwrap().to_owned(),
        Role::Anyone => format!("Bearer {}", service.mint.token(Role::Customer)),
        Role::Customer | Role::Organizer | Role::Staff | Role::Unspecified => {
            format!("Bearer {}", service.mint.token(role))
        }
    };
    let Err(status) = call(channel, method, &authorization).await else { return false };
    let reason = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
    assert!(
        !matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied),
        "{} turned away {role:?}: {status:?}",
        method.path
    );
    status.code() == Code::Unimplemented
        && reason == ErrorReason::MethodNotImplemented.as_str_name().trim_start_matches("ERROR_REASON_")
}

/// The unserved methods of one service, as `Service: Method, Method`.
macro_rules! unserved_of {
    ($contract:expr, $service:ident, $into:expr) => {{
        let running =
            TestService::start($service::SERVICE, $service::DEFAULTS, $service::build).await.unwrap();
        let channel = running.channel().await.unwrap();
        let package = format!("onsale.{}.v1.", $service::SERVICE);
        for method in $contract.methods().filter(|method| method.service.starts_with(&package)) {
            if is_unserved(&running, channel.clone(), method).await {
                let methods: &mut BTreeSet<String> = $into.entry(method.service.clone()).or_default();
                methods.insert(method.name.clone());
            }
        }
        drop(channel);
        running.server.shutdown().await;
    }};
}

#[tokio::test]
async fn the_readme_lists_exactly_the_methods_without_behaviour() {
    let contract = contract();
    let mut unserved: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    unserved_of!(contract, onsale_queue, unserved);
    unserved_of!(contract, onsale_inventory, unserved);
    unserved_of!(contract, onsale_claim, unserved);
    unserved_of!(contract, onsale_payment, unserved);
    unserved_of!(contract, onsale_ticketing, unserved);
    unserved_of!(contract, onsale_notification, unserved);

    let count: usize = unserved.values().map(BTreeSet::len).sum();
    let all = contract.methods().count();
    let mut expected =
        format!("{count} of {all} methods have no behaviour yet:\n\n| service | methods |\n|---|---|\n");
    for (service, methods) in &unserved {
        let names: Vec<&str> = methods.iter().map(String::as_str).collect();
        let short = service.trim_start_matches("onsale.");
        expected.push_str(&format!("| {short} | {} |\n", names.join(", ")));
    }
    println!("{expected}");

    let readme = repository::read("README.md");
    let listed =
        readme.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map(|(list, _)| list.trim());
    assert_eq!(listed, Some(expected.trim()), "put this between the two marks in README.md:\n{expected}");
}

#[test]
fn every_contract_belongs_to_a_service() {
    for method in contract().methods() {
        let owner = method.service.trim_start_matches("onsale.").split('.').next().unwrap_or_default();
        assert!(repository::SERVICES.contains(&owner), "nobody serves {}", method.path);
    }
}
