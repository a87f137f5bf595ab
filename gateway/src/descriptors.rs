//! The contracts as the outside may see them: public services, what their messages are made of, and how errors look.
//! Envoy transcodes by them and reflection shows them. A file with an internal service is not among them.

use std::collections::BTreeSet;

use onsale_kit::contract::{Contract, ContractError};
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{DescriptorError, DescriptorPool, FileDescriptor};

use crate::public::PublicMethods;

/// `FileDescriptorSet.file`.
const FILE_FIELD: u32 = 1;

/// Why there is no such set.
#[derive(Debug, thiserror::Error)]
pub enum DescriptorsError {
    /// The contracts cannot be read.
    #[error("failed to read the contracts")]
    Contract(#[source] ContractError),
    /// The descriptors cannot be read.
    #[error("failed to read a descriptor set")]
    Decode(#[source] DescriptorError),
    /// A file that would be shown has an internal method.
    #[error("{file} has the internal method {method}; internal services have files of their own")]
    Mixed {
        /// Which file.
        file: String,
        /// Which method.
        method: String,
    },
}

/// The public contracts, as an encoded `FileDescriptorSet` with all it imports. Options are kept.
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
    // Both pools keep the order of their sets, in which a file comes after all it imports.
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
        // Nobody imports the reasons of errors, and everybody needs them.
        || file.name().ends_with("/error_reason.proto")
}

/// Marks a file and all it imports.
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

/// Adds one file to an encoded set. By hand, because a typed set would drop our options, which are extensions.
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
    fn every_public_service_is_in_it_and_nothing_internal() {
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
    fn errors_can_be_read_with_it() {
        for message in
            ["google.rpc.Status", "google.rpc.ErrorInfo", "google.rpc.BadRequest", "google.rpc.RetryInfo"]
        {
            assert!(pool().get_message_by_name(message).is_some(), "{message}");
        }
        assert!(pool().get_enum_by_name("onsale.claim.v1.ErrorReason").is_some());
    }

    #[test]
    fn a_file_that_mixes_public_and_internal_is_refused() {
        let contract = Contract::load(&[onsale_proto::DESCRIPTORS]).unwrap();
        let public = PublicMethods::of(&contract);
        let without_one = public.without("/onsale.claim.v1.ClaimService/GetClaim");
        let refused = public_of(onsale_proto::DESCRIPTORS, &without_one).unwrap_err();
        assert!(matches!(refused, DescriptorsError::Mixed { .. }), "{refused}");
    }
}
