//! Reads the text of a mail up to the final dot, removes dot stuffing and enforces the size limit.

use std::io;

use tokio::io::AsyncBufRead;

use super::line::{Line, read_line};

/// Longest line. RFC 5321 allows 1,000 bytes, but some senders exceed that.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// A mail over the size limit is read to its end, so that the client receives a 552; beyond this multiple of the limit the
/// connection is closed instead.
const OVERSIZE_FACTOR_MAX: usize = 4;

/// Outcome of reading one mail.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// A complete mail within the limit.
    Whole(Vec<u8>),
    /// A complete mail over the limit; its text was discarded.
    TooLarge,
    /// The client disconnected, or sent more than `OVERSIZE_FACTOR_MAX` times the limit.
    Incomplete,
}

/// Reads a mail of at most `bytes_max`. Only CR LF `.` CR LF ends it: accepting a bare LF around the dot would allow SMTP
/// smuggling.
pub(super) async fn read_data(
    reader: &mut (impl AsyncBufRead + Unpin),
    bytes_max: usize,
) -> io::Result<Data> {
    let mut mail = Vec::new();
    let (mut bytes, mut is_too_large, mut is_after_line_end) = (0_usize, false, true);
    while bytes <= bytes_max.saturating_mul(OVERSIZE_FACTOR_MAX) {
        let line = match read_line(reader, LINE_BYTES_MAX).await? {
            Line::Read(line) => line,
            Line::TooLong => {
                bytes = bytes.saturating_add(LINE_BYTES_MAX);
                (is_too_large, is_after_line_end) = (true, true);
                continue;
            }
            Line::Eof => return Ok(Data::Incomplete),
        };
        if is_after_line_end && line == b".\r\n" {
            return Ok(if is_too_large { Data::TooLarge } else { Data::Whole(mail) });
        }
        let text = match line.strip_prefix(b".") {
            Some(unstuffed) if is_after_line_end => unstuffed,
            Some(_) | None => line.as_slice(),
        };
        is_after_line_end = line.ends_with(b"\r\n");
        bytes = bytes.saturating_add(text.len());
        is_too_large |= bytes > bytes_max;
        if !is_too_large {
            mail.extend_from_slice(text);
        }
    }
    Ok(Data::Incomplete)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(mut input: &[u8], bytes_max: usize) -> Data {
        read_data(&mut input, bytes_max).await.unwrap()
    }

    #[tokio::test]
    async fn dot_stuffing_is_removed_and_a_final_dot_ends_the_mail() {
        assert_eq!(
            read(b"a\r\n..b\r\n...\r\n.\r\nrest", 99).await,
            Data::Whole(b"a\r\n.b\r\n..\r\n".to_vec())
        );
        assert_eq!(read(b".\r\n", 99).await, Data::Whole(Vec::new()));
    }

    #[tokio::test]
    async fn dot_next_to_a_bare_line_feed_does_not_end_the_mail() {
        let smuggled = b"a\n.\r\nMAIL FROM:<x@y>\r\n.\nb\r\n.\r\n";
        let Data::Whole(mail) = read(smuggled, 99).await else { panic!("expected a complete mail") };
        assert_eq!(mail, b"a\n.\r\nMAIL FROM:<x@y>\r\n\nb\r\n");
    }

    #[tokio::test]
    async fn oversized_mail_is_read_to_its_end_up_to_four_times_the_limit() {
        assert_eq!(read(b"123456\r\n.\r\n", 5).await, Data::TooLarge);
        assert_eq!(read(&b"123456\r\n".repeat(100), 5).await, Data::Incomplete);
        assert_eq!(read(b"123", 5).await, Data::Incomplete);
    }
}
