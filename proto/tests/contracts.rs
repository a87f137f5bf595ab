//! Rules for every method of every contract: access, REST path, idempotency and paging; and the designed methods and topics.
#![expect(clippy::expect_used, reason = "a failing helper fails its test")]

use std::collections::{BTreeMap, BTreeSet};

use onsale_proto::{DESCRIPTORS, EventPayload as _, TOPICS, auth::v1::Role, events::v1};
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor, Value};

const QUEUE: &str = "onsale.queue.v1";
const INVENTORY: &str = "onsale.inventory.v1";
const CLAIM: &str = "onsale.claim.v1";
const PAYMENT: &str = "onsale.payment.v1";
const TICKETING: &str = "onsale.ticketing.v1";
const NOTIFICATION: &str = "onsale.notification.v1";

/// Package, service and methods of the design. Methods that begin with `Watch` are server streams.
const DESIGNED: [(&str, &str, &[&str]); 17] = [
    (
        QUEUE,
        "QueueService",
        &[
            "JoinQueue",
            "WatchQueue",
            "GetPosition",
            "Heartbeat",
            "LeaveQueue",
            "ListNeighbors",
            "GetQueueSnapshot",
        ],
    ),
    (
        QUEUE,
        "QueueAdminService",
        &[
            "OpenQueue",
            "PauseQueue",
            "ResumeQueue",
            "CloseQueue",
            "UpdateQueuePolicy",
            "GetQueueStats",
            "WatchQueueStats",
            "BlockCustomer",
            "UnblockCustomer",
        ],
    ),
    (QUEUE, "QueueInternalService", &["ValidateTurn", "CompleteTurn"]),
    (
        INVENTORY,
        "EventService",
        &["CreateEvent", "GetEvent", "ListEvents", "UpdateEvent", "ActivateEvent", "EndEvent"],
    ),
    (INVENTORY, "InventoryService", &["GetAvailability", "WatchAvailability"]),
    (INVENTORY, "QuotaService", &["CreateQuota", "InviteToQuota", "ListQuotas", "AcceptInvitation"]),
    (INVENTORY, "InventoryInternalService", &["ReserveUnits", "CommitHold", "ReleaseHold"]),
    (CLAIM, "ClaimService", &["CreateClaim", "GetClaim", "ListClaims", "ReleaseClaim"]),
    (CLAIM, "ClaimInternalService", &["ConfirmClaim", "ExtendClaim"]),
    (PAYMENT, "PaymentService", &["CreatePayment", "GetPayment", "WatchPayment", "RefundPayment"]),
    (PAYMENT, "PaymentInternalService", &["HandleWebhook"]),
    (TICKETING, "TicketService", &["ListTickets", "GetTicket", "TransferTicket", "CheckInTicket"]),
    (TICKETING, "GenerationService", &["CreateGeneration", "GetGeneration", "WatchGeneration"]),
    (TICKETING, "TicketInternalService", &["IssueTickets", "VoidTickets"]),
    (
        NOTIFICATION,
        "NotificationService",
        &["RegisterDevice", "UnregisterDevice", "GetPreferences", "UpdatePreferences"],
    ),
    (NOTIFICATION, "NotificationAdminService", &["ListDeadLetters", "RetryDeadLetter", "GetDelivery"]),
    (NOTIFICATION, "NotificationInternalService", &["EnqueueNotifications"]),
];

/// REST paths that the design specifies.
const DESIGNED_PATHS: [(&str, &str); 6] = [
    ("post", "/api/v1/queue/{event_id}/join"),
    ("get", "/api/v1/queue/{event_id}/position"),
    ("delete", "/api/v1/queue/{event_id}"),
    ("post", "/api/v1/queue/{event_id}/sold-out"),
    ("post", "/api/v1/events/{event_id}/claims"),
    ("post", "/api/v1/claims/{claim_id}/payments"),
];

