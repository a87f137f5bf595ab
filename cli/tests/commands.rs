//! `onsale` as a process without a mesh: the messages of `status` and `buy`, and the hand-over to `onsale-dev`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::{
    fs::File,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

fn onsale(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onsale"));
    command.args(arguments).arg("--directory").arg(directory);
    command
}

/// Returns the one line on standard error of a command that exited with 1.
fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(message.lines().count(), 1, "one sentence: {message}");
    message
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Links `onsale` into an empty folder, where it finds only the `onsale-dev` that a test writes.
fn alone() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("onsale");
    std::fs::hard_link(env!("CARGO_BIN_EXE_onsale"), &program).unwrap();
    (folder, program)
}

#[test]
fn status_of_a_locked_folder_without_a_manifest_is_starting() {
    let directory = tempfile::tempdir().unwrap();
    let mut lock = File::create(directory.path().join("lock")).unwrap();
    write!(lock, "{}", std::process::id()).unwrap();
    lock.lock().unwrap();
    let status = onsale(directory.path(), &["status"]).output().unwrap();
    assert_eq!(status.status.code(), Some(1));
    assert!(stdout(&status).contains("is starting or stopping"), "{status:?}");
}

#[test]
fn status_ignores_the_manifest_of_a_killed_supervisor() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("lock"), "4194305").unwrap();
    std::fs::write(directory.path().join("mesh.json"), "{}").unwrap();
    let status = onsale(directory.path(), &["status"]).output().unwrap();
    assert_eq!(status.status.code(), Some(1));
    assert!(stdout(&status).contains("no mesh runs in"), "{status:?}");
    let json = onsale(directory.path(), &["status", "--json"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!(json["running"], false);
}

#[test]
fn buy_refuses_an_invalid_front_door_and_a_missing_mesh() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["buy", "--event", "1", "--front-door", "nonsense"];
    let message = refusal(&onsale(directory.path(), &arguments).output().unwrap());
    assert!(message.contains("is not an address"), "{message}");
    let message = refusal(&onsale(directory.path(), &["buy"]).output().unwrap());
    assert!(message.contains("make up"), "{message}");
}

#[test]
fn development_command_runs_onsale_dev_with_the_same_arguments() {
    let (folder, onsale) = alone();
    let dev = folder.path().join("onsale-dev");
    std::fs::write(&dev, "#!/bin/sh\nprintf '%s|' \"$@\"\necho complaint >&2\nexit 7\n").unwrap();
    std::fs::set_permissions(&dev, std::fs::Permissions::from_mode(0o755)).unwrap();
    let arguments = ["up", "--set", "claim.claims.window=3s", "--help", "two words"];
    let output = Command::new(&onsale).args(arguments).output().unwrap();
    assert_eq!(stdout(&output), "up|--set|claim.claims.window=3s|--help|two words|");
    assert_eq!(output.stderr, b"complaint\n");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn development_command_without_onsale_dev_exits_with_69() {
    let (_folder, onsale) = alone();
    let output = Command::new(&onsale).args(["bench", "empty"]).output().unwrap();
    assert_eq!(output.status.code(), Some(69));
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message.lines().count(), 1, "one sentence: {message}");
    assert!(message.contains("onsale-dev") && message.contains("cargo build"), "{message}");
}

#[test]
fn help_lists_operator_and_development_commands() {
    let help = stdout(&Command::new(env!("CARGO_BIN_EXE_onsale")).arg("--help").output().unwrap());
    for command in ["audit", "migrate", "status", "buy", "up", "down", "logs", "sandbox", "bench"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command}: {help}");
    }
}
