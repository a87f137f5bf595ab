//! Whether a process is ready, asked from outside.

use std::{net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{net::TcpStream, time::timeout};

/// A process of this machine that needs longer is not ready.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// How to ask.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// A GET of this address succeeds.
    Http(String),
    /// Somebody listens.
    Tcp(SocketAddr),
}

impl Check {
    /// Whether it is ready now.
    pub async fn passes(&self, http: &reqwest::Client) -> bool {
        let passes = async {
            match self {
                Self::Http(url) => {
                    http.get(url).send().await.is_ok_and(|answer| answer.status().is_success())
                }
                Self::Tcp(address) => TcpStream::connect(address).await.is_ok(),
            }
        };
        timeout(ANSWER_TIME_MAX, passes).await.unwrap_or(false)
    }
}
