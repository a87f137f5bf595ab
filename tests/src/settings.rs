//! The settings without which a service refuses to start: keys and addresses that have no default.

use onsale_kit::auth::{KeyError, SigningKey};

/// Those of `service`, as its environment has them.
pub fn required(service: &str) -> Result<Vec<(&'static str, String)>, KeyError> {
    let key = SigningKey::generate()?;
    Ok(match service {
        "inventory" => vec![
            ("INVITATIONS__SIGNING_KEY", key),
            ("INVITATIONS__ACCEPT_PAGE", "https://tickets.example.test/invitation".to_owned()),
        ],
        "queue" => vec![("TURNS__SIGNING_KEY", key)],
        "claim" => vec![("TURNS__JWKS", SigningKey::parse(&key)?.jwks())],
        "ticketing" => vec![("CODES__SIGNING_KEY", key)],
        _ => Vec::new(),
    })
}
