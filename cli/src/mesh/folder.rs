//! The folder of a mesh: the paths in it, its lock, and its creation and removal. The lock allows one mesh per folder, and
//! a folder that holds anything else is never wiped.

use std::{
    ffi::OsStr,
    fs::{File, TryLockError},
    io::{Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use super::DIRECTORY_DEFAULT;

/// Free space that a start requires: a new database alone needs this much.
const ROOM_MIN_BYTES: usize = 64 * 1024 * 1024;

/// Everything that a mesh keeps in its folder besides the lock. A file may also exist half written (see [`write_private`]).
const FOLDERS: [&str; 5] = ["config", "data", "logs", "run", "secrets"];
const FILES: [&str; 4] = ["mesh.json", "ports.json", "demo.json", "room"];
/// Extension of a half-written file.
const HALF: &str = "new";
/// File to which a caller that starts a mesh in the background may redirect the output of `onsale up`.
const OWN_LOG: &str = "up.log";

/// Paths in the folder of a mesh.
#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
}

/// Result of an attempt to lock the folder.
#[derive(Debug)]
pub enum Lock {
    /// This process has the lock until it drops the file.
    Acquired(File),
    /// A running mesh has the lock.
    Taken {
        /// Process id of its supervisor. `None` in the instant before the supervisor has written it.
        pid: Option<u32>,
    },
}

impl Folder {
    /// Resolves `--directory`. The default folder is in the root of the repository that contains the current folder.
    pub fn locate(directory: &Path) -> anyhow::Result<Self> {
        let here = std::env::current_dir().context("failed to find the current folder")?;
        let base = if directory == Path::new(DIRECTORY_DEFAULT) { repository(&here) } else { None };
        Ok(Self { root: base.unwrap_or(here).join(directory) })
    }

    /// Returns the absolute path of the folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the file of the [`Manifest`](super::manifest::Manifest).
    #[must_use]
    pub fn manifest(&self) -> PathBuf {
        self.root.join("mesh.json")
    }

    /// Returns the file that remembers the ports chosen by `--ports free`.
    #[must_use]
    pub fn ports(&self) -> PathBuf {
        self.root.join("ports.json")
    }

    /// Returns the file that remembers the demo event and its request ids.
    #[must_use]
    pub fn demo(&self) -> PathBuf {
        self.root.join("demo.json")
    }

    /// Returns the file of a secret.
    #[must_use]
    pub fn secret(&self, name: &str) -> PathBuf {
        self.root.join("secrets").join(name)
    }

    /// Returns a file of generated settings.
    #[must_use]
    pub fn config(&self, file: &str) -> PathBuf {
        self.root.join("config").join(file)
    }

    /// Returns the folder of all logs.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Returns the log of one process.
    #[must_use]
    pub fn log(&self, process: &str) -> PathBuf {
        self.logs().join(format!("{process}.log"))
    }

    /// Returns the folder with one file per running process. The next start finds processes there that outlived their supervisor.
    #[must_use]
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Returns the data folder of one process.
    #[must_use]
    pub fn data(&self, process: &str) -> PathBuf {
        self.root.join("data").join(process)
    }

    fn lock_file(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// Creates the subfolders. The caller must have the lock. Files with secrets get their own permissions when written.
    pub fn create(&self) -> anyhow::Result<()> {
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

    /// Refuses a folder without a lock that holds foreign files: it may be wiped later.
    fn refuse_foreign(&self) -> anyhow::Result<()> {
        if self.lock_file().exists() {
            return Ok(());
        }
        let entries = std::fs::read_dir(&self.root).into_iter().flatten().filter_map(Result::ok);
        match entries.map(|entry| entry.path()).find(|path| !is_ours(path) && !path.ends_with(OWN_LOG)) {
            Some(foreign) => bail!(
                "{} is not a mesh's folder, it contains {:?}: choose an empty one with --directory",
                self.root.display(),
                foreign.file_name().unwrap_or_default(),
            ),
            None => Ok(()),
        }
    }

    /// Locks the folder for this process and creates it if it does not exist. Fails if it holds foreign files. The kernel
    /// releases the lock when the process ends, however it ends.
    pub fn lock(&self) -> anyhow::Result<Lock> {
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
                Ok(Lock::Acquired(file))
            }
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).with_context(failed)?;
                Ok(Lock::Taken { pid: pid.parse().ok() })
            }
            Err(TryLockError::Error(error)) => Err(error).with_context(failed),
        }
    }

    /// Returns the process id of the supervisor that has the lock, or `None` if no mesh runs here. Changes nothing.
    #[must_use]
    pub fn supervisor(&self) -> Option<u32> {
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

    /// Deletes the mesh's data, secrets and logs. The lock and foreign files stay.
    pub fn wipe(&self) -> anyhow::Result<()> {
        let entries = std::fs::read_dir(&self.root).context("failed to list the folder of the mesh")?;
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| is_ours(path)) {
            let removed =
                if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.with_context(|| format!("failed to remove {}", path.display()))?;
        }
        Ok(())
    }

    /// Removes a wiped folder, the lock last because callers wait for its removal. A folder with foreign files stays.
    pub fn remove(&self) -> anyhow::Result<()> {
        let _ = std::fs::remove_file(self.root.join(OWN_LOG));
        let _ = std::fs::remove_file(self.lock_file());
        match std::fs::remove_dir(&self.root) {
            Err(error) if error.kind() != std::io::ErrorKind::DirectoryNotEmpty => {
                Err(error).with_context(|| format!("failed to remove {}", self.root.display()))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Checks that the disk has 64 MB free by writing them: the free space that a file system reports may not be usable.
    pub fn check_room(&self) -> anyhow::Result<()> {
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

/// Returns true if a mesh creates an entry of this name.
fn is_ours(path: &Path) -> bool {
    let whole = if path.extension().is_some_and(|extension| extension == HALF) {
        path.file_stem()
    } else {
        path.file_name()
    };
    whole.and_then(OsStr::to_str).is_some_and(|name| FOLDERS.contains(&name) || FILES.contains(&name))
}

/// Writes a file that only this account may read. Readers find the old or the new content, never a part of it.
pub fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("failed to write {}", path.display());
    let new = path.with_added_extension(HALF);
    let mut options = File::options();
    let mut file =
        options.create(true).write(true).truncate(true).mode(0o600).open(&new).with_context(failed)?;
    file.write_all(text.as_bytes()).with_context(failed)?;
    std::fs::rename(&new, path).with_context(failed)
}

/// Returns the root of the repository that contains `inside`.
#[must_use]
pub fn repository(inside: &Path) -> Option<PathBuf> {
    let is_root =
        |folder: &&Path| folder.join("Cargo.toml").is_file() && folder.join("proto/onsale").is_dir();
    inside.ancestors().find(is_root).map(Path::to_path_buf)
}
