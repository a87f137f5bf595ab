//! Standard services of every instance, health and reflection, and the refusal of other protocols.

use tokio_stream::StreamExt;
use tonic::Request;
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::support::Harness;

#[tokio::test]
async fn reflection_lists_the_served_services_and_health() {
    let harness = Harness::start(&[]).await;
    let mut client = ServerReflectionClient::new(harness.channel().await);
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let request = Request::new(tokio_stream::iter([request]));
    let mut answers = client.server_reflection_info(request).await.expect("reflection responds").into_inner();
    let answer = answers.next().await.expect("an answer").expect("an answer");
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("{answer:?}")
    };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    for expected in ["onsale.testkit.v1.EchoService", "grpc.health.v1.Health"] {
        assert!(names.contains(&expected), "{expected} in {names:?}");
    }
    let elsewhere: Vec<_> = names.iter().filter(|name| name.starts_with("onsale.queue")).collect();
    assert!(elsewhere.is_empty(), "contracts that another service serves: {elsewhere:?}");
    harness.server.shutdown().await;
}

#[tokio::test]
async fn request_that_is_not_grpc_gets_415() {
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
    for (content_type, status) in [
        ("application/grpc-web+proto", http::StatusCode::UNSUPPORTED_MEDIA_TYPE),
        ("application/grpcs", http::StatusCode::UNSUPPORTED_MEDIA_TYPE),
        ("application/json", http::StatusCode::UNSUPPORTED_MEDIA_TYPE),
        ("application/grpc", http::StatusCode::OK),
        ("application/grpc+proto", http::StatusCode::OK),
    ] {
        let request = http::Request::post("http://server/onsale.testkit.v1.EchoService/Echo")
            .header("content-type", content_type)
            .body(Empty::<bytes::Bytes>::new())
            .expect("a request");
        let response = sender.send_request(request).await.expect("an answer");
        assert_eq!(response.status(), status, "{content_type}");
    }
    connection.abort();
    harness.server.shutdown().await;
}
