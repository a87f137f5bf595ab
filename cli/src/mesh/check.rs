//! Readiness checks of a mesh's processes, from outside of them.

use std::{net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{net::TcpStream, time::timeout};

/// A process on the same machine that takes longer to respond is not ready.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Condition under which a process is ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// A GET of this URL returns a 2xx status.
    Http(String),
    /// The address accepts a connection.
    Tcp(SocketAddr),
}

impl Check {
    /// Returns true if the condition is met within 2 s.
    pub async fn passes(&self, http: &reqwest::Client) -> bool {
        let passes = async {
            match self {
                Self::Http(url) => {
                    http.get(url).send().await.is_ok_and(|response| response.status().is_success())
                }
                Self::Tcp(address) => TcpStream::connect(address).await.is_ok(),
            }
        };
        timeout(RESPONSE_TIMEOUT, passes).await.unwrap_or(false)
    }
}
