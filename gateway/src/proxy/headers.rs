//! Request headers that are forwarded to a service. An allow list, because a deny list would miss the next header with which
//! a caller could claim an identity (`x-onsale-…`, `x-forwarded-client-cert`, …).

use http::{
    HeaderMap, HeaderName,
    header::{ACCEPT_LANGUAGE, AUTHORIZATION, CONTENT_TYPE, TE, USER_AGENT},
};

/// All forwarded headers. The trace is not among them: the channel writes its own.
const FORWARDED: [HeaderName; 8] = [
    // The gateway has verified the token; the service verifies it again.
    AUTHORIZATION,
    CONTENT_TYPE,
    TE,
    USER_AGENT,
    ACCEPT_LANGUAGE,
    HeaderName::from_static("grpc-timeout"),
    HeaderName::from_static("grpc-encoding"),
    HeaderName::from_static("grpc-accept-encoding"),
];

/// Removes all headers except the forwarded ones, and all but the first value of each.
pub(super) fn retain_forwarded(headers: &mut HeaderMap) {
    let mut kept = HeaderMap::with_capacity(FORWARDED.len());
    for name in FORWARDED {
        // A second value of these headers has no meaning and could bypass a check of the first.
        if let Some(value) = headers.remove(&name) {
            kept.insert(name, value);
        }
    }
    *headers = kept;
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_listed_headers_are_forwarded_once() {
        let mut headers = HeaderMap::new();
        for name in [
            "authorization",
            "authorization",
            "content-type",
            "grpc-timeout",
            "x-onsale-customer-id",
            "x-forwarded-client-cert",
            "x-envoy-internal",
            "grpc-internal-encoding-request",
            "traceparent",
            "cookie",
            "grpc-trace-bin",
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static("value"));
        }
        retain_forwarded(&mut headers);
        let mut names: Vec<_> = headers.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "content-type", "grpc-timeout"]);
    }
}
