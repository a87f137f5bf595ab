//! Settings of each process of the mesh, as readable TOML files that override its defaults. Every start rewrites them. They
//! name the files of secrets and never contain a secret.

use std::{fmt::Write as _, path::Path};

use anyhow::{Context, bail};
use onsale::mesh::folder::{Folder, write_private};

use super::{
    DATABASE,
    ports::{Port, Ports, REDIS_NODES, Service},
    secrets::Secrets,
};

/// The claim `iss` of the development sign-in. User ids are derived from it, so it is the same whatever the port is.
pub(crate) const ISSUER: &str = "http://localhost:8080";
/// The claim `aud` of the development sign-in.
pub(crate) const AUDIENCE: &str = "onsale";

/// A setting from the command line, `--set NAME.SECTION.KEY=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Override {
    /// A service or `gateway`. `None`: all of them.
    process: Option<String>,
    variable: String,
    value: String,
}

impl Override {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let shape = || format!("{text:?} is not NAME.SECTION.KEY=VALUE, as in claim.claims.window=3s");
        let (path, value) = text.split_once('=').with_context(shape)?;
        let (name, key) = path.split_once('.').with_context(shape)?;
        let names: Vec<&str> =
            Service::ALL.map(Service::name).into_iter().chain(["gateway", "all"]).collect();
        if !names.contains(&name) {
            bail!("{name:?} has no settings; there are {}", names.join(", "));
        }
        let process = (name != "all").then(|| name.to_owned());
        let prefix = process.as_deref().map(|name| format!("ONSALE_{name}")).unwrap_or("ONSALE".to_owned());
        let variable = format!("{prefix}__{}", key.replace('.', "__")).to_uppercase();
        Ok(Self { process, variable, value: value.to_owned() })
    }

    /// Returns the environment variable that sets it in `process`, or `None` if it is for another process.
    pub(crate) fn for_process(&self, process: &str) -> Option<(String, String)> {
        let meant = self.process.as_deref().is_none_or(|name| name == process);
        meant.then(|| (self.variable.clone(), self.value.clone()))
    }
}

/// Writes the settings of every service and the gateway.
pub(crate) fn write(folder: &Folder, ports: &Ports, secrets: &Secrets) -> anyhow::Result<()> {
    let settings = Settings { ports, secrets };
    for service in Service::ALL {
        write_private(&folder.config(&format!("{}.toml", service.name())), &settings.service(service)?)?;
    }
    write_private(&folder.config("gateway.toml"), &settings.gateway())
}

struct Settings<'a> {
    ports: &'a Ports,
    secrets: &'a Secrets,
}

impl Settings<'_> {
    fn service(&self, service: Service) -> anyhow::Result<String> {
        let top = match service {
            Service::Payment => "environment = \"development\"\ndefault_provider = \"sandbox\"\n\n",
            Service::Queue
            | Service::Inventory
            | Service::Claim
            | Service::Ticketing
            | Service::Notification => "",
        };
        let mut text = self.chassis(service.name(), top, Port::Service(service), Port::ServiceAdmin(service));
        let _ = write!(
            text,
            "\n[stores.postgres]\nurl = {}\n\n[stores.redis]\nnodes = {}\n",
            quoted(&postgres_url(self.ports)),
            toml::Value::from(redis_urls(self.ports)),
        );
        let defaults = defaults(service)?;
        let named = defaults.get("neighbours").and_then(toml::Value::as_table);
        for neighbor in Service::ALL {
            if named.is_some_and(|named| named.contains_key(neighbor.name())) {
                text.push_str(&self.neighbor(neighbor));
            }
        }
        if defaults.contains_key("web") {
            let port = self.ports.address(Port::FrontDoor).port();
            let _ = write!(text, "\n[web]\nurl = \"http://localhost:{port}\"\n");
        }
        text.push_str(&self.own(service));
        Ok(text)
    }

    fn gateway(&self) -> String {
        let top = "environment = \"development\"\n\n";
        let mut text = self.chassis("gateway", top, Port::Gateway, Port::GatewayAdmin);
        let _ = write!(
            text,
            "\n[http]\nlisten = {}\n\n[development]\nsign_in = true\nissuer = {}\naudience = {}\nsigning_key = {}\n",
            quoted(&self.ports.address(Port::GatewayHttp).to_string()),
            quoted(ISSUER),
            quoted(AUDIENCE),
            file(&self.secrets.development.key),
        );
        for service in Service::ALL {
            text.push_str(&self.neighbor(service));
        }
        text
    }

    /// Returns the settings that services and the gateway have in common. `top`: keys outside of any section, which must
    /// precede the first section.
    fn chassis(&self, name: &str, top: &str, port: Port, admin: Port) -> String {
        format!(
            r#"# Settings of {name} in this mesh, over its own config.default.toml. Written by `onsale up` at every start:
# to change one, start with --set {name}.SECTION.KEY=VALUE.

{top}[server]
listen = {listen}
admin_listen = {admin}

[server.drain]
# There is no second instance for clients to move to, so draining need not wait for them.
lame_duck = "0s"
total = "5s"

[telemetry]
log_format = "human"

[auth]
# The development sign-in of the gateway.
issuers = [{{ issuer = {issuer}, audiences = [{audience}], jwks = {jwks}, roles_granted = ["CUSTOMER", "ORGANIZER", "STAFF"] }}]

[auth.mesh]
key = {mesh_key}
jwks = {mesh_jwks}
"#,
            listen = quoted(&self.ports.address(port).to_string()),
            admin = quoted(&self.ports.address(admin).to_string()),
            issuer = quoted(ISSUER),
            audience = quoted(AUDIENCE),
            jwks = file(&self.secrets.development.jwks),
            mesh_key = file(&self.secrets.mesh.key),
            mesh_jwks = file(&self.secrets.mesh.jwks),
        )
    }

    fn neighbor(&self, service: Service) -> String {
        let target = quoted(&self.ports.url(Port::Service(service)));
        format!("\n[neighbours.{}]\ntarget = {target}\n", service.name())
    }

    /// Returns the sections that only this service has.
    fn own(&self, service: Service) -> String {
        let secrets = self.secrets;
        match service {
            Service::Inventory => format!(
                "\n[invitations]\nsigning_key = {}\naccept_page = \"http://localhost:{}/invitation\"\n",
                file(&secrets.invitations.key),
                self.ports.address(Port::FrontDoor).port(),
            ),
            Service::Queue => format!("\n[turns]\nsigning_key = {}\n", file(&secrets.turns.key)),
            Service::Claim => format!("\n[turns]\njwks = {}\n", file(&secrets.turns.jwks)),
            Service::Ticketing => format!("\n[codes]\nsigning_key = {}\n", file(&secrets.codes.key)),
            Service::Payment => format!(
                "\n[providers.sandbox]\nurl = {}\nsecret_key = {}\nwebhook_secret = {}\n",
                quoted(&self.ports.url(Port::Provider)),
                file(&secrets.provider_key),
                file(&secrets.webhook_secret),
            ),
            Service::Notification => {
                format!("\n[mail]\nsmtp_url = \"smtp://{}\"\n", self.ports.address(Port::Smtp))
            }
        }
    }
}

