//! The folder a mesh lives in: where each thing lies, and who may use it. One mesh at a time: the lock says whose it is.

use std::{
    fs::{File, TryLockError},
    io::{Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::Context;

use super::DIRECTORY_DEFAULT;

/// Free space without which nothing is started: a new database alone needs this much.
const ROOM_MIN_BYTES: usize = 64 * 1024 * 1024;

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

    /// Makes the folder and its parts. Private things are made private by who writes them.
    pub(crate) fn create(&self) -> anyhow::Result<()> {
        let parts = ["config", "logs", "run", "data", "secrets"].map(|part| self.root.join(part));
        for part in &parts {
            std::fs::create_dir_all(part).with_context(|| {
                format!("cannot write in {}: choose another folder with --directory", self.root.display())
            })?;
        }
        let private = std::fs::Permissions::from_mode(0o700);
        for part in ["config", "secrets"] {
            std::fs::set_permissions(self.root.join(part), private.clone())
                .with_context(|| format!("failed to make {part} private"))?;
        }
        Ok(())
    }

    /// Takes the folder for us, unless a mesh runs in it. The lock ends with our process, however it ends.
    pub(crate) fn take(&self) -> anyhow::Result<Holder> {
        let path = self.lock_file();
        let failed = || format!("cannot write in {}", self.root.display());
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

    /// Forgets everything but the lock: data, secrets, logs.
    pub(crate) fn wipe(&self) -> anyhow::Result<()> {
        let entries = std::fs::read_dir(&self.root).context("failed to look into the folder")?;
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            if path == self.lock_file() {
                continue;
            }
            let removed =
                if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.with_context(|| format!("failed to remove {}", path.display()))?;
        }
        Ok(())
    }

    /// Removes it with everything in it, the lock too.
    pub(crate) fn remove(&self) -> anyhow::Result<()> {
        std::fs::remove_dir_all(&self.root)
            .with_context(|| format!("failed to remove {}", self.root.display()))
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

/// Writes a file that only we may read, so that whoever reads it finds the old one or the new one, never half of it.
pub(crate) fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("failed to write {}", path.display());
    let new = path.with_added_extension("new");
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
