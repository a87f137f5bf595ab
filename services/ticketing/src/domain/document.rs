//! Documents of a ticket: its QR code as a picture, and the printable ticket.

use super::{code::Code, pdf, qr::Qr, ticket::Ticket};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentKind {
    QrPng,
    QrSvg,
    /// One A5 page to print.
    Pdf,
}

/// Language of a printed ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Croatian,
    /// Used for every locale but `hr`.
    English,
}

/// A file that contains the code, so anyone who has it is admitted.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) kind: DocumentKind,
    pub(crate) content: Vec<u8>,
}

/// A bug of ours: every code fits into a QR code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DocumentError {
    #[error("failed to encode the code as a qr code: {problem}")]
    Qr { problem: String },
    #[error("failed to write a png")]
    Png(#[source] png::EncodingError),
}

impl Language {
    /// Returns the language for a BCP 47 tag.
    pub(crate) fn of(locale: Option<&str>) -> Self {
        let primary = locale.and_then(|tag| tag.split(['-', '_']).next());
        if primary.is_some_and(|primary| primary.eq_ignore_ascii_case("hr")) {
            Self::Croatian
        } else {
            Self::English
        }
    }
}

impl DocumentKind {
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::QrPng => "image/png",
            Self::QrSvg => "image/svg+xml",
            Self::Pdf => "application/pdf",
        }
    }
}

/// Renders a document of a ticket with its valid `code`.
pub(crate) fn render(
    kind: DocumentKind,
    ticket: &Ticket,
    code: &Code,
    language: Language,
) -> Result<Document, DocumentError> {
    let qr = Qr::of(code)?;
    let content = match kind {
        DocumentKind::QrPng => qr.png()?,
        DocumentKind::QrSvg => qr.svg(),
        DocumentKind::Pdf => pdf::ticket(ticket, &qr, language),
    };
    Ok(Document { kind, content })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{code::CODE_CHARS, ticket::TicketState, ticket::tests::ticket};

    fn rendered(kind: DocumentKind) -> (Ticket, Vec<u8>) {
        let ticket = ticket(TicketState::Issued);
        let document = render(kind, &ticket, &ticket.code, Language::Croatian).unwrap();
        (ticket, document.content)
    }

    /// Returns the text that a scanner reads in a picture of `width` × `width` pixels.
    fn scan(width: usize, is_dark: impl Fn(usize, usize) -> bool) -> String {
        let mut image =
            rqrr::PreparedImage::prepare_from_greyscale(
                width,
                width,
                |x, y| {
                    if is_dark(x, y) { 0 } else { 255 }
                },
            );
        image.detect_grids().first().unwrap().decode().unwrap().1
    }

    #[test]
    fn scanner_reads_the_code_from_the_png() {
        let (ticket, file) = rendered(DocumentKind::QrPng);
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        let width = usize::try_from(info.width).unwrap();
        let text = scan(width, |x, y| pixels[y * info.line_size + x / 8] & (0x80 >> (x % 8)) == 0);
        assert_eq!(text, ticket.code.expose());
    }

    #[test]
    fn scanner_reads_the_code_from_the_runs_of_svg_and_pdf() {
        let ticket = ticket(TicketState::Issued);
        let qr = Qr::of(&ticket.code).unwrap();
        // Version 8 has 49 modules on a side, and the quiet zone adds 4 on each side.
        assert_eq!((ticket.code.expose().len(), qr.width()), (CODE_CHARS, 49 + 8));
        let runs = qr.runs();
        let is_dark = |x: usize, y: usize| {
            runs.iter().any(|run| run.y == y && (run.x..run.x + run.length).contains(&x))
        };
        assert_eq!(scan(qr.width() * 4, |x, y| is_dark(x / 4, y / 4)), ticket.code.expose());
    }

    #[test]
    fn svg_is_one_square_picture() {
        let (_, file) = rendered(DocumentKind::QrSvg);
        let text = String::from_utf8(file).unwrap();
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>"), "{text}");
        assert!(text.contains("viewBox=\"0 0 57 57\""), "{text}");
    }

    #[test]
    fn pdf_table_has_the_offset_of_each_object() {
        let (_, file) = rendered(DocumentKind::Pdf);
        assert!(file.starts_with(b"%PDF-1.4\n") && file.ends_with(b"%%EOF\n"));
        let text: String = file.iter().map(|byte| char::from(*byte)).collect();
        let table = text.find("\nxref\n").unwrap() + 1;
        let start: usize = text.split("startxref\n").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        assert_eq!(start, table);
        for (number, line) in
            text[table..].lines().skip(3).take_while(|line| line.ends_with("n ")).enumerate()
        {
            let offset: usize = line[..10].parse().unwrap();
            assert!(text[offset..].starts_with(&format!("{} 0 obj", number + 1)), "object {}", number + 1);
        }
        assert!(text.contains("c\\232\\236cd \\(final\\)"), "letters and brackets are escaped");
        assert!(text.contains("15.01.2027. 09:00"), "the time is in the venue's time zone");
    }

    #[test]
    fn locale_selects_croatian_or_english() {
        for (locale, language) in [
            (Some("hr"), Language::Croatian),
            (Some("hr-HR"), Language::Croatian),
            (Some("HR_hr"), Language::Croatian),
            (Some("en"), Language::English),
            (Some("de"), Language::English),
            (Some("hrx"), Language::English),
            (None, Language::English),
        ] {
            assert_eq!(Language::of(locale), language, "{locale:?}");
        }
    }
}
