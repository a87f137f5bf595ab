//! Settings: read once, at start, before any port opens.
//!
//! Lowest first: the kit's defaults, the service's defaults, the file named by `ONSALE_CONFIG`, the environment
//! (`ONSALE__SECTION__KEY` for all services, `ONSALE_<SERVICE>__SECTION__KEY` for one). Every key stands in a defaults
//! file with a comment; a key that does not is refused wherever it comes from, so a typing mistake cannot pass.
//! A message of this module names the key and where it came from, and never shows a secret.

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

/// The chassis' own defaults, below every service's.
const KIT_DEFAULTS: &str = include_str!("../config.default.toml");

/// The settings of one service, besides those of the chassis. Its struct has `#[serde(deny_unknown_fields)]`.
pub trait ServiceConfig: DeserializeOwned + fmt::Debug + Send + Sync + 'static {
    /// Defaults of shared parts the service uses (stores, for example), each a TOML text with the name of who keeps it.
    /// They stand between the kit's defaults and the service's own, so that no service copies them.
    const SHARED_DEFAULTS: &'static [(&'static str, &'static str)] = &[];

    /// What a type alone cannot check; each problem names its key.
    fn validate(&self) -> Result<(), Vec<Problem>> {
        Ok(())
    }
}

/// For a service without keys of its own.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

impl ServiceConfig for NoConfig {}

/// One thing that is wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key, e.g. `server.listen`.
    pub key: String,
    /// What is wrong, and what would be right.
    pub message: String,
    /// Where the value came from, as far as known.
    pub origin: Option<String>,
}

impl Problem {
    /// A problem with the value of `key`.
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

/// The settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file named by `ONSALE_CONFIG` cannot be read.
    #[error("failed to read the config file {}", path.display())]
    ReadFile {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file is not TOML.
    #[error("failed to parse {origin}: {message}")]
    Syntax {
        /// Which file.
        origin: String,
        /// Where in it; without its text, which may be a secret.
        message: String,
    },
    /// Keys that are unknown or have bad values.
    #[error("bad configuration:{}", .0.iter().map(|problem| format!("\n  {problem}")).collect::<String>())]
    Problems(Vec<Problem>),
}

/// Reads the settings of the chassis and of `service`, whose own defaults are `defaults` (its `config.default.toml`).
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

    // Unknown keys are reported and taken out, so that what is wrong besides them is reported too.
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

/// The defaults of all sources in one tree, to know which keys exist.
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
            // Some of figment's paths end with the field already.
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
