//! `onsale up` runs the whole mesh on this machine, from the same binaries as production. It stays in the foreground, restarts
//! processes that exit, and no process outlives it.

mod console;
mod demo;
mod leftovers;
mod listener;
mod mesh;
mod ports;
mod processes;
mod rotation;
mod secrets;
mod settings;
mod stores;
mod supervisor;

use std::{
    path::{Path, PathBuf},
    process::exit,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use onsale::mesh::{
    DIRECTORY_DEFAULT,
    folder::{Folder, Lock},
    manifest::Manifest,
};
use onsale_testkit::stack::Interrupts;

use self::{
    console::{Console, seconds},
    mesh::Mesh,
    ports::{PortChoice, Ports},
    processes::{MeshSetup, Programs},
    secrets::Secrets,
    settings::Override,
};

/// Name of the Postgres database.
const DATABASE: &str = "onsale";
/// Exit code of a shell for a process that SIGINT ended.
const INTERRUPTED: i32 = 130;
/// Signals within this time after the first one count as the same request.
const SAME_REQUEST: Duration = Duration::from_millis(500);

/// Time that a program which prepares a store gets to end before the removal of the folder fails.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Arguments of `onsale up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Deletes all data, secrets and logs first
    #[arg(long)]
    fresh: bool,
    /// Folder for data, settings, secrets and logs
    #[arg(long, default_value = DIRECTORY_DEFAULT)]
    directory: PathBuf,
    /// Removes the whole folder after the mesh has stopped
    #[arg(long)]
    temporary: bool,
    /// Ports to listen on
    #[arg(long, value_enum, default_value = "fixed")]
    ports: PortChoice,
    /// Overrides one setting of a service, of `gateway` or of `all`, as in claim.claims.window=3s; repeatable
    #[arg(long = "set", value_name = "NAME.SECTION.KEY=VALUE", value_parser = Override::parse)]
    overrides: Vec<Override>,
}

/// Starts the mesh and keeps it running until a signal.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let mut interrupts = Interrupts::listen()?;
    let folder = Folder::locate(&arguments.directory)?;
    let _lock = match folder.lock()? {
        Lock::Acquired(lock) => lock,
        Lock::Taken { pid } => bail!(
            "a mesh already runs in {}{}: see `onsale status`, stop it with `onsale down`",
            folder.root().display(),
            pid.map(|pid| format!(" (process {pid})")).unwrap_or_default(),
        ),
    };
    let directory_option = (arguments.directory != Path::new(DIRECTORY_DEFAULT))
        .then(|| format!(" --directory {}", folder.root().display()));
    let remains = arguments.temporary.then(|| folder.clone());
    let mut mesh = match prepare(folder, arguments).await {
        Ok(mesh) => mesh,
        Err(error) => {
            clear(remains.as_ref()).await?;
            return Err(error);
        }
    };
    let started = tokio::select! {
        started = mesh.start() => started.map(|()| true),
        () = interrupts.next() => Ok(false),
    };
    let lived = match started {
        Ok(true) => {
            announce(&mut mesh, directory_option.as_deref());
            tokio::select! {
                lived = mesh.run() => lived,
                () = interrupts.next() => Ok(()),
            }
        }
        Ok(false) => Ok(()),
        Err(error) => Err(error),
    };
    tokio::select! {
        () = mesh.stop() => {
            clear(remains.as_ref()).await?;
            lived
        }
        // A second request skips the orderly stop: the kernel signals the children of a process that exits.
        () = second_request(&mut interrupts) => exit(INTERRUPTED),
    }
}

/// Waits for a second request to stop. The first one may arrive as several signals: the kernel repeats it for every thread of
/// a dying parent, and a shell and `make` both pass on a Ctrl-C.
async fn second_request(interrupts: &mut Interrupts) {
    let begun = Instant::now();
    loop {
        interrupts.next().await;
        if begun.elapsed() > SAME_REQUEST {
            return;
        }
    }
}

/// Removes the folder of a `--temporary` mesh.
async fn clear(temporary: Option<&Folder>) -> anyhow::Result<()> {
    let Some(folder) = temporary else { return Ok(()) };
    let end = Instant::now() + REMOVAL_TIMEOUT;
    // A program that prepares a store may still write into the folder.
    while let Err(error) = stores::wipe(folder) {
        if Instant::now() >= end {
            return Err(error);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    folder.remove()
}

/// Makes every check that can fail before the first process starts, and writes the settings.
async fn prepare(folder: Folder, arguments: Arguments) -> anyhow::Result<Mesh> {
    folder.create()?;
    mesh::remove_manifest(&folder);
    leftovers::wait_until_gone(&folder).await?;
    if arguments.fresh {
        stores::wipe(&folder)?;
        folder.create()?;
    }
    folder.check_room()?;
    let ports = Arc::new(Ports::choose(arguments.ports, &folder)?);
    let programs = Programs::find(&folder)?;
    let secrets = Secrets::load_or_create(&folder)?;
    settings::write(&folder, &ports, &secrets)?;
    let http = reqwest::Client::builder().no_proxy().build().context("failed to create an HTTP client")?;
    let setup = MeshSetup { folder, ports, secrets, programs, overrides: arguments.overrides };
    Ok(Mesh::new(setup, Console::new(), http))
}

/// Prints the addresses of the mesh and the commands to use and stop it. `directory_option` is added to those commands if
/// the mesh is not in the default folder.
fn announce(mesh: &mut Mesh, directory_option: Option<&str>) {
    let Manifest { endpoints, demo_event, processes, .. } = mesh.manifest().clone();
    let web = endpoints.front_door.replace("127.0.0.1", "localhost");
    let grpc = web.trim_start_matches("http://");
    let metrics: Vec<String> = processes
        .iter()
        .filter(|process| process.name != "envoy")
        .filter_map(|process| Some(format!("{} {}/metrics", process.name, process.admin.as_ref()?)))
        .collect();
    let onsale = onsale_command();
    let took = seconds(mesh.console().elapsed());
    let mut lines = vec![
        String::new(),
        format!("Onsale is ready ({took})."),
        String::new(),
        format!("  web        {web}"),
        format!("  gRPC       {grpc}, also gRPC-Web; with reflection: grpcurl -plaintext {grpc} list"),
        format!("  REST       {web}/api/v1/events"),
        format!("  mail       {}", endpoints.mail),
        format!("  payments   {} (sandbox provider)", endpoints.provider),
        format!("  metrics    {}", metrics.join("\n             ")),
        format!("  Envoy      {} (admin page)", endpoints.envoy_admin),
        format!("  Postgres   {}", endpoints.postgres),
        format!("  Redis      {}", endpoints.redis.join(" ")),
    ];
    lines.extend(demo_event.map(|event| format!("  demo event {event}")));
    let stop = directory_option.map_or("make down".to_owned(), |option| format!("{onsale} down{option}"));
    let option = directory_option.unwrap_or_default();
    lines.extend([
        String::new(),
        format!("  buy a ticket   {onsale} buy{option}"),
        format!("  look           {onsale} status{option}"),
        format!("                 {onsale} logs claim --follow{option}"),
        format!("  stop           Ctrl-C, or `{stop}` from another terminal"),
    ]);
    mesh.console().say(&lines.join("\n"));
}

/// Returns the path of the `onsale` beside this executable, relative to the current folder if it is below it.
fn onsale_command() -> String {
    let exe = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("onsale-dev"));
    let here = std::env::current_dir().unwrap_or_default();
    let onsale = exe.with_file_name("onsale");
    onsale.strip_prefix(&here).unwrap_or(&onsale).display().to_string()
}