/// Topics of the design: name, source and listeners.
const DESIGNED_TOPICS: [(&str, &str, &[&str]); 16] = [
    ("event.created", "inventory", &["queue", "ticketing"]),
    ("event.activated", "inventory", &["queue", "ticketing"]),
    ("event.ended", "inventory", &["queue", "ticketing"]),
    ("inventory.sold_out", "inventory", &["queue"]),
    ("inventory.available", "inventory", &["queue"]),
    ("quota.invitation", "inventory", &["notification"]),
    ("queue.turn_granted", "queue", &["claim", "notification"]),
    ("queue.expired", "queue", &["claim", "notification"]),
    ("queue.position_update", "queue", &["notification"]),
    ("order.completed", "claim", &["notification", "queue", "ticketing"]),
    ("claim.released", "claim", &["notification", "queue", "ticketing"]),
    ("payment.confirmed", "payment", &["claim", "notification"]),
    ("payment.failed", "payment", &["claim", "notification"]),
    ("payment.refunded", "payment", &["claim", "notification"]),
    ("ticket.generated", "ticketing", &["inventory", "notification"]),
    ("generation.completed", "ticketing", &["inventory", "notification"]),
];

/// Methods with side effects but without a `request_id`, each with the reason why a retry is safe.
const WITHOUT_REQUEST_ID: [(&str, &str); 4] = [
    ("onsale.queue.v1.QueueService.WatchQueue", "only records a heartbeat"),
    ("onsale.queue.v1.QueueService.GetPosition", "only records a heartbeat"),
    ("onsale.queue.v1.QueueService.Heartbeat", "only records a heartbeat"),
    (
        "onsale.payment.v1.PaymentInternalService.HandleWebhook",
        "the provider's event id in the body is the key",
    ),
];

/// Methods that begin with `List` but have no pages, each with the reason.
const WITHOUT_PAGES: [(&str, &str); 1] =
    [("onsale.queue.v1.QueueService.ListNeighbors", "at most 20 entries on each side of the caller")];

fn pool() -> DescriptorPool {
    DescriptorPool::decode(DESCRIPTORS).expect("the build wrote a descriptor set")
}

fn methods(pool: &DescriptorPool) -> Vec<MethodDescriptor> {
    pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()).collect()
}

fn is_internal(method: &MethodDescriptor) -> bool {
    method.parent_service().name().ends_with("InternalService")
}

/// Returns the option of the method with this name, or `None` if it is not set.
fn option(method: &MethodDescriptor, name: &str) -> Option<DynamicMessage> {
    let extension = method.parent_pool().get_extension_by_name(name)?;
    let options = method.options();
    if !options.has_extension(&extension) {
        return None;
    }
    options.get_extension(&extension).as_message().cloned()
}

fn roles(method: &MethodDescriptor) -> Vec<Role> {
    let Some(access) = option(method, "onsale.auth.v1.access") else { return Vec::new() };
    let listed = access.get_field_by_name("roles").map(|roles| roles.into_owned());
    let listed = listed.as_ref().and_then(Value::as_list).unwrap_or_default();
    listed.iter().filter_map(Value::as_enum_number).filter_map(|number| Role::try_from(number).ok()).collect()
}

struct Binding {
    verb: String,
    path: String,
    body: String,
}

/// Returns the REST bindings of the method: the main one, then the additional ones.
fn bindings(method: &MethodDescriptor) -> Vec<Binding> {
    let Some(rule) = option(method, "google.api.http") else { return Vec::new() };
    let additional = rule.get_field_by_name("additional_bindings").map(|rules| rules.into_owned());
    let additional = additional.as_ref().and_then(Value::as_list).unwrap_or_default();
    let additional = additional.iter().filter_map(Value::as_message);
    std::iter::once(&rule).chain(additional).filter_map(binding).collect()
}

fn binding(rule: &DynamicMessage) -> Option<Binding> {
    let text = |name: &str| {
        let value = rule.get_field_by_name(name)?;
        value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let verb = ["get", "put", "post", "delete", "patch"].into_iter().find(|verb| text(verb).is_some())?;
    Some(Binding { verb: verb.to_owned(), path: text(verb)?, body: text("body").unwrap_or_default() })
}

/// Returns the names of the variables in a path template.
fn variables(path: &str) -> Vec<&str> {
    path.split('{').skip(1).filter_map(|rest| rest.split('}').next()).collect()
}

fn idempotency(method: &MethodDescriptor) -> &'static str {
    match method.options().get_field_by_name("idempotency_level").and_then(|level| level.as_enum_number()) {
        Some(1) => "NO_SIDE_EFFECTS",
        Some(2) => "IDEMPOTENT",
        _ => "",
    }
}

