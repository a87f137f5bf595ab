//! A connection that is not closed over what its peer still says.
//!
//! Closing a socket with something unread in it resets the connection, and what was written and not yet received is lost: the last
//! answers, or the word that a stream ended because the server drains. A client says something all the time (that it has received,
//! for one). So after the last write the rest is read and forgotten, until the peer has closed too.

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

/// A peer that has not closed after this is waited for no longer.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// How much is forgotten at a time.
const SCRATCH_BYTES: usize = 1024;

/// Closes `io` when its peer has closed, too.
#[derive(Debug)]
pub(super) struct LingeringClose<T> {
    io: T,
    /// Until when the peer is waited for; none while the connection is open.
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
        // Looked at first: who talks without a pause is left in time, too.
        if until.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut scratch = [0; SCRATCH_BYTES];
        loop {
            let mut rest = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut *io).poll_read(context, &mut rest)) {
                Ok(()) if !rest.filled().is_empty() => {}
                // All is said; or the peer is gone, and nobody is left to be told.
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

    /// More than a peer takes that does not read yet, so that most of it is on its way when the connection is closed.
    const ANSWER_BYTES: usize = 512 * 1024;

    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (listener.accept().await.unwrap().0, client)
    }

    #[tokio::test]
    async fn what_was_written_arrives_though_something_is_left_unread() {
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
    async fn a_peer_that_does_not_close_is_left_in_time() {
        let (server, client) = connection().await;
        let begin = std::time::Instant::now();
        LingeringClose::new(server).shutdown().await.unwrap();
        assert!(begin.elapsed() >= LINGER_MAX);
        drop(client);
    }
}
