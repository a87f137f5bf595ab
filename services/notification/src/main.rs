//! Process of the Notification service.

use std::process::ExitCode;

fn main() -> ExitCode {
    onsale_kit::run(onsale_notification::SERVICE, onsale_notification::DEFAULTS, onsale_notification::build)
}
