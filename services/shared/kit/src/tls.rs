//! The process-wide crypto provider of rustls: ring. `kit::run` installs it. Code that runs without `kit::run` and makes a
//! TLS client without a provider of its own (reqwest) calls [`install_provider`] first.

/// Installs ring as the default provider. Does nothing if the process already has one.
pub fn install_provider() {
    // The error means that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
