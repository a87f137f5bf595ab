//! The gateway behind Envoy: forwards calls of public methods to the services that own them and refuses all others. The
//! public methods are read from the contracts, not listed here.

pub mod config;
pub mod descriptors;
pub mod envoy;
mod error;
mod proxy;
pub mod public;
mod web;

use std::{net::SocketAddr, sync::Arc};

use onsale_kit::{
    BuildError,
    client::{Channel, ClientConfig, ClientError, Neighbors},
    contract::Contract,
    server::Chassis,
};

use crate::{
    config::{Config, NeighborsConfig},
    proxy::Proxy,
    public::PublicMethods,
};

/// Name of the process in configuration, logs and tokens.
pub const SERVICE: &str = "gateway";

/// Default settings.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Adds all parts of the gateway to the chassis.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    assemble(config, chassis).await.map(drop)
}

/// Like [`build`], but returns the bound HTTP address, which tests need because they listen on port 0.
pub async fn assemble(config: Config, chassis: &mut Chassis) -> Result<SocketAddr, BuildError> {
    let contract = Contract::load(&[onsale_proto::DESCRIPTORS])?;
    let public = Arc::new(PublicMethods::of(&contract));
    // These clients add no token of the gateway: a forwarded call carries the token of its caller, or none.
    let without_tokens = Neighbors::new(&contract, None, chassis.tasks().clone());
    let channels = Channels::open(&without_tokens, &config.neighbors)?;
    for service in public.services() {
        let channel = channels
            .for_service(service)
            .ok_or_else(|| format!("no neighbor is configured for {service}"))?;
        // Leaked once per service at the start: a handler name must be `'static`.
        let name: &'static str = service.to_owned().leak();
        chassis.add_handler(name, Proxy::new(Arc::clone(&public), channel));
    }
    chassis.reflect_only(descriptors::public()?.leak());
    let payment = chassis.neighbors()?.channel("payment", &config.neighbors.payment)?;
    web::serve(&config, chassis, payment).await
}

/// One channel per service.
struct Channels {
    by_area: [(&'static str, Channel); 6],
}

impl Channels {
    fn open(neighbors: &Neighbors, config: &NeighborsConfig) -> Result<Self, ClientError> {
        let open = |name: &'static str, config: &ClientConfig| Ok((name, neighbors.channel(name, config)?));
        Ok(Self {
            by_area: [
                open("queue", &config.queue)?,
                open("inventory", &config.inventory)?,
                open("claim", &config.claim)?,
                open("payment", &config.payment)?,
                open("ticketing", &config.ticketing)?,
                open("notification", &config.notification)?,
            ],
        })
    }

    /// Returns the channel to the owner of a service with the full name `onsale.<area>.v1.…`.
    fn for_service(&self, service: &str) -> Option<Channel> {
        let area = service.strip_prefix("onsale.")?.split('.').next()?;
        self.by_area.iter().find(|(name, _)| *name == area).map(|(_, channel)| channel.clone())
    }
}
