//! A fresh database per test, copied from a template that has every migration.

use std::net::SocketAddr;
use std::sync::{OnceLock, mpsc};

use onsale_storage::migrate;
use onsale_storage::postgres::PostgresConfig;
use tokio::sync::OnceCell;
use tokio_postgres::Client;

use super::Error;
use super::postgres_server::{PostgresServer, connect, database_url};

/// Serializes the making of the template over all processes of a run. Any number will do; it must only be one.
const TEMPLATE_LOCK: i64 = 0x006f_6e73_616c_6501;

/// A schema with the shared tables only, for tests of the mechanisms that use them.
pub const SANDBOX_SCHEMA: &str = "sandbox";

/// A database of one test. Dropping it removes it, best effort: the server's end removes it in any case.
#[derive(Debug)]
pub struct TestDatabase {
    /// The connection string, as the superuser.
    pub url: String,
    /// The database's name.
    pub name: String,
    address: SocketAddr,
    /// Whether it goes with this handle.
    is_owned: bool,
}

impl TestDatabase {
    pub(super) async fn create(address: SocketAddr) -> Result<Self, Error> {
        static TEMPLATE: OnceCell<String> = OnceCell::const_new();
        let template = TEMPLATE.get_or_try_init(|| make_template(address)).await?;
        let name = format!("test_{}", uuid::Uuid::now_v7().simple());
        let client = admin(address).await?;
        execute(&client, &format!("CREATE DATABASE {name} TEMPLATE {template}")).await?;
        Ok(Self { url: database_url(address, &name), name, address, is_owned: true })
    }

    /// The same on a server of one test's own, for a test that breaks it. The database goes with the server.
    pub async fn create_on(server: &PostgresServer) -> Result<Self, Error> {
        let (address, name) = (server.address(), "test".to_owned());
        execute(&admin(address).await?, &format!("CREATE DATABASE {name}")).await?;
        let url = database_url(address, &name);
        migrate_all(&url).await?;
        Ok(Self { url, name, address, is_owned: false })
    }

    /// The same database for another process of the same test. It goes with the first handle.
    #[must_use]
    pub fn share(&self) -> Self {
        let Self { url, name, address, .. } = self;
        Self { url: url.clone(), name: name.clone(), address: *address, is_owned: false }
    }

    /// The door's settings for `schema` of this database.
    #[must_use]
    pub fn config(&self, schema: &str) -> PostgresConfig {
        PostgresConfig::new(&self.url, schema)
    }

    /// The door's settings for the schema that has the shared tables only.
    #[must_use]
    pub fn sandbox(&self) -> PostgresConfig {
        self.config(SANDBOX_SCHEMA)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        if !self.is_owned {
            return;
        }
        // On a thread of its own: the test's runtime is ending.
        static REMOVER: OnceLock<mpsc::Sender<(SocketAddr, String)>> = OnceLock::new();
        let remover = REMOVER.get_or_init(|| {
            let (sender, names) = mpsc::channel::<(SocketAddr, String)>();
            std::thread::spawn(move || remove_all(&names));
            sender
        });
        let _ = remover.send((self.address, std::mem::take(&mut self.name)));
    }
}

fn remove_all(names: &mpsc::Receiver<(SocketAddr, String)>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    for (address, name) in names {
        let removed = runtime.block_on(async {
            execute(&admin(address).await?, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await
        });
        drop(removed);
    }
}

/// Makes the template unless another process of the run has. Its name carries a digest of the migrations, so that
/// a server that outlives a change of them never hands out an old one.
async fn make_template(address: SocketAddr) -> Result<String, Error> {
    let name = format!("template_{}", migrate::digest());
    let client = admin(address).await?;
    execute(&client, &format!("SELECT pg_advisory_lock({TEMPLATE_LOCK})")).await?;
    // The mark is set last: a template without it was left half-made by a process that died.
    let ready = client
        .query_opt("SELECT 1 FROM pg_database WHERE datname = $1 AND datistemplate", &[&name])
        .await
        .map_err(|source| Error::Postgres { attempt: "look for the template".to_owned(), source })?;
    if ready.is_none() {
        execute(&client, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        execute(&client, &format!("CREATE DATABASE {name}")).await?;
        migrate_all(&database_url(address, &name)).await?;
        execute(&client, &format!("ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false IS_TEMPLATE true"))
            .await?;
    }
    // The lock ends with the session.
    Ok(name)
}

async fn migrate_all(url: &str) -> Result<(), Error> {
    for schema in migrate::schemas().into_iter().chain([SANDBOX_SCHEMA]) {
        let config = PostgresConfig::new(url, schema);
        migrate::run(&config).await.map_err(|source| Error::Migrate { source })?;
    }
    Ok(())
}

async fn admin(address: SocketAddr) -> Result<Client, Error> {
    connect(&database_url(address, "postgres"))
        .await
        .map_err(|source| Error::Postgres { attempt: "connect to the shared server".to_owned(), source })
}

async fn execute(client: &Client, statement: &str) -> Result<(), Error> {
    client
        .batch_execute(statement)
        .await
        .map_err(|source| Error::Postgres { attempt: format!("run `{statement}`"), source })
}
