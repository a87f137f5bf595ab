//! `teststack COMMAND …` runs a command with a private Postgres and Redis Cluster and removes both afterwards.

use std::process::ExitCode;

use onsale_testkit::stack;

#[tokio::main]
async fn main() -> ExitCode {
    let command: Vec<String> = std::env::args().skip(1).skip_while(|argument| argument == "--").collect();
    match stack::run_command(&command).await {
        Ok(code) => code,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "a command line tool speaks to the person who called it")]
fn report(error: &stack::Error) {
    let mut chain = format!("teststack: {error}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        chain.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    eprintln!("{chain}");
}
