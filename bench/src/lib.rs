//! `onsale bench`: each benchmark measures a part of Onsale and its limit in the same run on the same machine. The limit is
//! the same work without the part, such as an empty call or bare tonic.
#![expect(clippy::print_stdout, reason = "a benchmark prints its report")]

mod bare_watch;
mod claim;
mod crowd;
mod customers;
mod empty;
mod fanout;
mod join;
mod kernel;
mod load;
mod pod;
mod pod_to_pod;
mod rank;
mod record;
mod rejected;
mod report;
mod reserve;
mod sale;
mod scrape;
mod sell_out;
mod server;
mod streams;
mod testbed;
mod usage;
mod watch;
mod watched_pod;

use std::time::Duration;

use onsale_testkit::stack::Interrupts;

use self::report::Report;

/// Arguments of `onsale bench`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, clap::Subcommand)]
enum Bench {
    /// Empty calls per second through the chassis with all layers, against the same calls in bare tonic
    Empty(Measure),
    /// Durable joins per second in one hot line, against empty calls through the chassis
    ///
    /// 1,024 callers on 16 connections, a new customer with every call, a Postgres and a Redis Cluster of its own.
    Join(Measure),
    /// Positions per second from the rank index, against random reads of an array
    Rank(Measure),
    /// Resident bytes of a queue pod per open WatchQueue stream, against bare tonic
    WatchMemory {
        #[command(flatten)]
        options: watch::Options,
        #[command(flatten)]
        measure: Measure,
    },
    /// Time from an admission's commit to the last stream's update, against a broadcast in bare tonic
    ///
    /// `--seconds` is the idle time before each measurement.
    WatchFanout {
        #[command(flatten)]
        options: watch::Options,
        /// Gives every stream a connection of its own; the limit of open files may reduce --streams
        #[arg(long)]
        one_connection_each: bool,
        #[command(flatten)]
        measure: Measure,
    },
    /// Both of the above once, with 1,000,000 streams on one pod; needs several GB of memory
    Million {
        #[command(flatten)]
        options: watch::MillionOptions,
        #[command(flatten)]
        measure: Measure,
    },
    /// Durable reservations of two units per second in one hot sector, against empty calls through the chassis
    ///
    /// Also measures the same with seats, two rejected designs, and the time of CreateEvent.
    Reserve {
        #[command(flatten)]
        callers: Callers,
        #[command(flatten)]
        measure: Measure,
    },
    /// Durable claims of two units per second, each with its own turn, against a third of the empty calls
    ///
    /// A claim takes three hops, so the limit is the rate of empty calls through the chassis divided by three.
    Claim {
        /// Kills every Redis node after the pods have started, before the first call
        #[arg(long)]
        redis_down: bool,
        #[command(flatten)]
        callers: Callers,
        #[command(flatten)]
        measure: Measure,
    },
    /// Response time of 10,000 customers who want the last 100 units, against claims while units are plenty
    SellOut {
        #[command(flatten)]
        callers: Callers,
        #[command(flatten)]
        measure: Measure,
    },
    /// Serves the empty call for a benchmark in another process
    #[command(hide = true)]
    ServeEmpty {
        /// Server stack in front of the handler
        #[arg(long, value_enum)]
        through: server::ServerStack,
        #[command(flatten)]
        trusted: server::Trusted,
    },
    /// Serves bare streams for a benchmark in another process
    #[command(hide = true)]
    ServeWatch(bare_watch::Arguments),
}

/// Option of the load benchmarks.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Callers {
    /// Number of callers, each with one call in flight
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u16).range(64..=4000))]
    callers: u16,
}

impl Callers {
    fn count(self) -> usize {
        self.callers.into()
    }
}

/// Options of every benchmark.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Measure {
    /// Seconds of each measurement; for streams, idle seconds before each measurement
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Prints one JSON object instead of text
    #[arg(long)]
    json: bool,
}

impl Measure {
    fn duration(self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// Runs one benchmark and prints its report. All its servers have ended when this returns, also after an interrupt.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let (report, measure) = match arguments.bench {
        Bench::ServeEmpty { through, trusted } => return server::serve(through, trusted).await,
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
        Bench::Reserve { callers, measure } => {
            (interruptible(reserve::run(callers.count(), measure.duration())).await?, measure)
        }
        Bench::Claim { redis_down, callers, measure } => {
            let redis = if redis_down { claim::RedisState::Down } else { claim::RedisState::Up };
            (interruptible(claim::run(callers.count(), measure.duration(), redis)).await?, measure)
        }
        Bench::SellOut { callers, measure } => {
            (interruptible(sell_out::run(callers.count(), measure.duration())).await?, measure)
        }
    };
    if measure.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!("{}", report.to_text());
        if cfg!(debug_assertions) {
            println!("This is a debug build, so the figures are meaningless. Build with --release.");
        }
    }
    Ok(())
}

/// Runs `bench`. An interrupt drops it, and with it every server that it started.
async fn interruptible(bench: impl Future<Output = anyhow::Result<Report>>) -> anyhow::Result<Report> {
    let mut interrupts = Interrupts::listen()?;
    tokio::select! {
        report = Box::pin(bench) => report,
        () = interrupts.next() => anyhow::bail!("interrupted"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Bench, clap::Error> {
        Line::try_parse_from(std::iter::once("bench").chain(line.split(' '))).map(|line| line.arguments.bench)
    }

    #[test]
    fn every_bench_accepts_seconds_and_json() {
        for name in ["empty", "join", "reserve", "claim", "sell-out"] {
            parse(&format!("{name} --json --seconds 2")).unwrap();
            assert!(parse(&format!("{name} --seconds 0")).is_err());
        }
    }

    #[test]
    fn callers_default_to_1024_and_are_bounded() {
        let bench = parse("claim --redis-down --callers 64").unwrap();
        assert!(matches!(bench, Bench::Claim { redis_down: true, callers, .. } if callers.count() == 64));
        let bench = parse("reserve").unwrap();
        assert!(matches!(bench, Bench::Reserve { callers, .. } if callers.count() == 1_024));
        assert!(parse("sell-out --callers 63").is_err());
        assert!(parse("sell-out --callers 4001").is_err());
        assert!(parse("sell-out --redis-down").is_err());
    }
}
