//! The ports of the mesh: a fixed plan that people can remember, or free ones that stay the same in a folder.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, bail};
use onsale_testkit::stack::process;
use serde::{Deserialize, Serialize};

use super::listener;
use onsale::mesh::folder::{Folder, write_private};

/// Nodes of the Redis Cluster: three masters, three replicas.
pub(crate) const REDIS_NODES: u8 = 6;
/// How often other free ports are chosen when somebody took one meanwhile.
const CHOICES_MAX: u32 = 20;

/// Where the ports come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Choice {
    /// The plan: front door 8080, everything else between 7100 and 7450.
    Fixed,
    /// Free ones, so that several meshes run side by side.
    Free,
}

/// The services of the mesh.
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

/// One place where something listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Place {
    FrontDoor,
    EnvoyAdmin,
    Gateway,
    GatewayHttp,
    GatewayAdmin,
    Service(Service),
    ServiceAdmin(Service),
    Postgres,
    /// From 1 to [`REDIS_NODES`].
    Redis(u8),
    RedisBus(u8),
    Provider,
    Smtp,
    MailPage,
}

impl Place {
    pub(crate) fn all() -> Vec<Self> {
        let mut all =
            vec![Self::FrontDoor, Self::EnvoyAdmin, Self::Gateway, Self::GatewayHttp, Self::GatewayAdmin];
        all.extend(Service::ALL.into_iter().flat_map(|it| [Self::Service(it), Self::ServiceAdmin(it)]));
        all.extend([Self::Postgres, Self::Provider, Self::Smtp, Self::MailPage]);
        all.extend((1..=REDIS_NODES).flat_map(|node| [Self::Redis(node), Self::RedisBus(node)]));
        all
    }

    fn planned(self) -> u16 {
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

    /// Which process listens there.
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

/// The port of every place. Each stays reserved until the process that wants it starts, so that nobody else takes it.
#[derive(Debug)]
pub(crate) struct Ports {
    /// Those that differ from the plan.
    chosen: BTreeMap<Place, u16>,
    reserved: Mutex<BTreeMap<Place, TcpListener>>,
}

impl Ports {
    /// Chooses and reserves all of them.
    pub(crate) fn choose(choice: Choice, folder: &Folder) -> anyhow::Result<Self> {
        if choice == Choice::Fixed {
            return Self::reserve(BTreeMap::new())?.map_err(|taken| taken.describe());
        }
        let remembered = std::fs::read_to_string(folder.ports()).unwrap_or_default();
        let remembered: Vec<(Place, u16)> = serde_json::from_str(&remembered).unwrap_or_default();
        if remembered.len() == Place::all().len()
            && let Ok(ports) = Self::reserve(remembered.into_iter().collect())?
        {
            return Ok(ports);
        }
        for _ in 0..CHOICES_MAX {
            let mut chosen = BTreeMap::new();
            for place in Place::all() {
                chosen.insert(place, process::free_port()?);
            }
            if let Ok(ports) = Self::reserve(chosen)? {
                let kept: Vec<_> = ports.chosen.iter().collect();
                write_private(&folder.ports(), &serde_json::to_string(&kept)?)?;
                return Ok(ports);
            }
        }
        bail!("found no free ports on loopback")
    }

    fn reserve(chosen: BTreeMap<Place, u16>) -> anyhow::Result<Result<Self, Taken>> {
        let ports = Self { chosen, reserved: Mutex::default() };
        for place in Place::all() {
            let address = ports.address(place);
            match TcpListener::bind(address) {
                Ok(listener) => {
                    ports.lock().insert(place, listener);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                    return Ok(Err(Taken { place, port: address.port() }));
                }
                Err(error) => return Err(error).with_context(|| format!("cannot listen on {address}")),
            }
        }
        Ok(Ok(ports))
    }

    /// Gives a reserved port to the process that wants it.
    pub(crate) fn release(&self, place: Place) {
        self.lock().remove(&place);
    }

    pub(crate) fn address(&self, place: Place) -> SocketAddr {
        let port = self.chosen.get(&place).copied().unwrap_or_else(|| place.planned());
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    pub(crate) fn url(&self, place: Place) -> String {
        format!("http://{}", self.address(place))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Place, TcpListener>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A port that somebody else has.
#[derive(Debug)]
struct Taken {
    place: Place,
    port: u16,
}

impl Taken {
    fn describe(&self) -> anyhow::Error {
        let by = listener::on_port(self.port).map(|it| format!(" by {it}")).unwrap_or_default();
        let (port, process) = (self.port, self.place.process());
        anyhow::anyhow!("port {port}, which {process} needs, is taken{by}: stop that, or use --ports free")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_places_share_a_port() {
        let ports: BTreeSet<u16> = Place::all().into_iter().map(Place::planned).collect();
        assert_eq!(ports.len(), Place::all().len());
    }

    #[test]
    fn free_ports_stay_the_same_in_a_folder() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::locate(directory.path()).unwrap();
        let addresses = || {
            let ports = Ports::choose(Choice::Free, &folder).unwrap();
            Place::all().into_iter().map(|place| ports.address(place)).collect::<Vec<_>>()
        };
        assert_eq!(addresses(), addresses());
    }

    #[test]
    fn a_remembered_port_that_is_taken_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::locate(directory.path()).unwrap();
        let first = Ports::choose(Choice::Free, &folder).unwrap();
        let second = Ports::choose(Choice::Free, &folder).unwrap();
        assert_ne!(first.address(Place::FrontDoor), second.address(Place::FrontDoor));
    }

    #[test]
    fn a_taken_port_is_named_with_who_has_it() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let message = Taken { place: Place::Smtp, port }.describe().to_string();
        let ours = format!("(process {})", std::process::id());
        assert!(message.contains(&format!("port {port}, which mail needs, is taken by")), "{message}");
        assert!(message.contains(&ours), "{message}");
    }
}
