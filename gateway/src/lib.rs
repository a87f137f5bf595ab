//! The Rust half of the front door: lets public methods through to the services that own them, and nothing else. What is
//! public is read from the contracts; nothing here decides by name.

pub mod config;
pub mod descriptors;
pub mod envoy;
pub mod error;
pub mod proxy;
pub mod public;
pub mod web;

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

/// The process's name.
pub const SERVICE: &str = "gateway";

/// The settings it comes with.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Puts the parts together; the one place where they meet.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    assemble(config, chassis).await.map(drop)
}

/// As [`build`]; answers where plain HTTP is served, which with port 0 nobody knows before.
pub async fn assemble(config: Config, chassis: &mut Chassis) -> Result<SocketAddr, BuildError> {
    let contract = Contract::load(&[onsale_proto::DESCRIPTORS])?;
    let public = Arc::new(PublicMethods::of(&contract));
    // Without our tokens: a call that is passed on has its caller's, or none.
    let strangers = Neighbors::new(&contract, None, chassis.tasks().clone());
    let channels = Channels::open(&strangers, &config.neighbors)?;
    for service in public.services() {
        let channel = channels.of(service).ok_or_else(|| format!("nobody is known to serve {service}"))?;
        // Named for the life of the process, of which there is one.
        let name: &'static str = service.to_owned().leak();
        chassis.add_handler(name, Proxy::new(Arc::clone(&public), channel));
    }
    chassis.reflect_only(descriptors::public()?.leak());
    let payment = chassis.neighbors()?.channel("payment", &config.neighbors.payment)?;
    web::serve(&config, chassis, payment).await
}

/// A channel to each service.
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

    /// The channel to whoever owns the service with this full name: `onsale.<area>.v1.…`.
    fn of(&self, service: &str) -> Option<Channel> {
        let area = service.strip_prefix("onsale.")?.split('.').next()?;
        self.by_area.iter().find(|(name, _)| *name == area).map(|(_, channel)| channel.clone())
    }
}
