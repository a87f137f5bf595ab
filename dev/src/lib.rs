//! `onsale-dev`, the commands for development: `up`, `down`, `logs`, `sandbox` and `bench`. `onsale` runs them under its
//! own name as well (ADR 0021). Nothing here is part of a production image.

mod down;
mod logs;
mod sandbox;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs Onsale on this machine for development, and benchmarks it
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts a whole mesh on this machine and keeps it running until Ctrl-C
    Up(up::Arguments),
    /// Stops the mesh that `onsale up` started
    Down(down::Arguments),
    /// Shows the logs of the mesh's processes
    Logs(logs::Arguments),
    /// Runs a sandbox payment provider or mail server
    Sandbox(sandbox::Arguments),
    /// Benchmarks a part of Onsale against its limit on this machine (use a release build)
    Bench(onsale_bench::Arguments),
}

/// Runs the command that the process's arguments name.
pub fn main() -> ExitCode {
    let command = Arguments::parse().command;
    onsale::command::execute("onsale-dev", run(command))
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up(arguments) => Box::pin(up::run(arguments)).await?,
        Command::Down(arguments) => down::run(arguments).await?,
        Command::Logs(arguments) => logs::run(arguments).await?,
        Command::Sandbox(arguments) => sandbox::run(arguments).await?,
        Command::Bench(arguments) => onsale_bench::run(arguments).await?,
    }
    Ok(ExitCode::SUCCESS)
}