/// Fails with a list of all offenders, so that one run shows every violation.
#[track_caller]
fn assert_none(offenders: Vec<String>, what: &str) {
    assert!(offenders.is_empty(), "{what}:\n  {}", offenders.join("\n  "));
}

fn offenders(broken: impl Fn(&MethodDescriptor) -> bool) -> Vec<String> {
    let methods = methods(&pool());
    methods.iter().filter(|method| broken(method)).map(|method| method.full_name().to_owned()).collect()
}

#[test]
fn every_designed_method_exists_and_only_watches_stream() {
    let pool = pool();
    let mut missing = Vec::new();
    for (package, service, methods) in DESIGNED {
        let found = pool.get_service_by_name(&format!("{package}.{service}"));
        let found: BTreeSet<String> = found
            .into_iter()
            .flat_map(|s| s.methods().map(|m| m.name().to_owned()).collect::<Vec<_>>())
            .collect();
        missing.extend(
            methods.iter().filter(|m| !found.contains(**m)).map(|m| format!("{package}.{service}.{m}")),
        );
    }
    assert_none(missing, "designed methods that are missing in the contracts");
    assert_none(
        offenders(|m| m.is_server_streaming() != m.name().starts_with("Watch")),
        "streams not named Watch, or methods named Watch without a stream",
    );
}

#[test]
fn no_method_has_client_streaming_which_browsers_lack() {
    assert_none(offenders(MethodDescriptor::is_client_streaming), "methods with client streaming");
}

#[test]
fn every_method_has_valid_access_roles() {
    let unusable = |method: &MethodDescriptor| {
        let roles = roles(method);
        let mixed = roles.contains(&Role::Anyone) && roles.len() > 1;
        roles.is_empty() || roles.contains(&Role::Unspecified) || mixed
    };
    assert_none(offenders(unusable), "methods without a usable access option");
}

#[test]
fn internal_methods_accept_services_only_and_have_no_rest_path() {
    let open =
        |m: &MethodDescriptor| is_internal(m) && (roles(m) != [Role::Service] || !bindings(m).is_empty());
    assert_none(offenders(open), "internal methods that external callers could reach");
}

#[test]
fn public_methods_have_a_rest_path_and_an_external_role() {
    let closed = |m: &MethodDescriptor| {
        !is_internal(m) && (bindings(m).is_empty() || roles(m).iter().all(|role| *role == Role::Service))
    };
    assert_none(offenders(closed), "public methods that no external caller can reach");
}

#[test]
fn no_two_rest_bindings_collide() {
    let pool = pool();
    let mut taken: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for method in methods(&pool) {
        for Binding { verb, path, .. } in bindings(&method) {
            // Templates that differ only in the names of their variables match the same paths.
            let shape = variables(&path)
                .into_iter()
                .fold(path.clone(), |shape, name| shape.replace(&format!("{{{name}}}"), "*"));
            taken.entry(format!("{verb} {shape}")).or_default().push(method.full_name().to_owned());
        }
    }
    let collisions = taken.into_iter().filter(|(_, methods)| methods.len() > 1);
    assert_none(
        collisions.map(|(path, methods)| format!("{path}: {methods:?}")).collect(),
        "colliding paths",
    );
}

#[test]
fn rest_bindings_use_existing_fields_and_a_body_if_the_verb_has_one() {
    let broken = |method: &MethodDescriptor| {
        bindings(method).iter().any(|Binding { verb, path, body }| {
            let unknown = variables(path).iter().any(|name| method.input().get_field_by_name(name).is_none());
            let body_expected = if matches!(verb.as_str(), "get" | "delete") { "" } else { "*" };
            unknown || body != body_expected || !path.starts_with("/api/v1/")
        })
    };
    assert_none(offenders(broken), "methods with a broken REST binding");
}

