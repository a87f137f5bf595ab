//! Executes a command of `onsale` or `onsale-dev` and turns its result into an exit code.

use std::process::ExitCode;

/// Runs `command` to its end on a new runtime. Prints an error with all its causes on one line, after `program`, and
/// returns exit code 1 for it.
pub fn execute(program: &str, command: impl Future<Output = anyhow::Result<ExitCode>>) -> ExitCode {
    match run(command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{program}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    onsale_kit::tls::install_provider();
    let runtime = tokio::runtime::Runtime::new()?;
    let result = runtime.block_on(command);
    // Blocking tasks that still run (a program that prepares a store) were told to stop, or end with this process.
    runtime.shutdown_background();
    result
}
