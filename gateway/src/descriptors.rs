//! Public contract as a descriptor set: the files of public services with their imports, the error reasons and
//! `google.rpc`. Envoy transcodes REST with it and reflection serves it. Files with an internal method are refused.

use std::collections::BTreeSet;

use onsale_kit::contract::{Contract, ContractError};
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{DescriptorError, DescriptorPool, FileDescriptor};

use crate::public::PublicMethods;

/// Number of the field `FileDescriptorSet.file`.
const FILE_FIELD: u32 = 1;

/// Reasons for a missing descriptor set.
#[derive(Debug, thiserror::Error)]
pub enum DescriptorsError {
    /// The options of the contracts cannot be read.
    #[error("failed to read the contracts")]
    Contract(#[source] ContractError),
    /// A descriptor set cannot be decoded.
    #[error("failed to read a descriptor set")]
    Decode(#[source] DescriptorError),
    /// A file with a public service also has an internal method.
    #[error("{file} has the internal method {method}; internal services have files of their own")]
    Mixed {
        /// Path of the contract file.
        file: String,
        /// Full name of the internal method.
        method: String,
    },
}

/// Returns the public contract and its imports as an encoded `FileDescriptorSet`. Options are kept.
pub fn public() -> Result<Vec<u8>, DescriptorsError> {
    let contract = Contract::load(&[onsale_proto::DESCRIPTORS]).map_err(DescriptorsError::Contract)?;
    public_of(onsale_proto::DESCRIPTORS, &PublicMethods::of(&contract))
}

fn public_of(descriptor_set: &[u8], public: &PublicMethods) -> Result<Vec<u8>, DescriptorsError> {
    let contracts = DescriptorPool::decode(descriptor_set).map_err(DescriptorsError::Decode)?;
    let errors =
        DescriptorPool::decode(tonic_types::pb::FILE_DESCRIPTOR_SET).map_err(DescriptorsError::Decode)?;
    let mut included = BTreeSet::new();
    for file in contracts.files().filter(|file| shows_public_service(file, public)) {
        add_with_imports(&file, &mut included);
    }
    let mut set = Vec::new();
    let mut written = BTreeSet::new();
    // Both pools keep the order of their sets, in which each file follows its imports.
    let files = contracts.files().filter(|file| included.contains(file.name())).chain(errors.files());
    for file in files {
        refuse_internal(&file, public)?;
        if written.insert(file.name().to_owned()) {
            append(&file, &mut set);
        }
    }
    Ok(set)
}

fn shows_public_service(file: &FileDescriptor, public: &PublicMethods) -> bool {
    let services = public.services();
    file.services().any(|service| services.contains(service.full_name()))
        // Clients need the error reasons, although no other file imports them.
        || file.name().ends_with("/error_reason.proto")
}

/// Adds the names of a file and of all its imports to `included`.
fn add_with_imports(file: &FileDescriptor, included: &mut BTreeSet<String>) {
    if included.insert(file.name().to_owned()) {
        for dependency in file.dependencies() {
            add_with_imports(&dependency, included);
        }
    }
}

fn refuse_internal(file: &FileDescriptor, public: &PublicMethods) -> Result<(), DescriptorsError> {
    for service in file.services() {
        for method in service.methods() {
            if !public.contains(&format!("/{}/{}", service.full_name(), method.name())) {
                let (file, method) = (file.name().to_owned(), method.full_name().to_owned());
                return Err(DescriptorsError::Mixed { file, method });
            }
        }
    }
    Ok(())
}

/// Appends one file to an encoded set. Encoded by hand, because `prost_types` would drop our options, which are extensions.
fn append(file: &FileDescriptor, set: &mut Vec<u8>) {
    let bytes = file.encode_to_vec();
    encode_key(FILE_FIELD, WireType::LengthDelimited, set);
    encode_varint(u64::try_from(bytes.len()).unwrap_or(u64::MAX), set);
    set.extend_from_slice(&bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> DescriptorPool {
        DescriptorPool::decode(public().unwrap().as_slice()).unwrap()
    }

    #[test]
    fn set_has_every_public_service_and_no_internal_file() {
        let contract = Contract::load(&[onsale_proto::DESCRIPTORS]).unwrap();
        let public = PublicMethods::of(&contract);
        let pool = pool();
        let shown: BTreeSet<_> = pool.services().map(|service| service.full_name().to_owned()).collect();
        assert_eq!(shown, public.services().into_iter().map(str::to_owned).collect());
        for file in pool.files() {
            assert!(!file.name().contains("internal"), "{}", file.name());
            assert!(!file.name().starts_with("onsale/events/"), "{}", file.name());
        }
    }

    #[test]
    fn methods_keep_their_options() {
        let set = public().unwrap();
        let contract = Contract::load(&[set.as_slice()]).unwrap();
        assert!(contract.methods().all(|method| method.http));
    }

    #[test]
    fn set_has_error_details_and_error_reasons() {
        for message in
            ["google.rpc.Status", "google.rpc.ErrorInfo", "google.rpc.BadRequest", "google.rpc.RetryInfo"]
        {
            assert!(pool().get_message_by_name(message).is_some(), "{message}");
        }
        assert!(pool().get_enum_by_name("onsale.claim.v1.ErrorReason").is_some());
    }

    #[test]
    fn file_with_public_and_internal_methods_is_refused() {
        let contract = Contract::load(&[onsale_proto::DESCRIPTORS]).unwrap();
        let public = PublicMethods::of(&contract);
        let without_one = public.without("/onsale.claim.v1.ClaimService/GetClaim");
        let refused = public_of(onsale_proto::DESCRIPTORS, &without_one).unwrap_err();
        assert!(matches!(refused, DescriptorsError::Mixed { .. }), "{refused}");
    }
}
