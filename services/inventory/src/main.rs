//! The process of the Inventory service.

use std::process::ExitCode;

fn main() -> ExitCode {
    onsale_kit::run(onsale_inventory::SERVICE, onsale_inventory::DEFAULTS, onsale_inventory::build)
}
