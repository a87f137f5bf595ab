//! A connection that writes less often, and more at a time.
//!
//! Answers of one connection that are ready at the same moment belong in one write, and so do calls to a neighbour. But each of
//! them wakes the connection, the runtime runs what was woken last first, and so every one would go out by itself: half of the
//! time of a fan-out to a hundred thousand streams went into such writes. So before it writes, a connection lets everybody who
//! is ready have their turn once; alone, it goes on at once.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Gathers what is to be written through `io`.
#[derive(Debug)]
pub(crate) struct CoalescingWriter<T> {
    io: T,
    /// The others had their turn since the last flush.
    has_yielded: bool,
}

impl<T> CoalescingWriter<T> {
    pub(crate) fn new(io: T) -> Self {
        Self { io, has_yielded: false }
    }

    /// Ready when the others had their turn.
    fn poll_yielded(&mut self, context: &Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.has_yielded, true) {
            return Poll::Ready(());
        }
        // A task that wakes itself is run after those that are ready.
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for CoalescingWriter<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for CoalescingWriter<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_yielded(context));
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    /// Not by slices, though `io` could: where it can, h2 copies only answers below 256 bytes into its buffer and writes each
    /// larger one by itself. Where it cannot, answers below a kilobyte go out together, 16 KiB at a time.
    fn is_write_vectored(&self) -> bool {
        false
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What was gathered is written; the next write gathers anew.
        self.has_yielded = false;
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn what_is_written_arrives_whole_in_both_directions() {
        let (near, far) = tokio::io::duplex(64);
        let mut near = CoalescingWriter::new(near);
        let mut far = CoalescingWriter::new(far);
        let sent: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        let send = async {
            near.write_all(&sent).await?;
            near.flush().await?;
            near.shutdown().await
        };
        let mut received = Vec::new();
        let (sending, receiving) = tokio::join!(send, far.read_to_end(&mut received));
        sending.unwrap();
        receiving.unwrap();
        assert_eq!(received, sent);
    }

    #[tokio::test]
    async fn a_write_lets_those_who_are_ready_go_first_once_until_it_is_flushed() {
        let (near, _far) = tokio::io::duplex(1024);
        let mut near = CoalescingWriter::new(near);
        let mut context = Context::from_waker(std::task::Waker::noop());
        for _ in 0..2 {
            assert!(Pin::new(&mut near).poll_write(&mut context, b"a").is_pending());
            assert!(Pin::new(&mut near).poll_write(&mut context, b"a").is_ready());
            assert!(Pin::new(&mut near).poll_write(&mut context, b"b").is_ready());
            assert!(Pin::new(&mut near).poll_flush(&mut context).is_ready());
        }
    }
}
