//! Which methods are reachable from outside: those the contract opens to somebody outside *and* gives a REST path.
//! Everything else does not exist for the gateway. A new method is therefore closed until its contract opens it.

use std::collections::{BTreeMap, BTreeSet};

use onsale_kit::contract::{Contract, Method, RoleSet};
use onsale_proto::auth::v1::Role;

/// The methods the front door lets through.
#[derive(Clone, Debug, Default)]
pub struct PublicMethods {
    methods: BTreeMap<String, Method>,
}

impl PublicMethods {
    /// Reads them from the contract.
    #[must_use]
    pub fn of(contract: &Contract) -> Self {
        let public = contract.methods().filter(|method| is_public(method));
        Self { methods: public.map(|method| (method.path.clone(), method.clone())).collect() }
    }

    /// Whether the method with this path on the wire is let through. Compared whole: a path that is spelled otherwise
    /// (double slashes, escapes, another case) is another path, and unknown.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        self.methods.contains_key(path)
    }

    /// The method with this path, if it is let through.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Method> {
        self.methods.get(path)
    }

    /// The others, for tests of what is left out.
    #[cfg(test)]
    pub(crate) fn without(mut self, path: &str) -> Self {
        self.methods.remove(path);
        self
    }

    /// All of them, in order of their paths.
    pub fn iter(&self) -> impl Iterator<Item = &Method> {
        self.methods.values()
    }

    /// The full names of their services, in order.
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
    fn nothing_internal_is_public() {
        let public = public_methods();
        let internal: Vec<_> =
            public.iter().filter(|method| method.path.contains("InternalService")).collect();
        assert!(internal.is_empty(), "{internal:?}");
    }

    #[test]
    fn every_method_of_the_other_services_is_public() {
        let contract = Contract::load(&[onsale_proto::DESCRIPTORS]).unwrap();
        let public = public_methods();
        let closed: Vec<_> = contract
            .methods()
            .filter(|method| !method.service.ends_with("InternalService") && !public.contains(&method.path))
            .map(|method| &method.path)
            .collect();
        assert!(closed.is_empty(), "{closed:?}");
    }

    #[test]
    fn another_spelling_is_another_path() {
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
