//! Contract methods without an implementation. The test starts every service and calls every method with a permitted role;
//! the README must list exactly the methods that return METHOD_NOT_IMPLEMENTED.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};

use onsale_kit::contract::{Contract, Method};
use onsale_proto::{auth::v1::Role, r#type::v1::ErrorReason};
use onsale_testkit::service::TestService;
use onsale_tests::{repository, settings};
use tonic::{Code, transport::Channel};
use tonic_types::StatusExt;

const BEGIN: &str = "<!-- unserved methods: begin -->";
const END: &str = "<!-- unserved methods: end -->";

fn contract() -> Contract {
    Contract::load(&[onsale_proto::DESCRIPTORS]).unwrap()
}

/// Returns true if a running service returns METHOD_NOT_IMPLEMENTED for the method.
async fn is_unserved(service: &TestService, channel: &Channel, method: &Method) -> bool {
    let role = method.roles.iter().find(|role| *role != Role::Anyone).unwrap_or(Role::Customer);
    let token = service.issuer.token(role);
    let Err(status) = onsale_testkit::call(channel, &method.path, Some(&token)).await else { return false };
    let reason = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
    assert!(
        !matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied),
        "{} refused a permitted role, {role:?}: {status:?}",
        method.path
    );
    status.code() == Code::Unimplemented
        && reason == ErrorReason::MethodNotImplemented.as_str_name().trim_start_matches("ERROR_REASON_")
}

/// Starts one service and adds its unserved methods to a map from contract service to method names.
macro_rules! unserved_of {
    ($contract:expr, $service:ident, $into:expr) => {{
        let settings = settings::required($service::SERVICE).unwrap();
        let settings: Vec<_> = settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let running =
            TestService::start_with($service::SERVICE, $service::DEFAULTS, &settings, $service::build)
                .await
                .unwrap();
        let channel = running.channel().await.unwrap();
        let package = format!("onsale.{}.v1.", $service::SERVICE);
        for method in $contract.methods().filter(|method| method.service.starts_with(&package)) {
            if is_unserved(&running, &channel, method).await {
                let methods: &mut BTreeSet<String> = $into.entry(method.service.clone()).or_default();
                methods.insert(method.name.clone());
            }
        }
        drop(channel);
        running.server.shutdown().await;
    }};
}

#[tokio::test]
async fn readme_lists_exactly_the_unserved_methods() {
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
        format!("{count} of {all} methods are not implemented yet:\n\n| service | methods |\n|---|---|\n");
    for (service, methods) in &unserved {
        let names: Vec<&str> = methods.iter().map(String::as_str).collect();
        let short = service.trim_start_matches("onsale.");
        expected.push_str(&format!("| {short} | {} |\n", names.join(", ")));
    }
    println!("{expected}");

    let readme = repository::read("README.md");
    let listed =
        readme.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map(|(list, _)| list.trim());
    assert_eq!(
        listed,
        Some(expected.trim()),
        "put this text between the two marks in README.md:\n{expected}"
    );
}

#[test]
fn every_contract_method_belongs_to_a_service() {
    for method in contract().methods() {
        let owner = method.service.trim_start_matches("onsale.").split('.').next().unwrap_or_default();
        assert!(repository::SERVICES.contains(&owner), "no service serves {}", method.path);
    }
}
