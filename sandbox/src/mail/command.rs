//! Parser for the SMTP commands that the catcher supports (RFC 5321).

/// Longest address: 64 bytes of local part, `@` and 255 bytes of domain.
const ADDRESS_BYTES_MAX: usize = 320;

/// A parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// HELO, or EHLO (`is_extended`), whose reply lists the extensions.
    Hello {
        is_extended: bool,
    },
    /// MAIL FROM. `from` is empty for a bounce; `size` is the declared size in bytes.
    Mail {
        from: String,
        size: Option<usize>,
    },
    /// RCPT TO, one recipient.
    Recipient {
        to: String,
    },
    /// DATA: the text of the mail follows.
    Data,
    /// RSET: discards the current envelope.
    Reset,
    Noop,
    /// VRFY: asks if an address exists.
    Verify,
    Quit,
    /// A supported command with invalid arguments; the text describes the problem.
    Malformed(&'static str),
    Unknown,
}

impl Command {
    /// Parses one line, with or without its line end.
    pub(super) fn parse(line: &[u8]) -> Self {
        let Ok(line) = std::str::from_utf8(line) else { return Self::Unknown };
        let line = line.trim_end_matches(['\r', '\n']);
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb.to_ascii_uppercase().as_str() {
            "HELO" | "EHLO" if rest.trim().is_empty() => Self::Malformed("expected a host name"),
            "HELO" => Self::Hello { is_extended: false },
            "EHLO" => Self::Hello { is_extended: true },
            "MAIL" => mail(rest),
            "RCPT" => recipient(rest),
            "DATA" => Self::Data,
            "RSET" => Self::Reset,
            "NOOP" => Self::Noop,
            "VRFY" => Self::Verify,
            "QUIT" => Self::Quit,
            _ => Self::Unknown,
        }
    }
}

fn mail(rest: &str) -> Command {
    let malformed = Command::Malformed("expected MAIL FROM:<address>");
    let Some((from, parameters)) = path(rest, "FROM:") else { return malformed };
    let mut size = None;
    for parameter in parameters.split_ascii_whitespace() {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match name.to_ascii_uppercase().as_str() {
            "SIZE" => match value.parse() {
                Ok(bytes) => size = Some(bytes),
                Err(_) => return Command::Malformed("SIZE must be a number of bytes"),
            },
            // Nothing to do: mails are stored byte for byte.
            "BODY" | "SMTPUTF8" => {}
            _ => return Command::Malformed("unsupported parameter"),
        }
    }
    Command::Mail { from, size }
}

fn recipient(rest: &str) -> Command {
    match path(rest, "TO:") {
        Some((to, _)) if !to.is_empty() => Command::Recipient { to },
        Some(_) | None => Command::Malformed("expected RCPT TO:<address>"),
    }
}

/// Splits `rest` into the address after `keyword` and the parameters. The address may be empty (sender of a bounce).
fn path<'a>(rest: &'a str, keyword: &str) -> Option<(String, &'a str)> {
    let rest = rest.trim_start();
    let (head, tail) = rest.split_at_checked(keyword.len())?;
    if !head.eq_ignore_ascii_case(keyword) {
        return None;
    }
    let (address, parameters) = tail.trim_start().strip_prefix('<')?.split_once('>')?;
    let is_plain = !address.chars().any(|it| it.is_control() || it.is_whitespace() || it == '<');
    (is_plain && address.len() <= ADDRESS_BYTES_MAX).then(|| (address.to_owned(), parameters))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mail(from: &str, size: Option<usize>) -> Command {
        Command::Mail { from: from.to_owned(), size }
    }

    #[test]
    fn commands_are_parsed_in_any_case_with_their_parameters() {
        let line = b"mail from:<ana@example.com> SIZE=12 BODY=8BITMIME SMTPUTF8\r\n";
        assert_eq!(Command::parse(line), mail("ana@example.com", Some(12)));
        assert_eq!(Command::parse(b"MAIL FROM:<>\r\n"), mail("", None));
        assert_eq!(Command::parse(b"RCPT TO: <a@b>\n"), Command::Recipient { to: "a@b".to_owned() });
        assert_eq!(Command::parse(b"EHLO me\r\n"), Command::Hello { is_extended: true });
        assert_eq!(Command::parse(b"quit"), Command::Quit);
    }

    #[test]
    fn invalid_arguments_are_malformed_and_other_commands_unknown() {
        for line in [
            &b"MAIL FROM:ana@example.com"[..],
            b"MAIL FROM:<ana@example.com",
            b"MAIL FROM:<a b>",
            b"MAIL FROM:<a@b> SIZE=many",
            b"MAIL FROM:<a@b> AUTH=<>",
            b"MAIL",
            b"RCPT TO:<>",
            b"RCPT FROM:<a@b>",
            b"HELO",
        ] {
            assert!(matches!(Command::parse(line), Command::Malformed(_)), "{line:?}");
        }
        for line in [&b""[..], b"\xff\xfe", b"GET / HTTP/1.1", b"STARTTLS"] {
            assert_eq!(Command::parse(line), Command::Unknown, "{line:?}");
        }
    }
}
