//! The process of the Queue service, which the chassis runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    onsale_kit::run(onsale_queue::SERVICE, onsale_queue::DEFAULTS, onsale_queue::build)
}
