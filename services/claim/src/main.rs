//! The process of the Claim service: hands over to the chassis.

use std::process::ExitCode;

fn main() -> ExitCode {
    onsale_kit::run(onsale_claim::SERVICE, onsale_claim::DEFAULTS, onsale_claim::build)
}
