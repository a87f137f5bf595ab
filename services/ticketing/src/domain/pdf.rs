//! The printable ticket: one A5 page with the event, the seat and the QR code.
//!
//! The file is written without a library, because one page of text and squares needs none. No font is embedded: the text is
//! Helvetica in WinAnsi encoding, which every PDF reader has. Croatian letters that the encoding lacks lose their marks (`č` becomes
//! `c`); other letters that it lacks become `?`.

use super::{
    document::Language,
    qr::{QUIET_MODULES, Qr},
    ticket::Ticket,
};

/// Page size: A5 in points.
const PAGE_WIDTH: usize = 420;
const PAGE_HEIGHT: usize = 595;
const MARGIN: usize = 40;
/// Chosen so that the QR code fits below the longest texts.
const POINTS_PER_MODULE: usize = 4;
/// Limits of the title, so that it fits the page.
const TITLE_CHARS_MAX: usize = 36;
const TITLE_LINES_MAX: usize = 5;
const LINE_CHARS_MAX: usize = 62;
/// Limit of a line with the sector or the seat.
const SEAT_CHARS_MAX: usize = 50;

struct Line {
    text: String,
    /// Font size in points.
    size: usize,
}

/// Returns the PDF of `ticket`. `qr` has its code.
pub(super) fn ticket(ticket: &Ticket, qr: &Qr, language: Language) -> Vec<u8> {
    let content = content(&lines(ticket, language), qr, &ticket.ticket_id.to_string());
    write(&[
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {PAGE_WIDTH} {PAGE_HEIGHT}] \
             /Resources << /Font << /F 4 0 R >> >> /Contents 5 0 R >>"
        ),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_owned(),
        format!("<< /Length {} >>\nstream\n{content}\nendstream", content.len()),
    ])
}

fn lines(ticket: &Ticket, language: Language) -> Vec<Line> {
    let mut lines: Vec<_> = wrapped(&ticket.event.name, TITLE_CHARS_MAX, TITLE_LINES_MAX)
        .into_iter()
        .map(|text| Line { text, size: 18 })
        .collect();
    lines.push(Line { text: start_time(ticket, language), size: 13 });
    let venue = std::iter::once(&ticket.event.venue_name).chain(&ticket.event.venue_address);
    for line in venue {
        lines.extend(wrapped(line, LINE_CHARS_MAX, 2).into_iter().map(|text| Line { text, size: 11 }));
    }
    let (sector, row, seat, unit) = match language {
        Language::Croatian => ("Sektor", "Red", "Sjedalo", "Mjesto"),
        Language::English => ("Sector", "Row", "Seat", "Place"),
    };
    let seat_or_unit = match &ticket.seat {
        Some(at) => format!("{row} {}, {seat} {}", at.row_label, at.seat_label),
        None => format!("{unit} {}", ticket.unit),
    };
    let sector = format!("{sector} {}", ticket.sector_name);
    for text in [sector, seat_or_unit] {
        lines.extend(wrapped(&text, SEAT_CHARS_MAX, 2).into_iter().map(|text| Line { text, size: 13 }));
    }
    lines
}

/// Formats the event's start in the venue's time zone.
fn start_time(ticket: &Ticket, language: Language) -> String {
    let form = match language {
        Language::Croatian => "%d.%m.%Y. %H:%M",
        Language::English => "%-d %B %Y, %H:%M",
    };
    let event = &ticket.event;
    jiff::Timestamp::from_microsecond(event.start_time.as_micros())
        .and_then(|time| time.in_tz(&event.time_zone))
        .map(|time| time.strftime(form).to_string())
        // The time zone is unknown. This text names UTC as its zone.
        .unwrap_or_else(|_| event.start_time.to_string())
}

/// Returns the drawing operators of the page.
fn content(lines: &[Line], qr: &Qr, footer: &str) -> String {
    let mut content = String::new();
    let mut y = PAGE_HEIGHT.saturating_sub(MARGIN);
    for line in lines {
        y = y.saturating_sub(line.size + 7);
        let text = pdf_text(&line.text);
        content.push_str(&format!("BT /F {} Tf {MARGIN} {y} Td ({text}) Tj ET\n", line.size));
    }
    let side = qr.width() * POINTS_PER_MODULE;
    let left = PAGE_WIDTH.saturating_sub(side) / 2;
    let top = MARGIN + side;
    for run in qr.runs() {
        let x = left + run.x * POINTS_PER_MODULE;
        let y = top.saturating_sub((run.y + 1) * POINTS_PER_MODULE);
        content.push_str(&format!("{x} {y} {} {POINTS_PER_MODULE} re\n", run.length * POINTS_PER_MODULE));
    }
    content.push_str("f\n");
    let (footer, x) = (pdf_text(footer), left + QUIET_MODULES * POINTS_PER_MODULE);
    content.push_str(&format!("BT /F 8 Tf {x} {MARGIN} Td ({footer}) Tj ET"));
    content
}

