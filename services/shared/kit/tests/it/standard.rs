//! What every instance serves besides its own contract: health and reflection; and what it does not.

use onsale_testkit::echo;
use tokio_stream::StreamExt;
use tonic::Request;
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::support::Harness;

#[tokio::test]
async fn reflection_lists_our_services_and_health() {
    let harness = Harness::start(&[]).await;
    let mut client = ServerReflectionClient::new(harness.channel().await);
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let request = Request::new(tokio_stream::iter([request]));
    let mut answers = client.server_reflection_info(request).await.expect("reflection answers").into_inner();
    let answer = answers.next().await.expect("an answer").expect("an answer");
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("{answer:?}")
    };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    for expected in ["onsale.testkit.v1.EchoService", "onsale.queue.v1.QueueService", "grpc.health.v1.Health"]
    {
        assert!(names.contains(&expected), "{expected} in {names:?}");
    }
    assert!(!echo::DESCRIPTORS.is_empty());
    harness.server.shutdown().await;
}

#[tokio::test]
async fn something_that_does_not_speak_grpc_is_told_so() {
    use http_body_util::Empty;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let harness = Harness::start(&[]).await;
    let stream = tokio::net::TcpStream::connect(harness.server.address()).await.expect("the port is open");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .expect("HTTP/2 is spoken");
    let connection = crate::support::background(connection);
    let request = http::Request::get("http://server/onsale.testkit.v1.EchoService/Echo")
        .body(Empty::<bytes::Bytes>::new())
        .expect("a request");
    let response = sender.send_request(request).await.expect("an answer");
    assert_eq!(response.status(), http::StatusCode::UNSUPPORTED_MEDIA_TYPE);
    connection.abort();
    harness.server.shutdown().await;
}
