//! Hand-written HTTP/1.1 requests that no client library would send, and a decoder for gRPC-Web.

use std::net::SocketAddr;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::HeaderMap;
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::Status;

use crate::{
    fake_services::framed,
    support::{TIMEOUT, http_client},
};

/// Sends one request and reads the head of the response. By then the request has reached a service or has been refused.
pub(crate) async fn post(address: SocketAddr, path: &str, headers: &[(&str, &str)]) {
    let body = framed(&[]);
    let mut text = format!("POST {path} HTTP/1.1\r\nhost: gateway\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut stream = TcpStream::connect(address).await.expect("the port is open");
    stream.write_all(format!("{text}\r\n").as_bytes()).await.expect("the request is sent");
    // The server may have refused the request and closed the connection before the body.
    let _ = stream.write_all(&body).await;
    let mut response = Vec::new();
    let head = async {
        while !response.windows(4).any(|window| window == b"\r\n\r\n") {
            if !matches!(stream.read_buf(&mut response).await, Ok(1..)) {
                return;
            }
        }
    };
    let read = tokio::time::timeout(TIMEOUT, head).await;
    assert!(read.is_ok(), "{path} with {headers:?} was not answered");
}

/// Makes one gRPC-Web call, binary or text, and returns its status from the headers or the last frame of the body.
pub(crate) async fn grpc_web<M: Message>(
    base: SocketAddr,
    path: &str,
    message: &M,
    token: Option<&str>,
    is_text: bool,
) -> Status {
    let content_type = if is_text { "application/grpc-web-text+proto" } else { "application/grpc-web+proto" };
    let body = framed(&message.encode_to_vec());
    let body = if is_text { STANDARD.encode(&body).into_bytes() } else { body.to_vec() };
    let mut request = http_client()
        .post(format!("http://{base}{path}"))
        .header("content-type", content_type)
        .header("accept", content_type)
        .header("x-grpc-web", "1")
        .body(body);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let response = request.send().await.expect("a response");
    assert_eq!(response.status(), 200);
    let headers = response.headers().clone();
    let mut body = response.bytes().await.expect("a body").to_vec();
    if is_text {
        body = decode_text(&body);
    }
    let status = Status::from_header_map(&headers).or_else(|| Status::from_header_map(&frames(&body).1?));
    status.expect("every call has a status")
}

/// Decodes concatenated base64 pieces, each with its own padding.
fn decode_text(text: &[u8]) -> Vec<u8> {
    text.chunks(4).flat_map(|quad| STANDARD.decode(quad).expect("four letters of base64")).collect()
}

/// Splits a body into its messages and, if the last frame has arrived, the trailers.
pub(crate) fn frames(mut body: &[u8]) -> (Vec<Vec<u8>>, Option<HeaderMap>) {
    let mut messages = Vec::new();
    while body.len() >= 5 {
        let length = u32::from_be_bytes(body[1..5].try_into().expect("four bytes"));
        let end = 5 + usize::try_from(length).expect("a short message");
        let (frame, rest) = (&body[5..end], &body[end..]);
        if body[0] & 0x80 != 0 {
            return (messages, Some(header_lines(frame)));
        }
        messages.push(frame.to_vec());
        body = rest;
    }
    (messages, None)
}

fn header_lines(frame: &[u8]) -> HeaderMap {
    let text = String::from_utf8(frame.to_vec()).expect("trailers are text");
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(name, value)| {
            let name = http::HeaderName::try_from(name.trim()).expect("a name");
            (name, http::HeaderValue::from_str(value.trim()).expect("a value"))
        })
        .collect()
}
