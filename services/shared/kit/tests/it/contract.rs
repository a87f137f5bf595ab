//! Contract options: every method names its permitted roles.

use onsale_kit::contract::{Contract, ContractError, RoleSet};
use onsale_proto::auth::v1::Role;
use onsale_testkit::echo;
use prost::Message;
use prost_types::{FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto};

#[test]
fn every_method_names_its_permitted_roles() {
    let contract = Contract::load(&[onsale_proto::DESCRIPTORS]).expect("no method lacks the option");
    assert!(contract.methods().count() > 0);
    for method in contract.methods() {
        assert!(!method.roles.is_empty(), "{}", method.path);
    }
}

#[test]
fn options_are_read() {
    let contract = Contract::load(&[onsale_proto::DESCRIPTORS, echo::DESCRIPTORS]).expect("good contracts");
    let method = |name: &str| {
        let path = format!("/onsale.testkit.v1.EchoService/{name}");
        contract.method(&path).unwrap_or_else(|| panic!("no {path}"))
    };
    assert_eq!(method("Watch").roles, RoleSet::of(&[Role::Customer, Role::Service]));
    assert!(
        method("Watch").server_streaming
            && !method("Watch").client_streaming
            && !method("Echo").server_streaming
    );
    assert!(method("Echo").idempotent && !method("EchoOnce").idempotent);
    assert!(contract.methods().any(|method| method.http), "public methods have REST");
    assert!(!method("Echo").http);
}

#[test]
fn every_method_without_the_access_option_is_named() {
    let method = |name: &str| MethodDescriptorProto {
        name: Some(name.to_owned()),
        input_type: Some(".google.protobuf.Empty".to_owned()),
        output_type: Some(".google.protobuf.Empty".to_owned()),
        ..Default::default()
    };
    let service = ServiceDescriptorProto {
        name: Some("OpenService".to_owned()),
        method: vec![method("One"), method("Two")],
        ..Default::default()
    };
    let file = FileDescriptorProto {
        name: Some("open.proto".to_owned()),
        package: Some("open.v1".to_owned()),
        dependency: vec!["google/protobuf/empty.proto".to_owned()],
        service: vec![service],
        syntax: Some("proto3".to_owned()),
        ..Default::default()
    };
    let empty = FileDescriptorProto {
        name: Some("google/protobuf/empty.proto".to_owned()),
        package: Some("google.protobuf".to_owned()),
        message_type: vec![prost_types::DescriptorProto {
            name: Some("Empty".to_owned()),
            ..Default::default()
        }],
        syntax: Some("proto3".to_owned()),
        ..Default::default()
    };
    let set = FileDescriptorSet { file: vec![empty, file] }.encode_to_vec();
    let error = Contract::load(&[&set]).expect_err("two methods lack the option");
    let ContractError::Access(offenders) = &error else { panic!("{error:?}") };
    assert_eq!(offenders.len(), 2, "{error}");
    assert!(error.to_string().contains("open.v1.OpenService.One"), "{error}");
    assert!(error.to_string().contains("open.v1.OpenService.Two"), "{error}");
}
