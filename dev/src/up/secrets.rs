//! The secrets of a mesh: made once, kept in files that only we may read, and named by the settings, never copied there.

use std::path::PathBuf;

use anyhow::Context;
use onsale_kit::auth::SigningKey;

use onsale::mesh::folder::{Folder, write_private};

/// A pair of keys: the private one, and the public one as a key set.
#[derive(Clone, Debug)]
pub(crate) struct KeyFiles {
    pub(crate) key: PathBuf,
    pub(crate) jwks: PathBuf,
}

/// Where every secret lies.
#[derive(Clone, Debug)]
pub(crate) struct Secrets {
    /// Signs what services say to each other.
    pub(crate) mesh: KeyFiles,
    /// Signs the tokens of the development sign-in.
    pub(crate) development: KeyFiles,
    /// Signs turns.
    pub(crate) turns: KeyFiles,
    /// Signs invitations.
    pub(crate) invitations: KeyFiles,
    /// Signs ticket codes.
    pub(crate) codes: KeyFiles,
    /// What Payment shows to the sandbox provider.
    pub(crate) provider_key: PathBuf,
    /// What the sandbox provider signs its webhooks with.
    pub(crate) webhook_secret: PathBuf,
}

impl Secrets {
    /// Those of the folder; what is missing is made.
    pub(crate) fn keep(folder: &Folder) -> anyhow::Result<Self> {
        Ok(Self {
            mesh: key_pair(folder, "mesh")?,
            development: key_pair(folder, "development")?,
            turns: key_pair(folder, "turns")?,
            invitations: key_pair(folder, "invitations")?,
            codes: key_pair(folder, "codes")?,
            provider_key: password(folder, "provider-secret-key", "sk_sandbox_")?,
            webhook_secret: password(folder, "provider-webhook-secret", "whsec_")?,
        })
    }
}

fn key_pair(folder: &Folder, name: &str) -> anyhow::Result<KeyFiles> {
    let files = KeyFiles {
        key: folder.secret(&format!("{name}.key")),
        jwks: folder.secret(&format!("{name}.jwks.json")),
    };
    let failed = || format!("failed to make the key {name}");
    if !files.key.exists() {
        write_private(&files.key, &SigningKey::generate().with_context(failed)?)?;
    }
    let text = std::fs::read_to_string(&files.key).with_context(failed)?;
    let key = SigningKey::parse(&text)
        .with_context(|| format!("{} is no key: start over with --fresh", files.key.display()))?;
    write_private(&files.jwks, &key.jwks())?;
    Ok(files)
}

fn password(folder: &Folder, name: &str, prefix: &str) -> anyhow::Result<PathBuf> {
    let path = folder.secret(name);
    if !path.exists() {
        write_private(&path, &format!("{prefix}{:032x}", rand::random::<u128>()))?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn secrets_are_made_once_and_nobody_else_can_read_them() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::locate(directory.path()).unwrap();
        folder.create().unwrap();
        let secrets = Secrets::keep(&folder).unwrap();
        let read = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
        let before = (read(&secrets.mesh.key), read(&secrets.webhook_secret));
        let secrets = Secrets::keep(&folder).unwrap();
        assert_eq!((read(&secrets.mesh.key), read(&secrets.webhook_secret)), before);
        for path in [&secrets.mesh.key, &secrets.turns.key, &secrets.provider_key, &secrets.webhook_secret] {
            assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
