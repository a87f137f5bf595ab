//! A ticket as a file: its QR code as a picture, or the printable ticket.

use super::{code::Code, pdf, qr::Qr, ticket::Ticket};

/// Kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentKind {
    /// The QR code as PNG.
    QrPng,
    /// The QR code as SVG.
    QrSvg,
    /// The printable ticket.
    Pdf,
}

/// The languages a printed ticket is made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// `hr`.
    Croatian,
    /// `en`, and all others.
    English,
}

/// A file. It contains the code.
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    /// What kind.
    pub kind: DocumentKind,
    /// Its bytes.
    pub content: Vec<u8>,
}

/// Why a file could not be made: a fault of ours, as every code fits.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The code does not fit into a QR code.
    #[error("failed to make a qr code: {problem}")]
    Qr {
        /// Why.
        problem: String,
    },
    /// The picture could not be written.
    #[error("failed to write a png")]
    Png(#[source] png::EncodingError),
}

impl Language {
    /// From a BCP 47 tag.
    #[must_use]
    pub fn of(locale: Option<&str>) -> Self {
        let primary = locale.and_then(|tag| tag.split(['-', '_']).next());
        if primary.is_some_and(|primary| primary.eq_ignore_ascii_case("hr")) {
            Self::Croatian
        } else {
            Self::English
        }
    }
}

impl DocumentKind {
    /// The media type of such a file.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::QrPng => "image/png",
            Self::QrSvg => "image/svg+xml",
            Self::Pdf => "application/pdf",
        }
    }
}

/// Makes the file of a ticket that admits with `code`.
pub fn make(
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

    fn made(kind: DocumentKind) -> (Ticket, Vec<u8>) {
        let ticket = ticket(TicketState::Issued);
        let document = make(kind, &ticket, &ticket.code, Language::Croatian).unwrap();
        (ticket, document.content)
    }

    /// What a scanner sees in a picture of `width` × `width` pixels.
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
    fn a_scanner_reads_the_code_from_the_png() {
        let (ticket, file) = made(DocumentKind::QrPng);
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        let width = usize::try_from(info.width).unwrap();
        let text = scan(width, |x, y| pixels[y * info.line_size + x / 8] & (0x80 >> (x % 8)) == 0);
        assert_eq!(text, ticket.code.expose());
    }

    #[test]
    fn a_scanner_reads_the_code_from_the_modules_that_svg_and_pdf_are_drawn_from() {
        let ticket = ticket(TicketState::Issued);
        let qr = Qr::of(&ticket.code).unwrap();
        // Version 8 and the quiet zone on both sides.
        assert_eq!((ticket.code.expose().len(), qr.width()), (CODE_CHARS, 49 + 8));
        let runs = qr.runs();
        let is_dark = |x: usize, y: usize| {
            runs.iter().any(|run| run.y == y && (run.x..run.x + run.length).contains(&x))
        };
        assert_eq!(scan(qr.width() * 4, |x, y| is_dark(x / 4, y / 4)), ticket.code.expose());
    }

    #[test]
    fn the_svg_is_one_square_picture() {
        let (_, file) = made(DocumentKind::QrSvg);
        let text = String::from_utf8(file).unwrap();
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>"), "{text}");
        assert!(text.contains("viewBox=\"0 0 57 57\""), "{text}");
    }

    #[test]
    fn the_pdf_says_where_each_of_its_objects_is() {
        let (_, file) = made(DocumentKind::Pdf);
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
        assert!(text.contains("c\\232\\236cd \\(final\\)"), "letters and brackets survive");
        assert!(text.contains("15.01.2027. 09:00"), "in the venue's own time");
    }

    #[test]
    fn a_locale_is_croatian_or_english() {
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
