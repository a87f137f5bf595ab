//! Settings, read once at start before any port opens.
//!
//! Sources, lowest first: the kit's defaults, shared parts' defaults, the service's defaults, the file named by
//! `ONSALE_CONFIG`, the environment (`ONSALE__SECTION__KEY` for all services, `ONSALE_<SERVICE>__SECTION__KEY` for one).
//! Every key has a default and a comment in a defaults file. Other keys are refused in every source, so that a misspelled
//! key cannot pass. Messages name the key and its source, and never show a secret.

use std::{fmt, path::PathBuf};

use figment::{Figment, Provider, error::Kind, value::Dict};
use serde::de::DeserializeOwned;

use self::source::{Part, Source};
pub use self::{
    chassis::{ChassisConfig, DrainConfig, LogFormat, ServerConfig, TelemetryConfig},
    source::Environment,
    values::{Secret, Text, optional},
};

mod chassis;
mod source;
mod values;

/// The kit's own defaults, the lowest source.
const KIT_DEFAULTS: &str = include_str!("../config.default.toml");

/// Settings of one service besides the chassis'. The struct needs `#[serde(deny_unknown_fields)]`.
pub trait ServiceConfig: DeserializeOwned + fmt::Debug + Send + Sync + 'static {
    /// Defaults of shared parts that the service uses (stores, for example): name of the part and TOML text. They rank
    /// between the kit's defaults and the service's own, so that no service copies them.
    const SHARED_DEFAULTS: &'static [(&'static str, &'static str)] = &[];

    /// Checks rules that the types cannot express. Each problem names its key.
    fn validate(&self) -> Result<(), Vec<Problem>> {
        Ok(())
    }
}

/// Settings of a service without keys of its own.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

impl ServiceConfig for NoConfig {}

/// A problem with one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key's path, for example `server.listen`.
    pub key: String,
    /// The rule that the value breaks.
    pub message: String,
    /// The source of the value. `None` if a rule spans several keys.
    pub origin: Option<String>,
}

impl Problem {
    /// Creates a problem with the value of `key`, without an origin.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into(), origin: None }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.key, self.message)?;
        match &self.origin {
            Some(origin) => write!(formatter, " (from {origin})"),
            None => Ok(()),
        }
    }
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file named by `ONSALE_CONFIG` cannot be read.
    #[error("failed to read the config file {}", path.display())]
    ReadFile {
        /// The path in `ONSALE_CONFIG`.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A source is not valid TOML.
    #[error("failed to parse {origin}: {message}")]
    Syntax {
        /// The file, or the defaults' name.
        origin: String,
        /// Position and kind of the mistake. Never quotes the file, which may hold a secret.
        message: String,
    },
    /// Unknown keys and bad values of all sources.
    #[error("bad configuration:{}", .0.iter().map(|problem| format!("\n  {problem}")).collect::<String>())]
    Problems(Vec<Problem>),
}

/// Loads the settings of the chassis and of `service`. `defaults` is the text of the service's `config.default.toml`.
pub fn load<C: ServiceConfig>(
    service: &str,
    defaults: &str,
    environment: &Environment,
) -> Result<(ChassisConfig, C), ConfigError> {
    let files = [("the kit", KIT_DEFAULTS)].into_iter().chain(C::SHARED_DEFAULTS.iter().copied());
    let defaults = files
        .chain([(service, defaults)])
        .map(|(keeper, text)| Source::toml(format!("the defaults of {keeper}"), text))
        .collect::<Result<Vec<_>, _>>()?;
    let known = merged(&defaults);
    let mut overrides = Vec::new();
    if let Some(path) = environment.config_file() {
        overrides.push(Source::file(path)?);
    }
    overrides.extend(environment.sources(service, &known));

    // Unknown keys are removed after they are reported, so that the other problems are found too.
    let mut problems: Vec<_> =
        overrides.iter_mut().flat_map(|source| source.remove_unknown_keys(&known)).collect();
    let sources: Vec<_> = defaults.into_iter().chain(overrides).collect();
    let chassis = extract::<ChassisConfig>(&sources, Part::Chassis, &mut problems);
    let service = extract::<C>(&sources, Part::Service, &mut problems);
    if let Some(chassis) = &chassis {
        problems.extend(chassis.validate());
    }
    if let Some(Err(found)) = service.as_ref().map(C::validate) {
        problems.extend(found);
    }
    match (chassis, service) {
        (Some(chassis), Some(service)) if problems.is_empty() => Ok((chassis, service)),
        (Some(_) | None, Some(_) | None) => Err(ConfigError::Problems(problems)),
    }
}

/// Merges the defaults into one tree, which shows the keys that exist.
fn merged(sources: &[Source]) -> Dict {
    let figment = sources.iter().fold(Figment::new(), |figment, source| figment.merge(source.clone()));
    figment.data().ok().and_then(|mut data| data.remove(&figment::Profile::Default)).unwrap_or_default()
}

fn extract<T: DeserializeOwned>(sources: &[Source], part: Part, problems: &mut Vec<Problem>) -> Option<T> {
    let figment = sources.iter().fold(Figment::new(), |figment, source| figment.merge(source.only(part)));
    match figment.extract::<T>() {
        Ok(value) => Some(value),
        Err(errors) => {
            problems.extend(errors.into_iter().map(problem));
            None
        }
    }
}

fn problem(error: figment::Error) -> Problem {
    let mut path = error.path;
    let message = match error.kind {
        Kind::UnknownField(field, _) => {
            // Some of figment's paths already end with the field.
            if path.last() != Some(&field) {
                path.push(field);
            }
            "unknown key".to_owned()
        }
        Kind::MissingField(field) => {
            path.push(field.into_owned());
            "missing: it belongs in a config.default.toml".to_owned()
        }
        kind => kind.to_string(),
    };
    Problem {
        key: path.join("."),
        message,
        origin: error.metadata.map(|metadata| metadata.name.into_owned()),
    }
}
