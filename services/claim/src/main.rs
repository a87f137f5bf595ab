//! The process of the Claim service.

use std::process::ExitCode;

fn main() -> ExitCode {
    onsale_kit::run(onsale_claim::SERVICE, onsale_claim::DEFAULTS, onsale_claim::build)
}
