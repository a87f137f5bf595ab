//! Public methods: the contract grants them to a role outside the mesh *and* gives them a REST path. All other methods do not
//! exist for the gateway, so a new method stays internal until its contract makes it public.

use std::collections::{BTreeMap, BTreeSet};

use onsale_kit::contract::{Contract, Method, RoleSet};
use onsale_proto::auth::v1::Role;

/// Methods that the gateway forwards, keyed by their path.
#[derive(Clone, Debug, Default)]
pub struct PublicMethods {
    methods: BTreeMap<String, Method>,
}

impl PublicMethods {
    /// Selects the public methods of `contract`.
    #[must_use]
    pub fn of(contract: &Contract) -> Self {
        let public = contract.methods().filter(|method| is_public(method));
        Self { methods: public.map(|method| (method.path.clone(), method.clone())).collect() }
    }

    /// Returns true if the method with exactly this path is public. Paths are not normalized: double slashes, escapes or
    /// another case make a different, unknown path.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        self.methods.contains_key(path)
    }

    /// Returns the public method with exactly this path.
    #[must_use]
    pub(crate) fn get(&self, path: &str) -> Option<&Method> {
        self.methods.get(path)
    }

    /// Returns the methods without `path`.
    #[cfg(test)]
    pub(crate) fn without(mut self, path: &str) -> Self {
        self.methods.remove(path);
        self
    }

    /// Iterates over all public methods in order of their paths.
    pub fn iter(&self) -> impl Iterator<Item = &Method> {
        self.methods.values()
    }

    /// Returns the full names of all services with a public method, sorted.
    #[must_use]
    pub fn services(&self) -> BTreeSet<&str> {
        self.iter().map(|method| method.service.as_str()).collect()
    }
}

fn is_public(method: &Method) -> bool {
    let outside = RoleSet::of(&[Role::Anyone, Role::Customer, Role::Organizer, Role::Staff]);
    method.http && method.roles.intersects(outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public_methods() -> PublicMethods {
        PublicMethods::of(&Contract::load(&[onsale_proto::DESCRIPTORS]).unwrap())
    }

    #[test]
    fn no_internal_method_is_public() {
        let public = public_methods();
        let internal: Vec<_> =
            public.iter().filter(|method| method.path.contains("InternalService")).collect();
        assert!(internal.is_empty(), "{internal:?}");
    }

    #[test]
    fn every_method_of_a_service_without_internal_name_is_public() {
        let contract = Contract::load(&[onsale_proto::DESCRIPTORS]).unwrap();
        let public = public_methods();
        let hidden: Vec<_> = contract
            .methods()
            .filter(|method| !method.service.ends_with("InternalService") && !public.contains(&method.path))
            .map(|method| &method.path)
            .collect();
        assert!(hidden.is_empty(), "{hidden:?}");
    }

    #[test]
    fn paths_match_only_in_their_exact_spelling() {
        let public = public_methods();
        assert!(public.contains("/onsale.queue.v1.QueueService/JoinQueue"));
        for spelling in [
            "//onsale.queue.v1.QueueService/JoinQueue",
            "/onsale.queue.v1.QueueService/joinqueue",
            "/onsale.queue.v1.QueueService/JoinQueue/",
            "/onsale.queue.v1.QueueService%2FJoinQueue",
            "/x/../onsale.queue.v1.QueueService/JoinQueue",
            "",
        ] {
            assert!(!public.contains(spelling), "{spelling}");
        }
    }
}
