//! One crypto provider for every TLS connection of a process: ring. Clients that bring none of their own (reqwest) find it
//! installed; `run` does that, and whoever makes such a client elsewhere may do it again.

/// Installs it, unless it is there already.
pub fn install_provider() {
    // An error means that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
