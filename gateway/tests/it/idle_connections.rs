//! A connection that asks for nothing is closed, whatever it began with.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{TIMEOUT, TestGateway};

#[tokio::test]
async fn a_connection_that_asks_for_nothing_is_closed() {
    let gateway = TestGateway::open_with(&[("HTTP__HEADER_TIMEOUT", "500ms")]).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for begun in [b"".as_slice(), b"PRI", b"GET / HT", preface] {
        let mut stream = TcpStream::connect(gateway.http).await.expect("the port is open");
        stream.write_all(begun).await.expect("it is sent");
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "still open after {:?}", String::from_utf8_lossy(begun));
    }
    gateway.close().await;
}
