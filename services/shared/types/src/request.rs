//! The id of a request: what makes doing something twice equal to doing it once.

use uuid::Uuid;

use crate::ids::typed_id;

typed_id! {
    /// Names one wish of a caller. The caller makes it and keeps it before the first try, and sends it with every try.
    RequestId
}

impl RequestId {
    /// The id of one step taken on behalf of `source` (a hold, a claim, …): the same source and step give the same id, in
    /// any process and after any crash, so that a step repeated by another worker is still the same request.
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
    fn a_derived_id_depends_on_cause_and_step_and_on_nothing_else() {
        let (first, second) = (ClaimId::generate().as_uuid(), ClaimId::generate().as_uuid());
        assert_eq!(RequestId::derive(first, "reserve"), RequestId::derive(first, "reserve"));
        assert_ne!(RequestId::derive(first, "reserve"), RequestId::derive(first, "commit"));
        assert_ne!(RequestId::derive(first, "reserve"), RequestId::derive(second, "reserve"));
    }
}
