//! `onsale bench`: ours beside its limit, in the same run on the same machine.

mod across;
mod bare_watch;
mod empty;
mod fanout;
mod join;
mod kernel;
mod load;
mod ours;
mod pod;
mod rank;
mod record;
mod report;
mod scrape;
mod server;
mod streams;
mod watch;
mod world;

use std::time::Duration;

use onsale_testkit::stack::Interrupts;

use self::report::Report;

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
    /// Durable places in one hot line per second, against an empty call through the chassis.
    ///
    /// 1,024 callers on 16 connections, a new customer with every call, Postgres and Redis Cluster of its own.
    Join(Measure),
    /// Positions per second from the rank index, against random reads of an array.
    Rank(Measure),
    /// Resident bytes of a queue pod per open WatchQueue stream, against bare tonic.
    WatchMemory {
        #[command(flatten)]
        options: watch::Options,
        #[command(flatten)]
        measure: Measure,
    },
    /// Time from an admission's commit until the last open stream got its update, against a broadcast in bare tonic.
    ///
    /// `--seconds`: how long everything is left alone before each measurement.
    WatchFanout {
        #[command(flatten)]
        options: watch::Options,
        /// Every stream has a connection of its own: as many of --streams as files may be open.
        #[arg(long)]
        one_connection_each: bool,
        #[command(flatten)]
        measure: Measure,
    },
    /// Both of the above with 1,000,000 streams on one pod, once. Takes several GB of memory.
    Million {
        #[command(flatten)]
        options: watch::MillionOptions,
        #[command(flatten)]
        measure: Measure,
    },
    /// Serves the empty call for a benchmark that runs in another process.
    #[command(hide = true)]
    ServeEmpty {
        /// What stands in front of the handler.
        #[arg(long, value_enum)]
        through: server::Through,
        /// Keys of who signs the callers' tokens; its own when there are none.
        #[arg(long)]
        jwks: Option<String>,
    },
    /// Serves bare streams for a benchmark that runs in another process.
    #[command(hide = true)]
    ServeWatch(bare_watch::Arguments),
}

/// How to measure.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Measure {
    /// How long each measurement takes; of streams: how long they are left alone before it.
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

/// Runs one benchmark and prints its report. Whatever it started has ended by then, also when it is interrupted.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let (report, measure) = match arguments.bench {
        Bench::ServeEmpty { through, jwks } => return server::serve(through, jwks).await,
        Bench::ServeWatch(arguments) => return bare_watch::serve(arguments).await,
        Bench::Empty(measure) => (interruptible(empty::run(measure.duration())).await?, measure),
        Bench::Join(measure) => (interruptible(join::run(measure.duration())).await?, measure),
        Bench::Rank(measure) => {
            let report = tokio::task::spawn_blocking(move || rank::run(measure.duration()));
            (interruptible(async { Ok(report.await?) }).await?, measure)
        }
        Bench::WatchMemory { options, measure } => {
            (interruptible(watch::memory(options, measure.duration())).await?, measure)
        }
        Bench::WatchFanout { options, one_connection_each, measure } => {
            let bench = watch::fanout(options, one_connection_each, measure.duration());
            (interruptible(bench).await?, measure)
        }
        Bench::Million { options, measure } => {
            (interruptible(watch::million(options, measure.duration())).await?, measure)
        }
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

/// An interrupt drops the benchmark, and with it every server it started.
async fn interruptible(bench: impl Future<Output = anyhow::Result<Report>>) -> anyhow::Result<Report> {
    let mut interrupts = Interrupts::listen()?;
    tokio::select! {
        report = Box::pin(bench) => report,
        () = interrupts.next() => anyhow::bail!("interrupted"),
    }
}
