//! The folder a mesh lives in: where each thing lies, and who may use it. One mesh at a time: the lock says whose it is.

use std::{
    ffi::OsStr,
    fs::{File, TryLockError},
    io::{Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use super::DIRECTORY_DEFAULT;

/// Free space without which nothing is started: a new database alone needs this much.
const ROOM_MIN_BYTES: usize = 64 * 1024 * 1024;

/// What a mesh keeps in its folder besides the lock: folders, and files, of which there may be halves (see [`write_private`]).
const FOLDERS: [&str; 5] = ["config", "data", "logs", "run", "secrets"];
const FILES: [&str; 4] = ["mesh.json", "ports.json", "demo.json", "room"];
const HALF: &str = "new";
/// Where whoever starts a mesh in the background may send what we say.
const OWN_LOG: &str = "up.log";

/// A folder, and the names of what is in it.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    root: PathBuf,
}

/// Who has the folder.
#[derive(Debug)]
pub(crate) enum Holder {
    /// We, as long as this file is open.
    Us(File),
    /// A running mesh.
    Another {
        /// Its supervisor; unknown in the instant between its lock and its note.
        pid: Option<u32>,
    },
}

impl Folder {
    /// The folder that `directory` means. The default one lies in the root of the repository, wherever in it we are.
    pub(crate) fn locate(directory: &Path) -> anyhow::Result<Self> {
        let here = std::env::current_dir().context("failed to find the current folder")?;
        let base = if directory == Path::new(DIRECTORY_DEFAULT) { repository(&here) } else { None };
        Ok(Self { root: base.unwrap_or(here).join(directory) })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn manifest(&self) -> PathBuf {
        self.root.join("mesh.json")
    }

    pub(crate) fn ports(&self) -> PathBuf {
        self.root.join("ports.json")
    }

    pub(crate) fn demo(&self) -> PathBuf {
        self.root.join("demo.json")
    }

    pub(crate) fn secret(&self, name: &str) -> PathBuf {
        self.root.join("secrets").join(name)
    }

    pub(crate) fn config(&self, file: &str) -> PathBuf {
        self.root.join("config").join(file)
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub(crate) fn log(&self, process: &str) -> PathBuf {
        self.logs().join(format!("{process}.log"))
    }

    /// Notes about processes that run, for whoever finds them without their supervisor.
    pub(crate) fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Where a process keeps its data.
    pub(crate) fn data(&self, process: &str) -> PathBuf {
        self.root.join("data").join(process)
    }

    fn lock_file(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// Makes its parts, once it is ours. Private things are made private by who writes them.
    pub(crate) fn create(&self) -> anyhow::Result<()> {
        for part in FOLDERS {
            std::fs::create_dir_all(self.root.join(part)).with_context(|| self.unusable())?;
        }
        let private = std::fs::Permissions::from_mode(0o700);
        for part in ["config", "secrets"] {
            std::fs::set_permissions(self.root.join(part), private.clone())
                .with_context(|| self.unusable())?;
        }
        Ok(())
    }

    fn unusable(&self) -> String {
        format!("cannot write in {}: choose another folder with --directory", self.root.display())
    }

    /// A folder in which a mesh has lived has its lock. Any other must hold nothing: it may be wiped later.
    fn refuse_foreign(&self) -> anyhow::Result<()> {
        if self.lock_file().exists() {
            return Ok(());
        }
        let entries = std::fs::read_dir(&self.root).into_iter().flatten().filter_map(Result::ok);
        match entries.map(|entry| entry.path()).find(|path| !is_ours(path) && !path.ends_with(OWN_LOG)) {
            Some(foreign) => bail!(
                "{} is not a mesh's folder, it has {:?}: choose an empty one with --directory",
                self.root.display(),
                foreign.file_name().unwrap_or_default(),
            ),
            None => Ok(()),
        }
    }

    /// Takes the folder for us, unless a mesh runs in it or it is somebody else's; makes it if it is not there. The lock ends with our process, however it ends.
    pub(crate) fn take(&self) -> anyhow::Result<Holder> {
        let path = self.lock_file();
        let failed = || self.unusable();
        self.refuse_foreign()?;
        std::fs::create_dir_all(&self.root).with_context(failed)?;
        let mut file = File::options()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .open(&path)
            .with_context(failed)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0).with_context(failed)?;
                write!(file, "{}", std::process::id()).with_context(failed)?;
                Ok(Holder::Us(file))
            }
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).with_context(failed)?;
                Ok(Holder::Another { pid: pid.parse().ok() })
            }
            Err(TryLockError::Error(error)) => Err(error).with_context(failed),
        }
    }

    /// The supervisor of the mesh that runs here, if one does. Changes nothing.
    pub(crate) fn supervisor(&self) -> Option<u32> {
        let mut file = File::open(self.lock_file()).ok()?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).ok()?;
                pid.parse().ok()
            }
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }

    /// Forgets everything of the mesh but the lock: data, secrets, logs. What somebody else put here stays.
    pub(crate) fn wipe(&self) -> anyhow::Result<()> {
        let entries = std::fs::read_dir(&self.root).context("failed to look into the folder")?;
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| is_ours(path)) {
            let removed =
                if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.with_context(|| format!("failed to remove {}", path.display()))?;
        }
        Ok(())
    }

    /// Removes it once it is wiped, the lock last: whoever waits for the end of the mesh waits for that.
    pub(crate) fn remove(&self) -> anyhow::Result<()> {
        let _ = std::fs::remove_file(self.root.join(OWN_LOG));
        let _ = std::fs::remove_file(self.lock_file());
        match std::fs::remove_dir(&self.root) {
            // What else is in it is not ours.
            Err(error) if error.kind() != std::io::ErrorKind::DirectoryNotEmpty => {
                Err(error).with_context(|| format!("failed to remove {}", self.root.display()))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Tries whether there is room by taking it: what a file system promises and what it gives differ.
    pub(crate) fn check_room(&self) -> anyhow::Result<()> {
        let path = self.root.join("room");
        let block = vec![1_u8; 1024 * 1024];
        let fill = || -> std::io::Result<()> {
            let mut file = File::create(&path)?;
            for _ in 0..ROOM_MIN_BYTES / block.len() {
                file.write_all(&block)?;
            }
            file.flush()
        };
        let filled = fill();
        let _ = std::fs::remove_file(&path);
        filled.with_context(|| {
            let needed = ROOM_MIN_BYTES / 1024 / 1024;
            format!("no room for {needed} MB in {}: free some, or use --directory", self.root.display())
        })
    }
}

/// Whether a mesh made it.
fn is_ours(path: &Path) -> bool {
    let whole = if path.extension().is_some_and(|extension| extension == HALF) {
        path.file_stem()
    } else {
        path.file_name()
    };
    whole.and_then(OsStr::to_str).is_some_and(|name| FOLDERS.contains(&name) || FILES.contains(&name))
}

/// Writes a file that only we may read, so that whoever reads it finds the old one or the new one, never half of it.
pub(crate) fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("failed to write {}", path.display());
    let new = path.with_added_extension(HALF);
    let mut options = File::options();
    let mut file =
        options.create(true).write(true).truncate(true).mode(0o600).open(&new).with_context(failed)?;
    file.write_all(text.as_bytes()).with_context(failed)?;
    std::fs::rename(&new, path).with_context(failed)
}

/// The root of the repository that `inside` lies in.
pub(crate) fn repository(inside: &Path) -> Option<PathBuf> {
    let is_root =
        |folder: &&Path| folder.join("Cargo.toml").is_file() && folder.join("proto/onsale").is_dir();
    inside.ancestors().find(is_root).map(Path::to_path_buf)
}
