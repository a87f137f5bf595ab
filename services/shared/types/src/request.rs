//! Request ids: idempotency keys that let a receiver recognize a repeated request.

use uuid::Uuid;

use crate::ids::typed_id;

typed_id! {
    /// Idempotency key of one request. The caller generates and stores it before the first attempt and sends it with every
    /// attempt.
    RequestId
}

impl RequestId {
    /// Derives the id of one `step` taken for the object `source` (a hold, a claim, …). The same source and step give the
    /// same id in any process and after any crash, so that a step repeated by another worker is still the same request.
    #[must_use]
    pub fn derive(source: Uuid, step: &str) -> Self {
        Self::from_uuid(Uuid::new_v5(&source, step.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClaimId;

    #[test]
    fn derived_id_depends_only_on_source_and_step() {
        let (first, second) = (ClaimId::generate().as_uuid(), ClaimId::generate().as_uuid());
        assert_eq!(RequestId::derive(first, "reserve"), RequestId::derive(first, "reserve"));
        assert_ne!(RequestId::derive(first, "reserve"), RequestId::derive(first, "commit"));
        assert_ne!(RequestId::derive(first, "reserve"), RequestId::derive(second, "reserve"));
    }
}
