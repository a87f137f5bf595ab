//! The process of the Ticketing service: hands over to the chassis.

use std::process::ExitCode;

fn main() -> ExitCode {
    onsale_kit::run(onsale_ticketing::SERVICE, onsale_ticketing::DEFAULTS, onsale_ticketing::build)
}
