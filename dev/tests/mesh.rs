//! `onsale-dev` as a process without a mesh: cases that `up`, `down` and `logs` refuse, and their messages.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::{
    fs::File,
    io::Write,
    net::TcpListener,
    path::Path,
    process::{Command, Output},
};

fn onsale(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onsale-dev"));
    command.args(arguments).arg("--directory").arg(directory);
    command
}

/// Returns the one line on standard error of a command that exited with 1.
fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let complaint = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(complaint.lines().count(), 1, "one sentence: {complaint}");
    complaint
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Locks a folder as a running supervisor does.
fn hold_lock(directory: &Path) -> File {
    let mut lock = File::create(directory.join("lock")).unwrap();
    write!(lock, "{}", std::process::id()).unwrap();
    lock.lock().unwrap();
    lock
}

#[test]
fn taken_port_error_names_the_process_that_needs_it() {
    let directory = tempfile::tempdir().unwrap();
    // Another process may have the port already; then it is taken as well.
    let _taken = TcpListener::bind("127.0.0.1:7425");
    let complaint = refusal(&onsale(directory.path(), &["up"]).output().unwrap());
    assert!(complaint.contains("needs, is taken"), "{complaint}");
    assert!(complaint.contains("--ports free"), "{complaint}");
}

#[test]
fn missing_program_error_names_the_setup_command() {
    let directory = tempfile::tempdir().unwrap();
    let output =
        onsale(directory.path(), &["up", "--ports", "free"]).env("PATH", directory.path()).output().unwrap();
    let complaint = refusal(&output);
    assert!(complaint.contains("is not installed"), "{complaint}");
    assert!(complaint.contains("make setup"), "{complaint}");
}

#[test]
fn unwritable_folder_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    File::create(&file).unwrap();
    let complaint = refusal(&onsale(&file.join("mesh"), &["up"]).output().unwrap());
    assert!(complaint.contains("cannot write in"), "{complaint}");
    assert!(complaint.contains("--directory"), "{complaint}");
}

#[test]
fn full_disk_is_refused_before_a_process_starts() {
    // A limit on file sizes stands in for a full disk: both refuse the write.
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args([
        "-c",
        r#"trap "" XFSZ; ulimit -f 2048; exec "$@""#,
        "sh",
        env!("CARGO_BIN_EXE_onsale-dev"),
    ]);
    command.args(["up", "--ports", "free", "--directory"]).arg(directory.path());
    let complaint = refusal(&command.output().unwrap());
    assert!(complaint.contains("no room for 64 MB"), "{complaint}");
    assert!(!directory.path().join("room").exists());
}

#[test]
fn second_mesh_in_a_folder_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let _lock = hold_lock(directory.path());
    let complaint = refusal(&onsale(directory.path(), &["up", "--fresh"]).output().unwrap());
    assert!(complaint.contains("a mesh already runs"), "{complaint}");
    assert!(complaint.contains(&format!("process {}", std::process::id())), "{complaint}");
}

#[test]
fn down_succeeds_after_the_supervisor_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("lock"), "4194305").unwrap();
    std::fs::write(directory.path().join("mesh.json"), "{}").unwrap();
    let down = onsale(directory.path(), &["down"]).output().unwrap();
    assert!(down.status.success(), "nothing to stop is no failure: {down:?}");
    assert!(said(&down).contains("no mesh runs in"), "{down:?}");
}

#[test]
fn override_of_an_unknown_process_lists_the_known_ones() {
    let directory = tempfile::tempdir().unwrap();
    let output = onsale(directory.path(), &["up", "--set", "nobody.a.b=1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.contains("there are queue, inventory"), "{complaint}");
}

#[test]
fn logs_show_the_end_of_each_log() {
    let directory = tempfile::tempdir().unwrap();
    let logs = directory.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    let complaint = refusal(&onsale(directory.path(), &["logs"]).output().unwrap());
    assert!(complaint.contains("there are no logs"), "{complaint}");
    std::fs::write(logs.join("claim.log"), "one\ntwo\nthree\n").unwrap();
    std::fs::write(logs.join("queue.log"), "four\n").unwrap();
    let claim = onsale(directory.path(), &["logs", "claim", "--lines", "2"]).output().unwrap();
    assert_eq!(said(&claim), "two\nthree\n");
    let all = said(&onsale(directory.path(), &["logs"]).output().unwrap());
    assert!(all.contains("claim         three\n") && all.contains("queue         four\n"), "{all}");
    let complaint = refusal(&onsale(directory.path(), &["logs", "nobody"]).output().unwrap());
    assert!(complaint.contains("there are claim, queue"), "{complaint}");
}

#[test]
fn folder_with_foreign_files_is_left_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let precious = directory.path().join("precious.txt");
    std::fs::write(&precious, "mine").unwrap();
    for arguments in [["up", "--fresh"], ["up", "--temporary"]] {
        let complaint = refusal(&onsale(directory.path(), &arguments).output().unwrap());
        assert!(complaint.contains("not a mesh's folder"), "{complaint}");
    }
    // Files that a user adds to the folder of a mesh stay as well.
    File::create(directory.path().join("lock")).unwrap();
    let output = onsale(directory.path(), &["up", "--temporary", "--ports", "free"])
        .env("PATH", directory.path())
        .output()
        .unwrap();
    assert!(refusal(&output).contains("is not installed"));
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing of the mesh is left");
}

#[test]
fn temporary_folder_is_removed_after_a_failed_start() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("mesh");
    let arguments = ["up", "--temporary", "--ports", "free"];
    let output = onsale(&folder, &arguments).env("PATH", directory.path()).output().unwrap();
    assert!(refusal(&output).contains("is not installed"));
    assert!(!folder.exists());
}

#[test]
fn closed_standard_output_is_not_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let down = onsale(directory.path(), &["down"]).stdout(writer).output().unwrap();
    assert!(down.status.success(), "{down:?}");
}
