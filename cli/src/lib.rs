//! `onsale`: the tool a person holds. A library, so that scenario tests use the front door and the mesh as the tool does.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what it says goes to whoever typed the command"
)]

pub mod buy;
pub mod front_door;
pub mod mesh;
pub mod patience;
pub mod up;

mod audit;
mod bench;
mod down;
mod logs;
mod migrate;
mod output;
mod sandbox;
mod status;

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
    /// Starts the whole mesh on this machine and keeps it running until Ctrl-C.
    Up(up::Arguments),
    /// Stops the mesh that `onsale up` started.
    Down(down::Arguments),
    /// Shows what runs, and whether it answers.
    Status(status::Arguments),
    /// Shows what the processes of the mesh have logged.
    Logs(logs::Arguments),
    /// Buys tickets through the front door, for one customer or a crowd.
    Buy(buy::Arguments),
    /// Checks the books: what must always hold. Fails when something does not.
    Audit(audit::Arguments),
    /// Runs one part of the outside world: a payment provider, a mail server.
    Sandbox(sandbox::Arguments),
    /// Brings the database schemas up to date.
    Migrate(migrate::Arguments),
    /// Measures a part against its limit on this machine. Build with --release.
    Bench(bench::Arguments),
}

/// Does what the command line says.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(code) => code,
        Err(error) => {
            // One line with all causes: for a person, not for a debugger.
            eprintln!("onsale: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    onsale_kit::tls::install_provider();
    let runtime = tokio::runtime::Runtime::new()?;
    let done = runtime.block_on(async {
        match arguments.command {
            Command::Up(arguments) => Box::pin(up::run(arguments)).await?,
            Command::Down(arguments) => down::run(arguments).await?,
            Command::Status(arguments) => return status::run(arguments).await,
            Command::Logs(arguments) => logs::run(arguments).await?,
            Command::Buy(arguments) => Box::pin(buy::run(arguments)).await?,
            Command::Audit(arguments) => return Box::pin(audit::run(arguments)).await,
            Command::Sandbox(arguments) => sandbox::run(arguments).await?,
            Command::Migrate(arguments) => migrate::run(arguments).await?,
            Command::Bench(arguments) => bench::run(arguments).await?,
        }
        Ok(ExitCode::SUCCESS)
    });
    // Whatever still runs by now (a program that prepares a store) was asked to end, or ends with us.
    runtime.shutdown_background();
    done
}
