//! Reads lines of bounded length.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// Outcome of reading one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, its line feed included.
    Read(Vec<u8>),
    /// A line over the limit; it was read to its end and discarded.
    TooLong,
    /// The peer closed its side. A partial line is discarded.
    Eof,
}

/// Reads up to the next LF and buffers at most `bytes_max`. Has no timeout; the caller must set one.
pub(super) async fn read_line(
    reader: &mut (impl AsyncBufRead + Unpin),
    bytes_max: usize,
) -> io::Result<Line> {
    let mut line = Vec::new();
    let mut is_too_long = false;
    loop {
        let available = reader.fill_buf().await?;
        if available.is_empty() {
            return Ok(Line::Eof);
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = available.split_at(end.map_or(available.len(), |end| end + 1)).0;
        is_too_long |= line.len() + part.len() > bytes_max;
        if !is_too_long {
            line.extend_from_slice(part);
        }
        let consumed = part.len();
        reader.consume(consumed);
        if end.is_some() {
            return Ok(if is_too_long { Line::TooLong } else { Line::Read(line) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn line_over_the_limit_is_discarded_and_the_next_is_read() {
        let mut input: &[u8] = b"abcdef\r\nabc\nrest";
        assert_eq!(read_line(&mut input, 5).await.unwrap(), Line::TooLong);
        assert_eq!(read_line(&mut input, 5).await.unwrap(), Line::Read(b"abc\n".to_vec()));
        assert_eq!(read_line(&mut input, 5).await.unwrap(), Line::Eof);
    }
}
