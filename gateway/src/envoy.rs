//! Renders the configuration of Envoy from the contracts: each public method has one route with its exact path, and all other
//! paths except those of the HTTP port are refused.
//!
//! The template is `gateway/envoy/envoy.yml`; its comments give the reasons. Envoy verifies no tokens: the gateway does, with
//! the errors that the contract specifies, and the services do so again.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

use askama::Template;
use onsale_kit::contract::{Contract, ContractError};

use crate::public::PublicMethods;

/// Settings of one deployment.
#[derive(Clone, Debug)]
pub struct EnvoySettings {
    /// Address for clients.
    pub listen: SocketAddr,
    /// Address of the admin pages (`/ready`, `/stats/prometheus`). Must not be reachable from outside.
    pub admin: SocketAddr,
    /// Address of the gateway's gRPC port.
    pub gateway_grpc: HostPort,
    /// Address of the gateway's HTTP port.
    pub gateway_http: HostPort,
    /// Path of a file with the output of [`crate::descriptors::public`].
    pub descriptor_path: PathBuf,
    /// Origins allowed by CORS, exactly as browsers send them. Empty: none.
    pub cors_origins: Vec<String>,
    /// Rate limit of one Envoy over all clients. Webhooks and health checks are exempt.
    pub requests_per_second: u32,
    /// Maximum number of concurrent requests and streams to the gateway.
    pub streams_max: u32,
    /// Maximum number of client connections.
    pub connections_max: u32,
}

impl Default for EnvoySettings {
    /// Returns settings for one machine: loopback addresses and the usual ports.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            admin: SocketAddr::from(([127, 0, 0, 1], 9901)),
            gateway_grpc: HostPort { host: "127.0.0.1".to_owned(), port: 7100 },
            gateway_http: HostPort { host: "127.0.0.1".to_owned(), port: 7110 },
            descriptor_path: PathBuf::from("onsale.pb"),
            cors_origins: vec!["http://localhost:8080".to_owned(), "http://127.0.0.1:8080".to_owned()],
            requests_per_second: 20_000,
            streams_max: 1_000_000,
            connections_max: 100_000,
        }
    }
}

/// Host name or IP address with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// Host name, or IP address without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// The text is not in the form `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not host:port: {0:?}")]
pub struct NotHostPort(String);

impl FromStr for HostPort {
    type Err = NotHostPort;

    fn from_str(text: &str) -> Result<Self, NotHostPort> {
        let refuse = || NotHostPort(text.to_owned());
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(refuse)?;
        let is_name = !host.is_empty()
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
        let port = port.parse().map_err(|_| refuse())?;
        if is_name { Ok(Self { host: host.to_owned(), port }) } else { Err(refuse()) }
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

/// Reasons for a failed rendering.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The options of the contracts cannot be read.
    #[error("failed to read the contracts")]
    Contract(#[source] ContractError),
    /// The path is not valid Unicode, as YAML requires.
    #[error("the path of the descriptors is not Unicode: {0:?}")]
    Path(PathBuf),
    /// The template cannot be rendered.
    #[error("failed to render the template")]
    Template(#[source] askama::Error),
}

/// Returns the configuration as YAML.
pub fn render(settings: &EnvoySettings) -> Result<String, RenderError> {
    let contract = Contract::load(&[onsale_proto::DESCRIPTORS]).map_err(RenderError::Contract)?;
    let public = PublicMethods::of(&contract);
    let path = settings.descriptor_path.to_str();
    let bootstrap = Bootstrap {
        settings,
        listen: settings.listen.into(),
        admin: settings.admin.into(),
        services: public.services().into_iter().map(quoted).collect(),
        routes: routes(&public),
        descriptor_path: quoted(path.ok_or_else(|| RenderError::Path(settings.descriptor_path.clone()))?),
        cors_origins: settings.cors_origins.iter().map(|origin| quoted(origin)).collect(),
    };
    bootstrap.render().map_err(RenderError::Template)
}

#[derive(Template)]
#[template(path = "envoy.yml", escape = "none")]
struct Bootstrap<'a> {
    settings: &'a EnvoySettings,
    listen: HostPort,
    admin: HostPort,
    services: Vec<String>,
    routes: Vec<Route>,
    descriptor_path: String,
    cors_origins: Vec<String>,
}

/// Route of one method.
struct Route {
    path: String,
    is_stream: bool,
    /// Exempt from the rate limit (health checks).
    is_exempt: bool,
}

/// Returns the routes for health, reflection and every public method.
fn routes(public: &PublicMethods) -> Vec<Route> {
    let standard = [
        ("/grpc.health.v1.Health/Check", false),
        ("/grpc.health.v1.Health/List", false),
        ("/grpc.health.v1.Health/Watch", true),
        ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", true),
        ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", true),
    ];
    let standard = standard.map(|(path, is_stream)| Route {
        path: quoted(path),
        is_stream,
        is_exempt: !path.contains("reflection"),
    });
    let ours = public.iter().map(|method| Route {
        path: quoted(&method.path),
        is_stream: method.server_streaming || method.client_streaming,
        is_exempt: false,
    });
    standard.into_iter().chain(ours).collect()
}

/// Quotes a text for YAML. Every JSON string is also a valid YAML string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_host_and_port_are_parsed() {
        for text in ["gateway:7100", "127.0.0.1:7100", "gateway.onsale.svc:1"] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
        }
        assert_eq!("[::1]:7100".parse::<HostPort>().unwrap().host, "::1");
        for text in ["", "gateway", ":7100", "gateway:", "gateway:70000", "a b:1", "\"x\":1"] {
            assert!(text.parse::<HostPort>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn configuration_has_no_internal_method() {
        let yaml = render(&EnvoySettings::default()).unwrap();
        assert!(yaml.contains("/onsale.queue.v1.QueueService/JoinQueue"));
        assert!(!yaml.contains("InternalService"));
    }
}
