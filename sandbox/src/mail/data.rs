//! The text of a mail on its way in: until the lone dot, with the dots unstuffed, within a bound.

use std::io;

use tokio::io::AsyncBufRead;

use super::line::{Line, read_line};

/// One line may be longer than the 1,000 bytes of the standard; senders do it.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// A mail that is too large is read to its end, so that the client hears why; but not beyond so many times the bound.
const OVERSIZE_FACTOR_MAX: usize = 4;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// A whole mail.
    Whole(Vec<u8>),
    /// A mail beyond the bound.
    TooLarge,
    /// The client left, or would not end.
    Incomplete,
}

/// Reads a mail of at most `bytes_max`. Only CR LF `.` CR LF ends it: a lone LF before or after the dot does not, as mails
/// are smuggled that way.
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
    async fn dots_are_unstuffed_and_a_lone_one_ends_the_mail() {
        assert_eq!(
            read(b"a\r\n..b\r\n...\r\n.\r\nrest", 99).await,
            Data::Whole(b"a\r\n.b\r\n..\r\n".to_vec())
        );
        assert_eq!(read(b".\r\n", 99).await, Data::Whole(Vec::new()));
    }

    #[tokio::test]
    async fn a_dot_beside_a_bare_line_feed_does_not_end_the_mail() {
        let smuggled = b"a\n.\r\nMAIL FROM:<x@y>\r\n.\nb\r\n.\r\n";
        let Data::Whole(mail) = read(smuggled, 99).await else { panic!("the mail has an end") };
        assert_eq!(mail, b"a\n.\r\nMAIL FROM:<x@y>\r\n\nb\r\n");
    }

    #[tokio::test]
    async fn a_mail_beyond_the_bound_is_read_to_its_end_and_no_further_than_patience() {
        assert_eq!(read(b"123456\r\n.\r\n", 5).await, Data::TooLarge);
        assert_eq!(read(&b"123456\r\n".repeat(100), 5).await, Data::Incomplete);
        assert_eq!(read(b"123", 5).await, Data::Incomplete);
    }
}