/// Returns a file with the objects, numbered from 1, and the table of their offsets.
fn write(objects: &[String]) -> Vec<u8> {
    let mut file = String::from("%PDF-1.4\n");
    let mut offsets = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        offsets.push(file.len());
        file.push_str(&format!("{} 0 obj\n{object}\nendobj\n", index + 1));
    }
    let table = file.len();
    file.push_str(&format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1));
    for offset in offsets {
        file.push_str(&format!("{offset:010} 00000 n \n"));
    }
    let size = objects.len() + 1;
    file.push_str(&format!("trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n"));
    file.into_bytes()
}

/// Escapes `text` for a PDF string. The result is ASCII, so an offset in the text is one in the file.
fn pdf_text(text: &str) -> String {
    let mut inside = String::new();
    for letter in text.chars() {
        match win_ansi(letter) {
            b @ (b'(' | b')' | b'\\') => inside.extend(['\\', char::from(b)]),
            b @ b' '..=b'~' => inside.push(char::from(b)),
            b => inside.push_str(&format!("\\{b:03o}")),
        }
    }
    inside
}

/// Returns the WinAnsi byte of a letter, of its form without a mark, or of `?`.
fn win_ansi(letter: char) -> u8 {
    match letter {
        ' '..='~' | '\u{a0}'..='\u{ff}' => u8::try_from(letter).unwrap_or(b'?'),
        'š' => 0x9a,
        'Š' => 0x8a,
        'ž' => 0x9e,
        'Ž' => 0x8e,
        'č' | 'ć' => b'c',
        'Č' | 'Ć' => b'C',
        'đ' => b'd',
        'Đ' => b'D',
        '€' => 0x80,
        '…' => 0x85,
        '‘' => 0x91,
        '’' => 0x92,
        '“' => 0x93,
        '”' => 0x94,
        '–' => 0x96,
        '—' => 0x97,
        _ => b'?',
    }
}

/// Breaks `text` into at most `lines_max` lines of at most `chars_max` letters and drops the rest. Lines break between words;
/// only a word longer than a line is split.
fn wrapped(text: &str, chars_max: usize, lines_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for piece in letters.chunks(chars_max) {
            let piece: String = piece.iter().collect();
            match lines.last_mut() {
                Some(line) if line.chars().count() + 1 + piece.chars().count() <= chars_max => {
                    line.push(' ');
                    line.push_str(&piece);
                }
                Some(_) | None => lines.push(piece),
            }
        }
    }
    lines.truncate(lines_max);
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::ticket::{self, TicketState};

    #[test]
    fn seat_and_code_fit_the_page_with_the_longest_texts() {
        let mut ticket = ticket::tests::ticket(TicketState::Issued);
        let long = "dugo ime ".repeat(60);
        ticket.event.name = long.clone();
        ticket.event.venue_name = long.clone();
        ticket.event.venue_address = Some(long.clone());
        ticket.sector_name = long;
        let lines = lines(&ticket, Language::English);
        assert_eq!(lines.last().unwrap().text, "Row A, Seat 7");
        let text_height: usize = lines.iter().map(|line| line.size + 7).sum();
        let code_height = Qr::of(&ticket.code).unwrap().width() * POINTS_PER_MODULE;
        assert!(text_height + code_height + 2 * MARGIN <= PAGE_HEIGHT, "{text_height} + {code_height}");
    }

    proptest! {
        #[test]
        fn wrapped_lines_keep_the_limit_and_lose_only_spaces(text in "[a-zčšž (]{0,120}") {
            let lines = wrapped(&text, 10, usize::MAX);
            prop_assert!(lines.iter().all(|line| line.chars().count() <= 10));
            let bare = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(bare(&lines.join(" ")), bare(&text));
        }

        #[test]
        fn any_text_is_escaped_as_ascii_without_open_brackets(text: String) {
            let inside = pdf_text(&text);
            prop_assert!(inside.is_ascii());
            // A bracket that is not escaped would end the string.
            let unescaped = inside.replace("\\\\", "").replace("\\(", "").replace("\\)", "");
            prop_assert!(!unescaped.contains(['(', ')']));
        }
    }
}
