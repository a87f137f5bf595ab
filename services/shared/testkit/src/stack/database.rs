//! A fresh database per test, copied from a template database with all migrations.

use std::net::SocketAddr;
use std::sync::{OnceLock, mpsc};

use onsale_storage::migrate;
use onsale_storage::postgres::PostgresConfig;
use tokio::sync::OnceCell;
use tokio_postgres::Client;

use super::Error;
use super::postgres_server::{PostgresServer, connect, database_url};

/// Advisory lock that serializes the creation of the template across all processes of a run. The number is arbitrary.
const TEMPLATE_LOCK: i64 = 0x006f_6e73_616c_6501;

/// Schema with the shared tables only, for tests of the mechanisms that use these tables.
pub const SANDBOX_SCHEMA: &str = "sandbox";

/// A database of one test. Dropping the handle drops the database, best effort: stopping the server removes it in any case.
#[derive(Debug)]
pub struct TestDatabase {
    /// Connection string of the superuser.
    pub url: String,
    /// Name of the database on its server.
    pub name: String,
    address: SocketAddr,
    /// Set if dropping this handle drops the database.
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

    /// Creates a migrated database on a private server, for a test that stops or kills the server. The database lives as long
    /// as the server.
    pub async fn create_on(server: &PostgresServer) -> Result<Self, Error> {
        let (address, name) = (server.address(), "test".to_owned());
        execute(&admin(address).await?, &format!("CREATE DATABASE {name}")).await?;
        let url = database_url(address, &name);
        migrate_all(&url).await?;
        Ok(Self { url, name, address, is_owned: false })
    }

    /// Returns a second handle, for another process of the same test. Only the first handle drops the database.
    #[must_use]
    pub fn share(&self) -> Self {
        let Self { url, name, address, .. } = self;
        Self { url: url.clone(), name: name.clone(), address: *address, is_owned: false }
    }

    /// Returns connection settings for `schema` of this database.
    #[must_use]
    pub fn config(&self, schema: &str) -> PostgresConfig {
        PostgresConfig::new(&self.url, schema)
    }

    /// Returns connection settings for [`SANDBOX_SCHEMA`].
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
        // Use a separate thread, because the runtime of the test is shutting down.
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

/// Creates the template unless another process of the run has done so. Its name contains a digest of the migrations, so
/// that a server that runs longer than a change of them never serves an old template.
async fn make_template(address: SocketAddr) -> Result<String, Error> {
    let name = format!("template_{}", migrate::digest());
    let client = admin(address).await?;
    execute(&client, &format!("SELECT pg_advisory_lock({TEMPLATE_LOCK})")).await?;
    // `IS_TEMPLATE` is set last: a database without it is incomplete, left by a process that died.
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
    // Dropping the client ends the session and releases the lock.
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
