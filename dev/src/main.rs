//! The `onsale-dev` executable; the library has the commands.

use std::process::ExitCode;

fn main() -> ExitCode {
    onsale_dev::main()
}
