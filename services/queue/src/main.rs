//! The process of the Queue service: hands over to the chassis.

use std::process::ExitCode;

fn main() -> ExitCode {
    onsale_kit::run(onsale_queue::SERVICE, onsale_queue::DEFAULTS, onsale_queue::build)
}
