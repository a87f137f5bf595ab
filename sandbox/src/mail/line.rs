//! Lines of a connection, each within a bound.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, with its end.
    Read(Vec<u8>),
    /// A line beyond the bound; it was read to its end and thrown away.
    TooLong,
    /// The other side has nothing more to say; a partial line is dropped.
    Eof,
}

/// Reads up to the next LF, keeping at most `bytes_max` of it. How long that may take is the caller's to bound.
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
    async fn a_line_beyond_the_bound_is_thrown_away_and_the_next_is_whole() {
        let mut input: &[u8] = b"abcdef\r\nabc\nrest";
        assert_eq!(read_line(&mut input, 5).await.unwrap(), Line::TooLong);
        assert_eq!(read_line(&mut input, 5).await.unwrap(), Line::Read(b"abc\n".to_vec()));
        assert_eq!(read_line(&mut input, 5).await.unwrap(), Line::Eof);
    }
}
