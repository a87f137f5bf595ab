//! The settings of Inventory; `config.default.toml` says what each is for.

use onsale_kit::config::ServiceConfig;
use onsale_storage::StoresConfig;
use serde::Deserialize;

/// All settings but the chassis' own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Postgres, Redis and events.
    pub stores: StoresConfig,
}

impl ServiceConfig for Config {
    const SHARED_DEFAULTS: &'static [(&'static str, &'static str)] = &[StoresConfig::DEFAULTS];
}
