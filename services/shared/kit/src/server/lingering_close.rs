//! Lingering close: after its last write, a connection reads and discards input until the peer closes, for at most 1 s.
//!
//! Closing a socket with unread input resets the connection and loses data in flight, such as the last responses or the
//! status that ends a stream when the server drains. Unread input is common: a client acknowledges what it receives.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// Longest wait for the peer to close.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// Size of the buffer for discarded input.
const SCRATCH_BYTES: usize = 1024;

/// Wraps `io`; its shutdown waits until the peer has closed, too.
#[derive(Debug)]
pub(super) struct LingeringClose<T> {
    io: T,
    /// End of the wait for the peer. `None` until the write side is shut down.
    until: Option<Pin<Box<Sleep>>>,
}

impl<T> LingeringClose<T> {
    pub(super) fn new(io: T) -> Self {
        Self { io, until: None }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for LingeringClose<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LingeringClose<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { io, until } = &mut *self;
        let until = match until {
            Some(until) => until,
            None => {
                ready!(Pin::new(&mut *io).poll_shutdown(context))?;
                until.insert(Box::pin(sleep(LINGER_MAX)))
            }
        };
        // Polled before the read, so that a peer that never stops sending cannot extend the wait.
        if until.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut scratch = [0; SCRATCH_BYTES];
        loop {
            let mut rest = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut *io).poll_read(context, &mut rest)) {
                Ok(()) if !rest.filled().is_empty() => {}
                // The peer has closed, or the connection is broken and nothing more can be delivered.
                Ok(()) | Err(_) => return Poll::Ready(Ok(())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    /// More than the socket buffers hold, so that most of it is in flight when the connection is closed.
    const ANSWER_BYTES: usize = 512 * 1024;

    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (listener.accept().await.unwrap().0, client)
    }

    #[tokio::test]
    async fn written_data_arrives_although_input_is_unread() {
        let (server, mut client) = connection().await;
        client.write_all(b"received so far").await.unwrap();
        server.peek(&mut [0]).await.unwrap();
        let is_written = tokio::sync::Notify::new();
        let answer = async {
            let mut server = LingeringClose::new(server);
            server.write_all(&vec![7; ANSWER_BYTES]).await.unwrap();
            is_written.notify_one();
            server.shutdown().await.unwrap();
            drop(server);
        };
        let read = async {
            is_written.notified().await;
            let mut received = Vec::new();
            let outcome = client.read_to_end(&mut received).await;
            drop(client);
            outcome.map(|_| received.len())
        };
        let ((), received) = tokio::join!(answer, read);
        assert_eq!(received.unwrap(), ANSWER_BYTES);
    }

    #[tokio::test]
    async fn shutdown_ends_in_time_if_the_peer_does_not_close() {
        let (server, client) = connection().await;
        let begin = std::time::Instant::now();
        LingeringClose::new(server).shutdown().await.unwrap();
        assert!(begin.elapsed() >= LINGER_MAX);
        drop(client);
    }
}
