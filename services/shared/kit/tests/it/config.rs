//! Settings: unknown keys and bad values stop the process, and no message shows a secret.

use std::{fs, time::Duration};

use onsale_kit::config::{
    ChassisConfig, ConfigError, Environment, NoConfig, Problem, Secret, ServiceConfig, load, optional,
};
use onsale_testkit::{service::environment, tokens::TestIssuer};
use serde::Deserialize;

const DEFAULTS: &str = r#"
[claim]
lifetime = "20m"
tickets_max = 4
provider_key = ""
webhook_key = ""
names = {}
"#;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    claim: Claim,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    #[serde(with = "humantime_serde")]
    lifetime: Duration,
    tickets_max: u32,
    provider_key: Secret,
    #[serde(deserialize_with = "optional")]
    webhook_key: Option<Secret>,
    names: std::collections::BTreeMap<String, String>,
}

impl ServiceConfig for Config {
    fn validate(&self) -> Result<(), Vec<Problem>> {
        if self.claim.tickets_max == 0 {
            return Err(vec![Problem::new("claim.tickets_max", "must be at least 1")]);
        }
        Ok(())
    }
}

fn with(settings: &[(&str, &str)]) -> Result<(ChassisConfig, Config), ConfigError> {
    load("claim", DEFAULTS, &environment(&TestIssuer::new(), settings))
}

#[track_caller]
fn refused(settings: &[(&str, &str)]) -> String {
    with(settings).expect_err("the settings are bad").to_string()
}

const KEY: (&str, &str) = ("CLAIM__PROVIDER_KEY", "007");

#[test]
fn defaults_apply_where_nothing_else_is_set() {
    let (chassis, config) = with(&[KEY]).expect("good settings");
    assert_eq!(chassis.server.deadline_default, Duration::from_secs(10));
    assert_eq!(config.claim.lifetime, Duration::from_secs(1200));
    assert!(config.claim.webhook_key.is_none());
    assert!(chassis.telemetry.otlp_endpoint.is_none());
}

#[test]
fn value_has_the_type_of_its_default() {
    // As a number it would lose its leading zeros.
    let (_, config) =
        with(&[KEY, ("CLAIM__TICKETS_MAX", "6"), ("CLAIM__NAMES__A", "b")]).expect("good settings");
    assert_eq!(config.claim.provider_key.expose(), "007");
    assert_eq!(config.claim.tickets_max, 6);
    assert_eq!(config.claim.names.get("a").map(String::as_str), Some("b"));
}

#[test]
fn service_variable_overrides_the_shared_one_and_both_override_the_file() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(&file, "[claim]\ntickets_max = 5\nlifetime = \"5m\"\nprovider_key = \"a\"\n").expect("written");
    let issuer = TestIssuer::new();
    let settings = [
        ("ONSALE_CONFIG", file.path().to_str().expect("a path is text").to_owned()),
        ("ONSALE__CLAIM__TICKETS_MAX", "6".to_owned()),
        ("ONSALE_CLAIM__CLAIM__TICKETS_MAX", "7".to_owned()),
        ("ONSALE_QUEUE__CLAIM__TICKETS_MAX", "8".to_owned()),
        ("ONSALE__AUTH__MESH__KEY", issuer.mesh_key()),
        ("ONSALE__AUTH__MESH__JWKS", issuer.mesh_jwks()),
    ];
    let (_, config) =
        load::<Config>("claim", DEFAULTS, &Environment::from_iter(settings)).expect("good settings");
    assert_eq!(config.claim.tickets_max, 7);
    assert_eq!(config.claim.lifetime, Duration::from_secs(300));
}

