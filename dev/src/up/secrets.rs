//! Secrets of a mesh: created once, in files that only this account may read. Settings name the files and never copy a secret.

use std::path::PathBuf;

use anyhow::Context;
use onsale::mesh::folder::{Folder, write_private};
use onsale_kit::auth::SigningKey;

/// Files of a key pair: the private key, and the public key as a JWK set.
#[derive(Clone, Debug)]
pub(crate) struct KeyFiles {
    pub(crate) key: PathBuf,
    pub(crate) jwks: PathBuf,
}

/// Paths of all secrets.
#[derive(Clone, Debug)]
pub(crate) struct Secrets {
    /// Signs the tokens of calls between services.
    pub(crate) mesh: KeyFiles,
    /// Signs the tokens of the development sign-in.
    pub(crate) development: KeyFiles,
    /// Signs turn tokens.
    pub(crate) turns: KeyFiles,
    /// Signs invitation tokens.
    pub(crate) invitations: KeyFiles,
    /// Signs ticket codes.
    pub(crate) codes: KeyFiles,
    /// API key that Payment presents to the sandbox provider.
    pub(crate) provider_key: PathBuf,
    /// Shared secret with which the sandbox provider signs its webhooks.
    pub(crate) webhook_secret: PathBuf,
}

impl Secrets {
    /// Returns the secrets of the folder and creates those that are missing.
    pub(crate) fn load_or_create(folder: &Folder) -> anyhow::Result<Self> {
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
    let failed = || format!("failed to create the key {name}");
    if !files.key.exists() {
        write_private(&files.key, &SigningKey::generate().with_context(failed)?)?;
    }
    let text = std::fs::read_to_string(&files.key).with_context(failed)?;
    let key = SigningKey::parse(&text)
        .with_context(|| format!("{} is not a valid key: start over with --fresh", files.key.display()))?;
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
    fn secrets_are_created_once_with_owner_only_permissions() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::locate(directory.path()).unwrap();
        folder.create().unwrap();
        let secrets = Secrets::load_or_create(&folder).unwrap();
        let read = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
        let before = (read(&secrets.mesh.key), read(&secrets.webhook_secret));
        let secrets = Secrets::load_or_create(&folder).unwrap();
        assert_eq!((read(&secrets.mesh.key), read(&secrets.webhook_secret)), before);
        for path in [&secrets.mesh.key, &secrets.turns.key, &secrets.provider_key, &secrets.webhook_secret] {
            assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
