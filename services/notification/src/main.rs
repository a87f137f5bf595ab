//! The process of the Notification service: hands over to the chassis.

use std::process::ExitCode;

fn main() -> ExitCode {
    onsale_kit::run(onsale_notification::SERVICE, onsale_notification::DEFAULTS, onsale_notification::build)
}
