//! Entry point of the gateway process.

use std::process::ExitCode;

fn main() -> ExitCode {
    onsale_kit::run(onsale_gateway::SERVICE, onsale_gateway::DEFAULTS, onsale_gateway::build)
}