#[test]
fn designed_rest_paths_exist() {
    let pool = pool();
    let found: BTreeSet<(String, String)> =
        methods(&pool).iter().flat_map(bindings).map(|binding| (binding.verb, binding.path)).collect();
    let missing = DESIGNED_PATHS.into_iter().filter(|(v, p)| !found.contains(&((*v).into(), (*p).into())));
    assert_none(
        missing.map(|(verb, path)| format!("{verb} {path}")).collect(),
        "designed paths that no method has",
    );
}

#[test]
fn only_methods_without_side_effects_are_gets() {
    let broken = |method: &MethodDescriptor| {
        let is_get = bindings(method).iter().any(|binding| binding.verb == "get");
        let only_marks_seen = WITHOUT_REQUEST_ID.iter().any(|(name, _)| *name == method.full_name());
        !is_internal(method) && !only_marks_seen && is_get != (idempotency(method) == "NO_SIDE_EFFECTS")
    };
    assert_none(offenders(broken), "methods whose HTTP verb and idempotency disagree");
}

#[test]
fn every_method_has_an_idempotency_level() {
    assert_none(offenders(|m| idempotency(m).is_empty()), "methods without idempotency_level");
}

#[test]
fn every_method_with_side_effects_has_a_request_id() {
    let broken = |method: &MethodDescriptor| {
        let changes = idempotency(method) != "NO_SIDE_EFFECTS";
        let excepted = WITHOUT_REQUEST_ID.iter().any(|(name, _)| *name == method.full_name());
        let first = method.input().get_field(1);
        let has_request_id = first.is_some_and(|field| field.name() == "request_id");
        (changes && !excepted) != has_request_id
    };
    assert_none(
        offenders(broken),
        "methods with side effects without request_id as field 1, or reads and exceptions with one",
    );
}

#[test]
fn every_list_method_has_pages() {
    let broken = |method: &MethodDescriptor| {
        let excepted = WITHOUT_PAGES.iter().any(|(name, _)| *name == method.full_name());
        let has = |name| method.input().get_field_by_name(name).is_some();
        let next = method.output().get_field_by_name("next_page_token").is_some();
        method.name().starts_with("List") && !excepted && !(has("page_size") && has("page_token") && next)
    };
    assert_none(offenders(broken), "lists without pages");
}

#[test]
fn topics_match_the_designed_sources_and_listeners() {
    let mut topics: Vec<(&str, &str, Vec<&str>)> =
        TOPICS.iter().map(|topic| (topic.name, topic.source, topic.listeners.to_vec())).collect();
    topics.iter_mut().for_each(|(_, _, listeners)| listeners.sort_unstable());
    topics.sort_unstable();
    let mut designed = DESIGNED_TOPICS.map(|(name, source, listeners)| (name, source, listeners.to_vec()));
    designed.sort_unstable();
    assert_eq!(topics, designed);
}

#[test]
fn topics_connect_known_services_and_list_each_listener_once() {
    let services: BTreeSet<&str> =
        DESIGNED.iter().filter_map(|(package, ..)| package.split('.').nth(1)).collect();
    let mut offenders = Vec::new();
    for topic in TOPICS {
        let listeners: BTreeSet<&str> = topic.listeners.iter().copied().collect();
        let all_known = services.contains(topic.source) && listeners.is_subset(&services);
        if !all_known || listeners.len() != topic.listeners.len() || listeners.contains(topic.source) {
            offenders.push(format!("{topic:?}"));
        }
    }
    assert_none(
        offenders,
        "topics with an unknown service, a repeated listener, or their source as listener",
    );
}

#[test]
fn payload_has_its_topic_type_source_and_listeners() {
    assert_eq!(v1::OrderCompleted::TOPIC, "order.completed");
    assert_eq!(v1::OrderCompleted::TYPE, "onsale.events.v1.OrderCompleted");
    assert_eq!(v1::OrderCompleted::SOURCE, "claim");
    assert_eq!(v1::OrderCompleted::LISTENERS, ["ticketing", "queue", "notification"]);
}
