//! `onsale bench`: ours beside its limit, in the same run on the same machine.

mod empty;
mod load;
mod report;
mod server;

use std::time::Duration;

/// Arguments of `onsale bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, clap::Subcommand)]
enum Bench {
    /// An empty unary call through the chassis, all layers on, against the same in bare tonic.
    Empty(Measure),
    /// Serves the empty call for a benchmark that runs in another process.
    #[command(hide = true)]
    ServeEmpty {
        /// What stands in front of the handler.
        #[arg(long, value_enum)]
        through: server::Through,
    },
}

/// How to measure.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Measure {
    /// How long each of the six measurements takes.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Prints one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

impl Measure {
    fn duration(self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// Runs one benchmark and prints its report.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let (report, measure) = match arguments.bench {
        Bench::Empty(measure) => (empty::run(measure.duration()).await?, measure),
        Bench::ServeEmpty { through } => return server::serve(through).await,
    };
    if measure.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!("{}", report.to_text());
        if cfg!(debug_assertions) {
            println!("This is a debug build: the numbers mean nothing. Use --release.");
        }
    }
    Ok(())
}
