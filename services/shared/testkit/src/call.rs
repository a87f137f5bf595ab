//! Calls a method by its path alone, for tests that iterate over whole contracts.

use tonic::{
    Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};
use tonic_prost::ProstCodec;

/// Calls the method at `path` with an empty message and waits for the first response message, whose fields are ignored.
/// Works for unary and server-streaming methods, because both look the same on the wire.
///
/// # Panics
/// Panics if `path` is not a valid path or `token` is not a valid header value.
#[expect(clippy::expect_used, reason = "a test fails by panicking")]
pub async fn call(channel: &Channel, path: &str, token: Option<&str>) -> Result<(), Status> {
    let path: PathAndQuery = path.parse().expect("a method's path");
    let mut request = Request::new(());
    if let Some(token) = token {
        let bearer: MetadataValue<Ascii> = format!("Bearer {token}").parse().expect("a token is ASCII");
        request.metadata_mut().insert("authorization", bearer);
    }
    let mut client = Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let answers = client.server_streaming::<(), (), _>(request, path, ProstCodec::default()).await?;
    answers.into_inner().message().await.map(drop)
}
