//! Development commands of `onsale`: runs the `onsale-dev` beside this executable in place of this process, so that
//! arguments, standard streams, signals and the exit code are those of `onsale-dev` (ADR 0021).

use std::{
    ffi::OsString,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode},
};

/// Subcommands that `onsale-dev` runs.
const COMMANDS: [&str; 5] = ["up", "down", "logs", "sandbox", "bench"];
/// The second half of `onsale --help`, in the form of the first.
pub(crate) const HELP: &str = "\
Development commands, run by `onsale-dev`:
  up       Starts a whole mesh on this machine and keeps it running until Ctrl-C
  down     Stops the mesh that `onsale up` started
  logs     Shows the logs of the mesh's processes
  sandbox  Runs a sandbox payment provider or mail server
  bench    Benchmarks a part of Onsale against its limit on this machine";
/// `EX_UNAVAILABLE` of `sysexits.h`.
const UNAVAILABLE: u8 = 69;
const PROGRAM: &str = "onsale-dev";

/// Returns true if `arguments`, without the program's name, call a development command or ask for its help.
pub(crate) fn is_development(arguments: &[OsString]) -> bool {
    let command = match arguments {
        [help, command, ..] if help == "help" => command,
        [command, ..] => command,
        [] => return false,
    };
    COMMANDS.iter().any(|known| command == known)
}

/// Replaces this process with `onsale-dev`. Returns only if that failed.
pub(crate) fn hand_over(arguments: &[OsString]) -> ExitCode {
    let program = match beside_own_executable() {
        Ok(program) => program,
        Err(error) => return unavailable(&format!("failed to find the executable of this process: {error}")),
    };
    let error = Command::new(&program).args(arguments).exec();
    unavailable(&format!(
        "this command needs {}, which cannot be run ({error}): build it with `cargo build --workspace`",
        program.display(),
    ))
}

fn beside_own_executable() -> std::io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(PROGRAM))
}

fn unavailable(reason: &str) -> ExitCode {
    eprintln!("onsale: {reason}");
    ExitCode::from(UNAVAILABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn development_commands_and_their_help_are_recognized() {
        let is_development = |line: &str| {
            let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            is_development(&arguments)
        };
        for line in ["up", "bench empty --json", "down --help", "help logs", "sandbox"] {
            assert!(is_development(line), "{line}");
        }
        for line in ["", "--help", "help", "status", "help audit", "buy up", "uptime"] {
            assert!(!is_development(line), "{line}");
        }
    }

    #[test]
    fn help_lists_every_development_command() {
        for command in COMMANDS {
            assert!(HELP.lines().any(|line| line.starts_with(&format!("  {command} "))), "{command}");
        }
    }
}
