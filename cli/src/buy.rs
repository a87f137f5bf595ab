//! `onsale buy`: one customer, or a crowd, buys through the front door with the public contracts only.

pub mod order;
pub mod purchase;

mod crowd;
mod single;

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use onsale_types::RequestId;

use crate::{front_door::FrontDoor, mesh::manifest::Manifest};

use self::order::Order;

/// What `onsale buy` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How many customers buy at the same time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    customers: u32,
    /// How many tickets each buys.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    tickets: u32,
    /// UUID of the event. Unset: the demo event.
    #[arg(long)]
    event: Option<String>,
    /// UUID of the sector. Unset: where there is most room.
    #[arg(long)]
    sector: Option<String>,
    /// Who buys; with several customers only the first. Unset: somebody new.
    #[arg(long)]
    email: Option<String>,
    /// Address of the front door. Unset: of the mesh that `onsale up` started.
    #[arg(long)]
    front_door: Option<String>,
    /// Address of the mail catcher, to wait for the confirmation. Unset: of the mesh that `onsale up` started.
    #[arg(long)]
    mail: Option<String>,
    /// Folder of that mesh.
    #[arg(long, default_value = crate::mesh::DIRECTORY_DEFAULT)]
    directory: PathBuf,
    /// Seconds after which a customer gives up.
    #[arg(long, default_value_t = 300)]
    seconds: u64,
}

/// Buys.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let manifest = Manifest::read(&arguments.directory);
    let front_door = match (&arguments.front_door, &manifest) {
        (Some(url), _) => url.clone(),
        (None, Ok(manifest)) => manifest.endpoints.front_door.clone(),
        (None, Err(_)) => {
            manifest.context("no mesh is running here: start one with `make up`, or give --front-door")?;
            return Ok(());
        }
    };
    let manifest = manifest.ok();
    let demo_event = manifest.as_ref().and_then(|manifest| manifest.demo_event.clone());
    let event_id = arguments.event.or(demo_event).context("which event? give --event")?;
    let order = Order {
        event_id,
        sector_id: arguments.sector,
        count: arguments.tickets,
        mail_url: arguments.mail.or(manifest.map(|manifest| manifest.endpoints.mail)),
        time_max: Duration::from_secs(arguments.seconds),
    };
    let door = FrontDoor::at(&front_door)?;
    let email = arguments.email.unwrap_or_else(somebody_new);
    if arguments.customers == 1 {
        single::buy(&door, &email, &order).await
    } else {
        crowd::buy(&door, email, &order, arguments.customers).await
    }
}

/// An address nobody has used before.
fn somebody_new() -> String {
    let random = RequestId::generate().to_string();
    let (_, tail) = random.rsplit_once('-').unwrap_or_default();
    format!("customer-{tail}@example.test")
}
