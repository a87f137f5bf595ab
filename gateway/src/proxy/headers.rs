//! Which headers of a stranger reach a service. A list of what may pass: a list of what may not would miss the next name
//! under which somebody claims to be somebody (`x-onsale-…`, `x-forwarded-client-cert`, …).

use http::{
    HeaderMap, HeaderName,
    header::{ACCEPT_LANGUAGE, AUTHORIZATION, CONTENT_TYPE, TE, USER_AGENT},
};

const FORWARDED: [HeaderName; 8] = [
    // Verified by the gateway, and by the service again.
    AUTHORIZATION,
    CONTENT_TYPE,
    TE,
    USER_AGENT,
    ACCEPT_LANGUAGE,
    HeaderName::from_static("grpc-timeout"),
    HeaderName::from_static("grpc-encoding"),
    HeaderName::from_static("grpc-accept-encoding"),
];

/// Takes out all but the known ones. The trace is not among them: the channel writes our own.
pub(super) fn retain_forwarded(headers: &mut HeaderMap) {
    let mut kept = HeaderMap::with_capacity(FORWARDED.len());
    for name in FORWARDED {
        // The first alone: a second value of any of these has no meaning, and of some a bad one.
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
    fn only_known_headers_pass_and_each_once() {
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
