//! `onsale`: the tool a person holds.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what it says goes to whoever typed the command"
)]

mod bench;
mod migrate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs and measures Onsale.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Brings the database schemas up to date.
    Migrate(migrate::Arguments),
    /// Measures a part against its limit on this machine. Build with --release.
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line with all causes: for a person, not for a debugger.
            eprintln!("onsale: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        match arguments.command {
            Command::Migrate(arguments) => migrate::run(arguments).await,
            Command::Bench(arguments) => bench::run(arguments).await,
        }
    })
}
