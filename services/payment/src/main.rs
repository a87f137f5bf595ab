//! Process of the Payment service.

use std::process::ExitCode;

fn main() -> ExitCode {
    onsale_kit::run(onsale_payment::SERVICE, onsale_payment::DEFAULTS, onsale_payment::build)
}