#[test]
fn every_unknown_key_of_the_environment_is_named() {
    let message =
        refused(&[KEY, ("SERVER__LISTN", "x"), ("CLAIM__TICKET_MAX", "4"), ("CALIM__LIFETIME", "1m")]);
    for expected in [
        "server.listn: unknown key (from the environment variable ONSALE__SERVER__LISTN)",
        "claim.ticket_max: unknown key",
        "calim: unknown key",
    ] {
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn unknown_key_of_the_file_is_named_with_the_file() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(&file, "[server]\nlistne = \"1\"\n[surprise]\na = 1\n").expect("written");
    let path = file.path().to_str().expect("a path is text").to_owned();
    let settings = [("ONSALE_CONFIG".to_owned(), path.clone())];
    let error = load::<NoConfig>("claim", "", &Environment::from_iter(settings)).expect_err("unknown keys");
    let message = error.to_string();
    assert!(message.contains(&format!("server.listne: unknown key (from {path})")), "{message}");
    assert!(message.contains(&format!("surprise: unknown key (from {path})")), "{message}");
}

#[test]
fn default_that_no_struct_has_is_refused() {
    let defaults = format!("{DEFAULTS}\n[clami]\nlifetime = \"1m\"\n");
    let error =
        load::<Config>("claim", &defaults, &environment(&TestIssuer::new(), &[KEY])).expect_err("unknown");
    assert!(error.to_string().contains("clami: unknown key"), "{error}");
}

#[test]
fn bad_value_is_named_with_its_key_and_origin() {
    let message = refused(&[KEY, ("SERVER__DEADLINE_MAX", "soon"), ("CLAIM__TICKETS_MAX", "-1")]);
    assert!(message.contains("server.deadline_max"), "{message}");
    assert!(message.contains("ONSALE__SERVER__DEADLINE_MAX"), "{message}");
    assert!(message.contains("claim.tickets_max"), "{message}");
    assert!(message.contains("ONSALE__CLAIM__TICKETS_MAX"), "{message}");
}

#[test]
fn inconsistent_values_are_refused() {
    let message = refused(&[
        KEY,
        ("SERVER__DEADLINE_DEFAULT", "2m"),
        ("TELEMETRY__TRACE_SAMPLE_RATIO", "1.5"),
        ("TELEMETRY__LOG_FILTER", "a=b=c"),
        ("CLAIM__TICKETS_MAX", "0"),
    ]);
    for key in [
        "server.deadline_default",
        "telemetry.trace_sample_ratio",
        "telemetry.log_filter",
        "claim.tickets_max",
    ] {
        assert!(message.contains(key), "{key} in {message}");
    }
}

#[test]
fn missing_secret_is_named() {
    let message = refused(&[]);
    assert!(message.contains("claim.provider_key: a secret is required"), "{message}");
}

#[test]
fn secret_can_be_read_from_a_file() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(&file, "from a file\n").expect("written");
    let path = file.path().to_str().expect("a path is text");
    let (_, config) = with(&[("CLAIM__PROVIDER_KEY__FILE", path)]).expect("good settings");
    assert_eq!(config.claim.provider_key.expose(), "from a file");

    let message = refused(&[("CLAIM__PROVIDER_KEY__FILE", "/nowhere/at/all")]);
    assert!(message.contains("claim.provider_key") && message.contains("/nowhere/at/all"), "{message}");
}

#[test]
fn secret_is_never_printed() {
    let secret = "hunter2-and-more";
    let (chassis, config) = with(&[("CLAIM__PROVIDER_KEY", secret)]).expect("good settings");
    let printed = format!("{chassis:?} {config:?} {}", config.claim.provider_key);
    assert!(!printed.contains(secret) && printed.contains("***"), "{printed}");
    assert!(!printed.contains(chassis.auth.mesh.key.expose()), "{printed}");

    // Neither beside a bad value, nor as a number, nor in a file that is not TOML.
    let message = refused(&[("CLAIM__PROVIDER_KEY", secret), ("CLAIM__LIFETIME", "soon")]);
    assert!(!message.contains(secret), "{message}");
    for text in ["[claim]\nprovider_key = 12345678\n", "[claim]\nprovider_key = \"12345678\nx"] {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(&file, text).expect("written");
        let path = file.path().to_str().expect("a path is text").to_owned();
        let variables = [("ONSALE_CONFIG".to_owned(), path)];
        let error = load::<Config>("claim", DEFAULTS, &Environment::from_iter(variables)).expect_err("bad");
        assert!(!format!("{error} {error:?}").contains("12345678"), "{error:?}");
    }
}

#[test]
fn mismatched_keys_are_refused() {
    let other = TestIssuer::new();
    let message = refused(&[KEY, ("AUTH__MESH__JWKS", &other.mesh_jwks())]);
    assert!(message.contains("auth.mesh.jwks: lacks the public half of auth.mesh.key"), "{message}");
    let message = refused(&[KEY, ("AUTH__MESH__KEY", "bm90IGEga2V5"), ("AUTH__MESH__JWKS", "{}")]);
    assert!(message.contains("auth.mesh.key") && message.contains("auth.mesh.jwks"), "{message}");
    assert!(!message.contains("bm90IGEga2V5"), "{message}");
}

#[test]
fn issuer_of_people_must_not_grant_service() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let jwks = TestIssuer::new().jwks();
    let text = format!(
        "[[auth.issuers]]\nissuer = \"https://id\"\naudiences = [\"app\"]\njwks = '{jwks}'\nroles_granted = [\"SERVICE\"]\n"
    );
    fs::write(&file, text).expect("written");
    let issuer = TestIssuer::new();
    let variables = [
        ("ONSALE_CONFIG", file.path().to_str().expect("a path is text").to_owned()),
        ("ONSALE__AUTH__MESH__KEY", issuer.mesh_key()),
        ("ONSALE__AUTH__MESH__JWKS", issuer.mesh_jwks()),
    ];
    let error = load::<NoConfig>("claim", "", &Environment::from_iter(variables)).expect_err("refused");
    assert!(error.to_string().contains("auth.issuers[0].roles_granted"), "{error}");
}
