//! `onsale up`: the whole mesh on this machine, from the same binaries that production runs. It stays in the foreground and
//! keeps every process running; none of them outlives it.

mod console;
mod demo;
mod leftovers;
mod listener;
mod mesh;
mod parts;
mod ports;
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
use onsale_testkit::stack::Interrupts;

use self::{
    console::{Console, seconds},
    mesh::Mesh,
    parts::{Programs, Workshop},
    ports::{Choice, Ports},
    secrets::Secrets,
    settings::Override,
};
use onsale::mesh::{
    DIRECTORY_DEFAULT,
    folder::{Folder, Lock},
    manifest::Manifest,
};

/// The name of the database.
const DATABASE: &str = "onsale";
/// What a shell reports for a process that was interrupted.
const INTERRUPTED: i32 = 130;
/// Signals that follow each other as quickly as this are one request.
const SAME_REQUEST: Duration = Duration::from_millis(500);

/// How long a program that prepared a store may need to notice that nobody wants it any more.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What `onsale up` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Forgets all data, secrets and logs first.
    #[arg(long)]
    fresh: bool,
    /// Folder of data, settings, secrets and logs.
    #[arg(long, default_value = DIRECTORY_DEFAULT)]
    directory: PathBuf,
    /// Removes the whole folder when the mesh has stopped.
    #[arg(long)]
    temporary: bool,
    /// Which ports to use.
    #[arg(long, value_enum, default_value = "fixed")]
    ports: Choice,
    /// Sets one key of one service (or of the gateway, or of all): claim.claims.window=3s. May be given several times.
    #[arg(long = "set", value_name = "NAME.SECTION.KEY=VALUE", value_parser = Override::parse)]
    overrides: Vec<Override>,
}

/// Starts the mesh and keeps it until a signal.
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
    let elsewhere = (arguments.directory != Path::new(DIRECTORY_DEFAULT))
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
            announce(&mut mesh, elsewhere.as_deref());
            tokio::select! {
                lived = mesh.attend() => lived,
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
        // Who asks twice does not want to wait: the kernel ends the children of a process that is gone.
        () = asked_again(&mut interrupts) => exit(INTERRUPTED),
    }
}

/// Somebody asked a second time. The first may arrive as several: the kernel repeats it for every thread of a dying parent,
/// and a shell and `make` both pass on a Ctrl-C.
async fn asked_again(interrupts: &mut Interrupts) {
    let begun = Instant::now();
    loop {
        interrupts.next().await;
        if begun.elapsed() > SAME_REQUEST {
            return;
        }
    }
}

/// Removes a folder that was for this time only.
async fn clear(temporary: Option<&Folder>) -> anyhow::Result<()> {
    let Some(folder) = temporary else { return Ok(()) };
    let end = Instant::now() + REMOVAL_PATIENCE;
    // A program that was preparing a store may still write for a moment.
    while let Err(error) = stores::wipe(folder) {
        if Instant::now() >= end {
            return Err(error);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    folder.remove()
}

/// Everything that can be refused before the first process starts.
async fn prepare(folder: Folder, arguments: Arguments) -> anyhow::Result<Mesh> {
    folder.create()?;
    mesh::withdraw(&folder);
    leftovers::wait_until_gone(&folder).await?;
    if arguments.fresh {
        stores::wipe(&folder)?;
        folder.create()?;
    }
    folder.check_room()?;
    let ports = Arc::new(Ports::choose(arguments.ports, &folder)?);
    let programs = Programs::find(&folder)?;
    let secrets = Secrets::keep(&folder)?;
    settings::write(&folder, &ports, &secrets)?;
    let http = reqwest::Client::builder().no_proxy().build().context("failed to prepare HTTP")?;
    let workshop = Workshop { folder, ports, secrets, programs, overrides: arguments.overrides };
    Ok(Mesh::new(workshop, Console::new(), http))
}

/// Says where everything is, what to do next, and how to stop. `elsewhere` names the folder to commands that would look in
/// another.
fn announce(mesh: &mut Mesh, elsewhere: Option<&str>) {
    let Manifest { endpoints, demo_event, processes, .. } = mesh.manifest().clone();
    let web = endpoints.front_door.replace("127.0.0.1", "localhost");
    let grpc = web.trim_start_matches("http://");
    let metrics: Vec<String> = processes
        .iter()
        .filter(|process| process.name != "envoy")
        .filter_map(|process| Some(format!("{} {}/metrics", process.name, process.admin.as_ref()?)))
        .collect();
    let onsale = own_command();
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
        format!("  Envoy      {} (its own page)", endpoints.envoy_admin),
        format!("  Postgres   {}", endpoints.postgres),
        format!("  Redis      {}", endpoints.redis.join(" ")),
    ];
    lines.extend(demo_event.map(|event| format!("  demo event {event}")));
    let stop = elsewhere.map_or("make down".to_owned(), |elsewhere| format!("{onsale} down{elsewhere}"));
    let elsewhere = elsewhere.unwrap_or_default();
    lines.extend([
        String::new(),
        format!("  buy a ticket   {onsale} buy{elsewhere}"),
        format!("  look           {onsale} status{elsewhere}"),
        format!("                 {onsale} logs claim --follow{elsewhere}"),
        format!("  stop           Ctrl-C, or `{stop}` from another terminal"),
    ]);
    mesh.console().say(&lines.join("\n"));
}

/// How to call us again, as short as it can be typed here.
fn own_command() -> String {
    let exe = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("onsale"));
    let here = std::env::current_dir().unwrap_or_default();
    let onsale = exe.with_file_name("onsale");
    onsale.strip_prefix(&here).unwrap_or(&onsale).display().to_string()
}
