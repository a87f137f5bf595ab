//! The process of the gateway: hands over to the chassis.

use std::process::ExitCode;

fn main() -> ExitCode {
    onsale_kit::run(onsale_gateway::SERVICE, onsale_gateway::DEFAULTS, onsale_gateway::build)
}