/// Parses the defaults of a service. Their sections tell which neighbors it calls and whether it links to the web app.
fn defaults(service: Service) -> anyhow::Result<toml::Table> {
    let text = match service {
        Service::Queue => include_str!("../../../services/queue/config.default.toml"),
        Service::Inventory => include_str!("../../../services/inventory/config.default.toml"),
        Service::Claim => include_str!("../../../services/claim/config.default.toml"),
        Service::Payment => include_str!("../../../services/payment/config.default.toml"),
        Service::Ticketing => include_str!("../../../services/ticketing/config.default.toml"),
        Service::Notification => include_str!("../../../services/notification/config.default.toml"),
    };
    text.parse().with_context(|| format!("failed to read the defaults of {}", service.name()))
}

/// Returns the URL of the database that all services share.
pub(crate) fn postgres_url(ports: &Ports) -> String {
    format!("postgres://postgres@{}/{DATABASE}", ports.address(Port::Postgres))
}

/// Returns the URLs of the nodes of the Redis Cluster.
pub(crate) fn redis_urls(ports: &Ports) -> Vec<String> {
    (1..=REDIS_NODES).map(|node| format!("redis://{}", ports.address(Port::Redis(node)))).collect()
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn file(path: &Path) -> String {
    format!("{{ file = {} }}", quoted(&path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::ports::PortChoice;

    #[test]
    fn override_becomes_an_environment_variable_of_its_process() {
        let set = Override::parse("claim.claims.window=3s").unwrap();
        let variable = ("ONSALE_CLAIM__CLAIMS__WINDOW".to_owned(), "3s".to_owned());
        assert_eq!(set.for_process("claim"), Some(variable));
        assert_eq!(set.for_process("queue"), None);
        let all = Override::parse("all.telemetry.log_filter=info,onsale=debug").unwrap();
        let variable = ("ONSALE__TELEMETRY__LOG_FILTER".to_owned(), "info,onsale=debug".to_owned());
        assert_eq!(all.for_process("gateway"), Some(variable));
    }

    #[test]
    fn invalid_override_is_refused_with_the_valid_form() {
        for (text, expected) in [("claim", "NAME.SECTION.KEY=VALUE"), ("nobody.a.b=1", "there are queue")] {
            let error = Override::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn every_settings_file_is_toml_without_secrets() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::locate(directory.path()).unwrap();
        folder.create().unwrap();
        let ports = Ports::choose(PortChoice::Free, &folder).unwrap();
        let secrets = Secrets::load_or_create(&folder).unwrap();
        write(&folder, &ports, &secrets).unwrap();
        let secret_texts: Vec<String> =
            [&secrets.mesh.key, &secrets.turns.key, &secrets.invitations.key, &secrets.webhook_secret]
                .map(|path| std::fs::read_to_string(path).unwrap())
                .into();
        for name in Service::ALL.map(Service::name).into_iter().chain(["gateway"]) {
            let text = std::fs::read_to_string(folder.config(&format!("{name}.toml"))).unwrap();
            let table: toml::Table = text.parse().unwrap();
            assert!(table["server"]["listen"].as_str().unwrap().starts_with("127.0.0.1:"), "{name}");
            assert!(secret_texts.iter().all(|secret| !text.contains(secret)), "{name}");
        }
    }
}
