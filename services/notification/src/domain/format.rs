//! Money, times and counts as text in each language.

use jiff::tz::TimeZone;
use onsale_types::{Money, Timestamp};

use super::language::Language;

const NO_BREAK_SPACE: char = '\u{a0}';

const DAYS: [(&str, &str); 7] = [
    ("Monday", "ponedjeljak"),
    ("Tuesday", "utorak"),
    ("Wednesday", "srijeda"),
    ("Thursday", "četvrtak"),
    ("Friday", "petak"),
    ("Saturday", "subota"),
    ("Sunday", "nedjelja"),
];
/// The Croatian names are in the genitive, as they follow the number of the day.
const MONTHS: [(&str, &str); 12] = [
    ("January", "siječnja"),
    ("February", "veljače"),
    ("March", "ožujka"),
    ("April", "travnja"),
    ("May", "svibnja"),
    ("June", "lipnja"),
    ("July", "srpnja"),
    ("August", "kolovoza"),
    ("September", "rujna"),
    ("October", "listopada"),
    ("November", "studenoga"),
    ("December", "prosinca"),
];

/// Returns the number of digits after the decimal point, by ISO 4217.
fn exponent(code: &str) -> usize {
    match code {
        "BIF" | "CLP" | "DJF" | "GNF" | "ISK" | "JPY" | "KMF" | "KRW" | "PYG" | "RWF" | "UGX" | "UYI"
        | "VND" | "VUV" | "XAF" | "XOF" | "XPF" => 0,
        "BHD" | "IQD" | "JOD" | "KWD" | "LYD" | "OMR" | "TND" => 3,
        "CLF" | "UYW" => 4,
        _ => 2,
    }
}

/// Formats an amount: `€1,234.50`, `CHF 12.50`; in Croatian `1.234,50 €`, `12,50 CHF`.
pub(crate) fn money(language: Language, amount: Money) -> String {
    let currency = amount.currency();
    let (thousands, point) = language.pick((',', '.'), ('.', ','));
    let number = number(amount.amount_minor(), exponent(currency.code()), thousands, point);
    match (language, currency.code()) {
        (Language::En, "EUR") => format!("€{number}"),
        (Language::En, "GBP") => format!("£{number}"),
        (Language::En, "USD") => format!("${number}"),
        (Language::En, code) => format!("{code}{NO_BREAK_SPACE}{number}"),
        (Language::Hr, "EUR") => format!("{number}{NO_BREAK_SPACE}€"),
        (Language::Hr, code) => format!("{number}{NO_BREAK_SPACE}{code}"),
    }
}

fn number(minor: i64, exponent: usize, thousands: char, point: char) -> String {
    // Padded, so that at least one digit stands before the point.
    let digits = format!("{:0>width$}", minor.unsigned_abs(), width = exponent + 1);
    let (whole, fraction) = digits.split_at(digits.len().saturating_sub(exponent));
    let mut text = String::from(if minor < 0 { "-" } else { "" });
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(thousands);
        }
        text.push(digit);
    }
    if exponent > 0 {
        text.push(point);
        text.push_str(fraction);
    }
    text
}

/// Formats a time: `Saturday, 14 November 2026, 20:00`; in Croatian `subota, 14. studenoga 2026. u 20:00`. Uses the time of
/// the zone, or UTC, marked as such, if the zone is unknown.
pub(crate) fn date_time(language: Language, time: Timestamp, time_zone: &str) -> String {
    let (zone, suffix) = match TimeZone::get(time_zone) {
        Ok(zone) => (zone, ""),
        Err(_) => (TimeZone::UTC, " UTC"),
    };
    let Ok(instant) = jiff::Timestamp::from_microsecond(time.as_micros()) else { return time.to_string() };
    let local = instant.to_zoned(zone);
    let weekday = name(language, &DAYS, local.weekday().to_monday_zero_offset());
    let month = name(language, &MONTHS, local.month().saturating_sub(1));
    let (day, year, hour, minute) = (local.day(), local.year(), local.hour(), local.minute());
    language.pick(
        format!("{weekday}, {day} {month} {year}, {hour:02}:{minute:02}{suffix}"),
        format!("{weekday}, {day}. {month} {year}. u {hour:02}:{minute:02}{suffix}"),
    )
}

