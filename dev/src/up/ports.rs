//! Ports of the mesh: fixed numbers that people can remember, or free ones that stay the same for a folder.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr, TcpListener},
};

use anyhow::{Context, bail};
use onsale::mesh::folder::{Folder, write_private};
use onsale_testkit::stack::process;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use super::listener;

/// Nodes of the Redis Cluster: three masters, three replicas.
pub(crate) const REDIS_NODES: u8 = 6;
/// Attempts to choose a whole set of free ports. An attempt fails if another process takes one of them meanwhile.
const CHOICES_MAX: u32 = 20;

/// Source of the port numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PortChoice {
    /// Fixed numbers: the front door on 8080, the Redis bus on 17301 to 17306, everything else from 7100 to 7450.
    Fixed,
    /// Free ports, so that several meshes can run at the same time.
    Free,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Service {
    Queue,
    Inventory,
    Claim,
    Payment,
    Ticketing,
    Notification,
}

impl Service {
    pub(crate) const ALL: [Self; 6] =
        [Self::Queue, Self::Inventory, Self::Claim, Self::Payment, Self::Ticketing, Self::Notification];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Inventory => "inventory",
            Self::Claim => "claim",
            Self::Payment => "payment",
            Self::Ticketing => "ticketing",
            Self::Notification => "notification",
        }
    }

    fn number(self) -> u16 {
        match self {
            Self::Queue => 1,
            Self::Inventory => 2,
            Self::Claim => 3,
            Self::Payment => 4,
            Self::Ticketing => 5,
            Self::Notification => 6,
        }
    }
}

/// A listening port of the mesh, whatever its number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Port {
    FrontDoor,
    EnvoyAdmin,
    Gateway,
    GatewayHttp,
    GatewayAdmin,
    Service(Service),
    ServiceAdmin(Service),
    Postgres,
    /// Client port of the node with this number, from 1 to [`REDIS_NODES`].
    Redis(u8),
    /// Cluster bus port of the same node.
    RedisBus(u8),
    Provider,
    Smtp,
    MailPage,
}

impl Port {
    pub(crate) fn all() -> Vec<Self> {
        let mut all =
            vec![Self::FrontDoor, Self::EnvoyAdmin, Self::Gateway, Self::GatewayHttp, Self::GatewayAdmin];
        all.extend(Service::ALL.into_iter().flat_map(|it| [Self::Service(it), Self::ServiceAdmin(it)]));
        all.extend([Self::Postgres, Self::Provider, Self::Smtp, Self::MailPage]);
        all.extend((1..=REDIS_NODES).flat_map(|node| [Self::Redis(node), Self::RedisBus(node)]));
        all
    }

    fn default_number(self) -> u16 {
        match self {
            Self::FrontDoor => 8080,
            Self::EnvoyAdmin => 7209,
            Self::Gateway => 7100,
            Self::GatewayHttp => 7110,
            Self::GatewayAdmin => 7200,
            Self::Service(service) => 7100 + service.number(),
            Self::ServiceAdmin(service) => 7200 + service.number(),
            Self::Postgres => 7432,
            Self::Redis(node) => 7300 + u16::from(node),
            Self::RedisBus(node) => 17300 + u16::from(node),
            Self::Provider => 7401,
            Self::Smtp => 7425,
            Self::MailPage => 7426,
        }
    }

    /// Returns the name of the process that listens on the port.
    pub(crate) fn process(self) -> String {
        match self {
            Self::FrontDoor | Self::EnvoyAdmin => "envoy".to_owned(),
            Self::Gateway | Self::GatewayHttp | Self::GatewayAdmin => "gateway".to_owned(),
            Self::Service(service) | Self::ServiceAdmin(service) => service.name().to_owned(),
            Self::Postgres => "postgres".to_owned(),
            Self::Redis(node) | Self::RedisBus(node) => format!("redis-{node}"),
            Self::Provider => "provider".to_owned(),
            Self::Smtp | Self::MailPage => "mail".to_owned(),
        }
    }
}

/// Numbers of all ports. A listener reserves each one until its process starts, so that no other process takes it.
#[derive(Debug)]
pub(crate) struct Ports {
    /// Numbers chosen by [`PortChoice::Free`]; empty for [`PortChoice::Fixed`].
    chosen: BTreeMap<Port, u16>,
    reserved: Mutex<BTreeMap<Port, TcpListener>>,
}

