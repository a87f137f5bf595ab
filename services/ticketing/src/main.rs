//! Process of the Ticketing service.

use std::process::ExitCode;

fn main() -> ExitCode {
    onsale_kit::run(onsale_ticketing::SERVICE, onsale_ticketing::DEFAULTS, onsale_ticketing::build)
}
