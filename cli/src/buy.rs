//! `onsale buy` lets one customer or a crowd buy tickets through the front door, with the public contracts only.

pub mod order;
pub mod purchase;

mod crowd;
mod single;

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use onsale_types::RequestId;

use crate::{front_door::FrontDoor, mesh::manifest::Manifest};

use self::order::Order;

/// Arguments of `onsale buy`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Number of customers who buy at the same time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    customers: u32,
    /// Number of tickets that each customer buys
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    tickets: u32,
    /// UUID of the event [default: the demo event]
    #[arg(long)]
    event: Option<String>,
    /// UUID of the sector [default: the one with most free units]
    #[arg(long)]
    sector: Option<String>,
    /// Email address of the customer, or of the first one of several [default: a new address]
    #[arg(long)]
    email: Option<String>,
    /// URL of the front door [default: that of the mesh in --directory]
    #[arg(long)]
    front_door: Option<String>,
    /// URL of the mail catcher, to wait for the confirmation [default: that of the mesh in --directory]
    #[arg(long)]
    mail: Option<String>,
    /// Folder of the mesh
    #[arg(long, default_value = crate::mesh::DIRECTORY_DEFAULT)]
    directory: PathBuf,
    /// Seconds after which a purchase is abandoned
    #[arg(long, default_value_t = 300)]
    seconds: u64,
}

/// Buys the tickets and prints the progress. Fails if a purchase fails for another reason than a sell-out.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
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
    let event_id = arguments.event.or(demo_event).context("there is no demo event to buy: give --event")?;
    let order = Order {
        event_id,
        sector_id: arguments.sector,
        count: arguments.tickets,
        mail_url: arguments.mail.or(manifest.map(|manifest| manifest.endpoints.mail)),
        time_max: Duration::from_secs(arguments.seconds),
    };
    let door = FrontDoor::at(&front_door)?;
    let email = arguments.email.unwrap_or_else(new_address);
    if arguments.customers == 1 {
        single::buy(&door, &email, &order).await
    } else {
        crowd::buy(&door, email, &order, arguments.customers).await
    }
}

/// Returns an email address that no customer has used before.
fn new_address() -> String {
    let random = RequestId::generate().to_string();
    let (_, tail) = random.rsplit_once('-').unwrap_or_default();
    format!("customer-{tail}@example.test")
}