fn name(language: Language, names: &[(&'static str, &'static str)], index: i8) -> &'static str {
    let found = usize::try_from(index).ok().and_then(|index| names.get(index)).copied().unwrap_or_default();
    language.pick(found.0, found.1)
}

/// Formats a number of tickets: `1 ticket`, `2 tickets`; in Croatian in the accusative: `1 ulaznicu`, `2 ulaznice`,
/// `5 ulaznica`.
pub(crate) fn tickets(language: Language, count: u64) -> String {
    let word = match language {
        Language::En if count == 1 => "ticket",
        Language::En => "tickets",
        Language::Hr => match (count % 10, count % 100) {
            (_, 11..=14) => "ulaznica",
            (1, _) => "ulaznicu",
            (2..=4, _) => "ulaznice",
            _ => "ulaznica",
        },
    };
    format!("{count}{NO_BREAK_SPACE}{word}")
}

#[cfg(test)]
mod tests {
    use onsale_types::Currency;

    use super::*;

    fn both(minor: i64, code: &str) -> (String, String) {
        let amount = Money::new(minor, Currency::parse(code).unwrap());
        (money(Language::En, amount), money(Language::Hr, amount))
    }

    #[test]
    fn money_has_the_digits_and_separators_of_currency_and_language() {
        for (minor, code, english, croatian) in [
            (123_450, "EUR", "€1,234.50", "1.234,50\u{a0}€"),
            (5, "EUR", "€0.05", "0,05\u{a0}€"),
            (0, "USD", "$0.00", "0,00\u{a0}USD"),
            (1_234_567, "JPY", "JPY\u{a0}1,234,567", "1.234.567\u{a0}JPY"),
            (1_234, "KWD", "KWD\u{a0}1.234", "1,234\u{a0}KWD"),
            (100_000, "CHF", "CHF\u{a0}1,000.00", "1.000,00\u{a0}CHF"),
            (-250, "EUR", "€-2.50", "-2,50\u{a0}€"),
            (i64::MIN, "JPY", "JPY\u{a0}-9,223,372,036,854,775,808", "-9.223.372.036.854.775.808\u{a0}JPY"),
        ] {
            assert_eq!(both(minor, code), (english.to_owned(), croatian.to_owned()));
        }
    }

    #[test]
    fn time_is_local_to_the_venue_in_summer_and_winter() {
        let summer = Timestamp::from_secs(1_783_360_800);
        assert_eq!(date_time(Language::En, summer, "Europe/Zagreb"), "Monday, 6 July 2026, 20:00");
        assert_eq!(date_time(Language::Hr, summer, "Europe/Zagreb"), "ponedjeljak, 6. srpnja 2026. u 20:00");
        let winter = Timestamp::from_secs(1_798_743_600);
        assert_eq!(date_time(Language::En, winter, "Europe/Zagreb"), "Thursday, 31 December 2026, 20:00");
        assert_eq!(date_time(Language::En, winter, "Mars/Olympus"), "Thursday, 31 December 2026, 19:00 UTC");
        assert_eq!(date_time(Language::En, Timestamp::EPOCH, ""), "Thursday, 1 January 1970, 00:00 UTC");
    }

    #[test]
    fn croatian_ticket_counts_have_three_forms() {
        for (count, text) in [
            (1, "ulaznicu"),
            (2, "ulaznice"),
            (5, "ulaznica"),
            (11, "ulaznica"),
            (21, "ulaznicu"),
            (112, "ulaznica"),
        ] {
            assert_eq!(tickets(Language::Hr, count), format!("{count}\u{a0}{text}"));
        }
        assert_eq!(tickets(Language::En, 1), "1\u{a0}ticket");
        assert_eq!(tickets(Language::En, 2), "2\u{a0}tickets");
    }
}
