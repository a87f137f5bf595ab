//! Settings without a default, which a service requires to start: keys and addresses.

use onsale_kit::auth::{KeyError, SigningKey};

/// Returns the required settings of `service` as pairs of environment key and value, with fresh keys.
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
