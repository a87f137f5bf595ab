//! `onsale`, the operator's command-line tool: `audit`, `migrate`, `status` and `buy`. It is a library so that `onsale-dev`
//! and the scenario tests share its mesh folder and front door. It must never link a test kit, a sandbox or a service.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "commands report to standard output and standard error"
)]

pub mod buy;
pub mod command;
pub mod front_door;
pub mod mesh;
pub mod output;
pub mod retry;

mod audit;
mod development;
mod migrate;
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Operates Onsale: checks its data, migrates its database, inspects a local mesh, buys tickets
#[derive(Debug, Parser)]
#[command(version, after_help = development::HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows the processes of a local mesh and whether they respond
    Status(status::Arguments),
    /// Buys tickets through the front door, for one customer or a crowd
    Buy(buy::Arguments),
    /// Checks every cross-service invariant and reports each violation
    Audit(audit::Arguments),
    /// Applies pending database migrations
    Migrate(migrate::Arguments),
}

/// Runs the command that the process's arguments name.
pub fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if development::is_development(&arguments) {
        return development::hand_over(&arguments);
    }
    let command = Arguments::parse().command;
    command::execute("onsale", run(command))
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Status(arguments) => return status::run(arguments).await,
        Command::Buy(arguments) => Box::pin(buy::run(arguments)).await?,
        Command::Audit(arguments) => return Box::pin(audit::run(arguments)).await,
        Command::Migrate(arguments) => migrate::run(arguments).await?,
    }
    Ok(ExitCode::SUCCESS)
}
