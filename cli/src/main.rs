//! The process of `onsale`: hands over to the library, which scenario tests share.

use std::process::ExitCode;

fn main() -> ExitCode {
    onsale::main()
}
