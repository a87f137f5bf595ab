//! Trace context arrives with a call, is available during it, and can be passed on.

use onsale_kit::telemetry::propagation::{self, CallContext, TraceContext};
use proptest::prelude::*;
use tonic::metadata::MetadataValue;

use crate::support::{Harness, echo_request};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn call_continues_its_callers_trace() {
    let harness = Harness::start(&[]).await;
    let mut client = harness.customer().await;
    let mut request = echo_request("traceparent");
    request.metadata_mut().insert("traceparent", MetadataValue::from_static(PARENT));
    let own = client.echo(request).await.expect("the call succeeds").into_inner().text;
    assert!(own.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && own.ends_with("-01"), "{own}");
    assert_ne!(own, PARENT, "a call has a new position in the trace");
    harness.server.shutdown().await;
}

#[tokio::test]
async fn call_without_a_valid_trace_starts_one() {
    let harness = Harness::start(&[]).await;
    let mut client = harness.customer().await;
    let first = client.echo(echo_request("traceparent")).await.expect("the call succeeds").into_inner().text;
    let mut request = echo_request("traceparent");
    request.metadata_mut().insert("traceparent", MetadataValue::from_static("00-zz-zz-zz"));
    let second = client.echo(request).await.expect("the call succeeds").into_inner().text;
    let first = TraceContext::parse(&first).expect("a trace");
    let second = TraceContext::parse(&second).expect("a trace");
    assert_ne!(first.trace_id().to_string(), second.trace_id().to_string());
    harness.server.shutdown().await;
}

#[tokio::test]
async fn outgoing_headers_carry_the_trace_during_the_call_only() {
    let trace = TraceContext::parse(PARENT).expect("a trace");
    let mut headers = http::HeaderMap::new();
    CallContext { trace, name: "test" }.scope(async { propagation::inject(&mut headers) }).await;
    assert_eq!(headers.get("traceparent").and_then(|value| value.to_str().ok()), Some(PARENT));
    assert_eq!(propagation::extract(&headers), Some(trace));
    assert_eq!(propagation::current_traceparent(), None);
}

#[test]
fn malformed_traceparent_is_refused() {
    for text in [
        "",
        "00",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
        "00-0af7651916cd43dd8448eb211c8031+c-b7ad6b7169203331-01",
    ] {
        assert_eq!(TraceContext::parse(text), None, "{text:?}");
    }
    let later = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more";
    assert!(TraceContext::parse(later).is_some(), "fields of a later version are ignored");
}

proptest! {
    #[test]
    fn formatted_context_parses_to_itself(trace in 1..=u128::MAX, span in 1..=u64::MAX, sampled in any::<bool>()) {
        let text = format!("00-{trace:032x}-{span:016x}-{:02x}", u8::from(sampled));
        let context = TraceContext::parse(&text).expect("well formed");
        prop_assert_eq!(context.to_string(), text);
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,70}") {
        let _ = TraceContext::parse(&text);
    }
}
