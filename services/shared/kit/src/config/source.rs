//! Sources of settings: files and the environment. No other module reads the process environment.

use std::{collections::BTreeMap, path::PathBuf};

use figment::{
    Metadata, Profile, Provider,
    providers::{Format, Toml},
    value::{Dict, Map, Tag, Value},
};

use super::{ConfigError, Problem};

/// Environment variable with the path of a settings file.
const CONFIG_FILE_VARIABLE: &str = "ONSALE_CONFIG";

/// The environment variables whose names begin with `ONSALE_`.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// Reads the process environment. Variables that are not Unicode are skipped.
    #[must_use]
    pub fn of_process() -> Self {
        // `vars` would panic at any variable that is not Unicode, also at one that is not ours.
        let all = std::env::vars_os();
        Self::from_iter(
            all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        )
    }

    /// The path in `ONSALE_CONFIG`.
    pub(super) fn config_file(&self) -> Option<PathBuf> {
        self.variables.get(CONFIG_FILE_VARIABLE).map(PathBuf::from)
    }

    /// Returns one source per variable, those for all services first. A value is parsed as the type of its default, so
    /// that `"007"` remains a text where the default is a text.
    pub(super) fn sources(&self, service: &str, known: &Dict) -> Vec<Source> {
        let own = format!("ONSALE_{}__", service.to_uppercase().replace('-', "_"));
        let mut sources = Vec::new();
        for prefix in ["ONSALE__", own.as_str()] {
            for (name, text) in &self.variables {
                if let Some(key) = name.strip_prefix(prefix) {
                    sources.push(Source::variable(name, key, text, known));
                }
            }
        }
        sources
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        let ours = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        Self { variables: ours.filter(|(name, _)| name.starts_with("ONSALE_")).collect() }
    }
}

/// The two readers of settings: the kit reads `server`, `telemetry` and `auth`, the service all other sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Chassis,
    Service,
}

const CHASSIS_SECTIONS: [&str; 3] = ["server", "telemetry", "auth"];

/// A tree of settings and the name of its origin.
#[derive(Clone, Debug)]
pub(super) struct Source {
    origin: String,
    values: Dict,
}

impl Source {
    pub(super) fn toml(origin: String, text: &str) -> Result<Self, ConfigError> {
        let parsed = Toml::string(text).data();
        let values = parsed.map_err(|error| ConfigError::Syntax {
            // The first line only: the others quote the file, which may hold a secret.
            message: error.to_string().lines().next().unwrap_or_default().to_owned(),
            origin: origin.clone(),
        })?;
        let values = values.into_iter().next().map(|(_, dict)| dict).unwrap_or_default();
        Ok(Self { origin, values })
    }

    pub(super) fn file(path: PathBuf) -> Result<Self, ConfigError> {
        let origin = path.display().to_string();
        let text = std::fs::read_to_string(&path).map_err(|source| ConfigError::ReadFile { path, source })?;
        Self::toml(origin, &text)
    }

    fn variable(name: &str, key: &str, text: &str, known: &Dict) -> Self {
        let path: Vec<_> = key.split("__").map(str::to_lowercase).collect();
        let value = match default_type(known, &path) {
            DefaultType::Text => Value::from(text),
            DefaultType::Other | DefaultType::Unknown => {
                text.parse().unwrap_or_else(|never: std::convert::Infallible| match never {})
            }
        };
        let nested = path
            .iter()
            .rev()
            .fold(value, |value, key| Value::Dict(Tag::Default, Dict::from([(key.clone(), value)])));
        let values = nested.into_dict().unwrap_or_default();
        Self { origin: format!("the environment variable {name}"), values }
    }

    /// Returns a copy with the sections of one part.
    pub(super) fn only(&self, part: Part) -> Self {
        let wanted = |key: &str| CHASSIS_SECTIONS.contains(&key) == (part == Part::Chassis);
        let values = self.values.iter().filter(|(key, _)| wanted(key));
        Self {
            origin: self.origin.clone(),
            values: values.map(|(key, value)| (key.clone(), value.clone())).collect(),
        }
    }

    /// Removes the keys that no defaults file has, and returns a problem for each.
    pub(super) fn remove_unknown_keys(&mut self, known: &Dict) -> Vec<Problem> {
        let mut unknown = Vec::new();
        remove_unknown(&mut self.values, known, "", &mut unknown);
        let problem =
            |key| Problem { key, message: "unknown key".to_owned(), origin: Some(self.origin.clone()) };
        unknown.into_iter().map(problem).collect()
    }
}

impl Provider for Source {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.origin.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Map::from([(Profile::Default, self.values.clone())]))
    }
}

/// Type of a key's default.
enum DefaultType {
    /// A text, or the table form of one (`key.file` where the default of `key` is a text).
    Text,
    /// Any other type.
    Other,
    /// The key has no default.
    Unknown,
}

fn default_type(known: &Dict, path: &[String]) -> DefaultType {
    let Some((first, rest)) = path.split_first() else { return DefaultType::Unknown };
    match known.get(first) {
        Some(Value::String(..)) => DefaultType::Text,
        Some(Value::Dict(_, inner)) => default_type(inner, rest),
        Some(_) => DefaultType::Other,
        None => DefaultType::Unknown,
    }
}

fn remove_unknown(values: &mut Dict, known: &Dict, prefix: &str, unknown: &mut Vec<String>) {
    values.retain(|key, value| {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match (known.get(key), value) {
            (None, _) => {
                unknown.push(path);
                return false;
            }
            // An empty table as a default accepts any key: its keys are names, not settings.
            (Some(Value::Dict(_, inner)), Value::Dict(_, value)) if !inner.is_empty() => {
                remove_unknown(value, inner, &path, unknown);
            }
            (Some(_), _) => {}
        }
        true
    });
}
