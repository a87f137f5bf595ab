//! Connections without a complete request are closed after the header timeout, with or without partial input.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{TIMEOUT, TestGateway};

#[tokio::test]
async fn connection_without_a_request_is_closed() {
    let gateway = TestGateway::open_with(&[("HTTP__HEADER_TIMEOUT", "500ms")]).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for partial_input in [b"".as_slice(), b"PRI", b"GET / HT", preface] {
        let mut stream = TcpStream::connect(gateway.http).await.expect("the port is open");
        stream.write_all(partial_input).await.expect("it is sent");
        let mut response = Vec::new();
        let ended = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut response)).await;
        assert!(ended.is_ok(), "still open after {:?}", String::from_utf8_lossy(partial_input));
    }
    gateway.close().await;
}
