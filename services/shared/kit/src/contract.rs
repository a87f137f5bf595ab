//! Facts about each method from the contracts: permitted roles, streaming, idempotency.
//!
//! Read once at start from the descriptors, so that the contract is the only place that states them. A method without a
//! permitted role is refused: no default could be too open.

use std::{collections::HashMap, fmt};

use onsale_proto::auth::v1::Role;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor, Value};
use prost_types::method_options::IdempotencyLevel;

const ACCESS_OPTION: &str = "onsale.auth.v1.access";
const HTTP_OPTION: &str = "google.api.http";

/// All methods of the loaded contracts, by path.
#[derive(Clone, Debug, Default)]
pub struct Contract {
    methods: HashMap<String, Method>,
}

/// A method's facts from its contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// Path on the wire, for example `/onsale.queue.v1.QueueService/JoinQueue`.
    pub path: String,
    /// Full name of the service, for example `onsale.queue.v1.QueueService`.
    pub service: String,
    /// Name within the service, for example `JoinQueue`.
    pub name: String,
    /// Permitted roles; a caller needs one of them.
    pub roles: RoleSet,
    /// Set if the response is a stream.
    pub server_streaming: bool,
    /// Set if the request is a stream.
    pub client_streaming: bool,
    /// Set if `idempotency_level` is IDEMPOTENT or NO_SIDE_EFFECTS. Clients retry only these methods.
    pub idempotent: bool,
    /// Set if the method has a REST path.
    pub http: bool,
}

/// Contracts that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ContractError {
    /// The bytes are not a descriptor set, or two sets conflict.
    #[error("failed to read a descriptor set")]
    Decode(#[source] prost_reflect::DescriptorError),
    /// All methods whose access option is missing or invalid.
    #[error("methods without a usable access option: {}", .0.join("; "))]
    Access(Vec<String>),
}

impl Contract {
    /// Reads encoded descriptor sets. Fails if any method lacks a valid access option.
    pub fn load(descriptor_sets: &[&[u8]]) -> Result<Self, ContractError> {
        let mut contract = Self::default();
        let mut offenders = Vec::new();
        for method in descriptors(descriptor_sets)? {
            match roles(&method) {
                Ok(roles) => contract.insert(&method, roles),
                Err(problem) => offenders.push(format!("{} ({problem})", method.full_name())),
            }
        }
        if offenders.is_empty() { Ok(contract) } else { Err(ContractError::Access(offenders)) }
    }

    /// Adds contracts without access options (health, reflection), which anyone may call.
    pub(crate) fn add_foreign(&mut self, descriptor_set: &[u8]) -> Result<(), ContractError> {
        for method in descriptors(&[descriptor_set])? {
            self.insert(&method, RoleSet::of(&[Role::Anyone]));
        }
        Ok(())
    }

    /// Finds the method with this path on the wire.
    #[must_use]
    pub fn method(&self, path: &str) -> Option<&Method> {
        self.methods.get(path)
    }

    /// Returns all methods in no particular order.
    pub fn methods(&self) -> impl Iterator<Item = &Method> {
        self.methods.values()
    }

    fn insert(&mut self, method: &MethodDescriptor, roles: RoleSet) {
        let service = method.parent_service().full_name();
        let path = format!("/{service}/{}", method.name());
        let described = Method {
            path: path.clone(),
            service: service.to_owned(),
            name: method.name().to_owned(),
            roles,
            server_streaming: method.is_server_streaming(),
            client_streaming: method.is_client_streaming(),
            idempotent: is_idempotent(method),
            http: extension(&method.options(), HTTP_OPTION).is_some(),
        };
        self.methods.insert(path, described);
    }
}

/// A set of roles.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RoleSet(u8);

impl RoleSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Creates a set of `roles`.
    #[must_use]
    pub fn of(roles: &[Role]) -> Self {
        Self(roles.iter().fold(0, |bits, role| bits | Self::bit(*role)))
    }

    /// Adds a role.
    pub fn insert(&mut self, role: Role) {
        self.0 |= Self::bit(role);
    }

    /// Returns true if the role is in the set.
    #[must_use]
    pub fn contains(self, role: Role) -> bool {
        self.0 & Self::bit(role) != 0
    }

    /// Returns true if the two sets share a role.
    #[must_use]
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the roles that are in both sets.
    pub(crate) fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns true if the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the roles in the contract's order.
    pub fn iter(self) -> impl Iterator<Item = Role> {
        [Role::Anyone, Role::Customer, Role::Organizer, Role::Staff, Role::Service]
            .into_iter()
            .filter(move |role| self.contains(*role))
    }

    const fn bit(role: Role) -> u8 {
        match role {
            // Not a valid role, so it is in no set.
            Role::Unspecified => 0,
            Role::Anyone => 1,
            Role::Customer => 1 << 1,
            Role::Organizer => 1 << 2,
            Role::Staff => 1 << 3,
            Role::Service => 1 << 4,
        }
    }
}

impl fmt::Debug for RoleSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}

/// Returns all methods of the sets. Uses prost-reflect, because prost-types drops extensions such as the access option.
fn descriptors(descriptor_sets: &[&[u8]]) -> Result<Vec<MethodDescriptor>, ContractError> {
    let mut pool = DescriptorPool::new();
    for set in descriptor_sets {
        pool.decode_file_descriptor_set(*set).map_err(ContractError::Decode)?;
    }
    let services: Vec<_> = pool.services().collect();
    Ok(services.iter().flat_map(|service| service.methods().collect::<Vec<_>>()).collect())
}

fn roles(method: &MethodDescriptor) -> Result<RoleSet, &'static str> {
    let access = extension(&method.options(), ACCESS_OPTION).ok_or("no access option")?;
    let access = access.as_message().ok_or("the access option is not a message")?;
    let roles = access.get_field_by_name("roles").ok_or("the access option has no roles")?;
    let numbers: Vec<i32> =
        roles.as_list().unwrap_or_default().iter().filter_map(Value::as_enum_number).collect();

    let mut set = RoleSet::EMPTY;
    for number in &numbers {
        match Role::try_from(*number) {
            Ok(Role::Unspecified) => return Err("ROLE_UNSPECIFIED"),
            Ok(role) => set.insert(role),
            Err(_) => return Err("a role this version does not know"),
        }
    }
    if set.is_empty() {
        return Err("no role");
    }
    if set.contains(Role::Anyone) && numbers.len() > 1 {
        return Err("ROLE_ANYONE beside other roles");
    }
    Ok(set)
}

fn extension(options: &DynamicMessage, name: &str) -> Option<Value> {
    options.extensions().find(|(extension, _)| extension.full_name() == name).map(|(_, value)| value.clone())
}

fn is_idempotent(method: &MethodDescriptor) -> bool {
    let level = method.method_descriptor_proto().options.as_ref().map(|options| options.idempotency_level());
    match level {
        Some(IdempotencyLevel::Idempotent | IdempotencyLevel::NoSideEffects) => true,
        Some(IdempotencyLevel::IdempotencyUnknown) | None => false,
    }
}