impl Ports {
    /// Chooses and reserves all ports. Free ports are remembered in the folder and used again by the next start.
    pub(crate) fn choose(choice: PortChoice, folder: &Folder) -> anyhow::Result<Self> {
        if choice == PortChoice::Fixed {
            return Self::reserve(BTreeMap::new())?.map_err(|taken| taken.describe());
        }
        let remembered = std::fs::read_to_string(folder.ports()).unwrap_or_default();
        let remembered: Vec<(Port, u16)> = serde_json::from_str(&remembered).unwrap_or_default();
        if remembered.len() == Port::all().len()
            && let Ok(ports) = Self::reserve(remembered.into_iter().collect())?
        {
            return Ok(ports);
        }
        for _ in 0..CHOICES_MAX {
            let mut chosen = BTreeMap::new();
            for port in Port::all() {
                chosen.insert(port, process::free_port()?);
            }
            if let Ok(ports) = Self::reserve(chosen)? {
                let kept: Vec<_> = ports.chosen.iter().collect();
                write_private(&folder.ports(), &serde_json::to_string(&kept)?)?;
                return Ok(ports);
            }
        }
        bail!("found no set of free ports on 127.0.0.1 in {CHOICES_MAX} attempts")
    }

    fn reserve(chosen: BTreeMap<Port, u16>) -> anyhow::Result<Result<Self, TakenPort>> {
        let ports = Self { chosen, reserved: Mutex::default() };
        for port in Port::all() {
            let address = ports.address(port);
            match TcpListener::bind(address) {
                Ok(listener) => {
                    ports.lock().insert(port, listener);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                    return Ok(Err(TakenPort { port, number: address.port() }));
                }
                Err(error) => return Err(error).with_context(|| format!("cannot listen on {address}")),
            }
        }
        Ok(Ok(ports))
    }

    /// Ends the reservation of a port, so that its process can listen on it.
    pub(crate) fn release(&self, port: Port) {
        self.lock().remove(&port);
    }

    pub(crate) fn address(&self, port: Port) -> SocketAddr {
        let number = self.chosen.get(&port).copied().unwrap_or_else(|| port.default_number());
        SocketAddr::from((Ipv4Addr::LOCALHOST, number))
    }

    pub(crate) fn url(&self, port: Port) -> String {
        format!("http://{}", self.address(port))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Port, TcpListener>> {
        self.reserved.lock()
    }
}

/// A port on which another process already listens.
#[derive(Debug)]
struct TakenPort {
    port: Port,
    number: u16,
}

impl TakenPort {
    fn describe(&self) -> anyhow::Error {
        let by = listener::on_port(self.number).map(|process| format!(" by {process}")).unwrap_or_default();
        let (number, process) = (self.number, self.port.process());
        anyhow::anyhow!(
            "port {number}, which {process} needs, is taken{by}: stop that process, or use --ports free"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn default_numbers_are_distinct() {
        let numbers: BTreeSet<u16> = Port::all().into_iter().map(Port::default_number).collect();
        assert_eq!(numbers.len(), Port::all().len());
    }

    #[test]
    fn free_ports_stay_the_same_in_a_folder() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::locate(directory.path()).unwrap();
        let addresses = || {
            let ports = Ports::choose(PortChoice::Free, &folder).unwrap();
            Port::all().into_iter().map(|port| ports.address(port)).collect::<Vec<_>>()
        };
        assert_eq!(addresses(), addresses());
    }

    #[test]
    fn remembered_ports_are_replaced_when_one_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::locate(directory.path()).unwrap();
        let first = Ports::choose(PortChoice::Free, &folder).unwrap();
        let second = Ports::choose(PortChoice::Free, &folder).unwrap();
        assert_ne!(first.address(Port::FrontDoor), second.address(Port::FrontDoor));
    }

    #[test]
    fn taken_port_error_names_the_process_that_has_it() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let number = listener.local_addr().unwrap().port();
        let message = TakenPort { port: Port::Smtp, number }.describe().to_string();
        let ours = format!("(process {})", std::process::id());
        assert!(message.contains(&format!("port {number}, which mail needs, is taken by")), "{message}");
        assert!(message.contains(&ours), "{message}");
    }
}
