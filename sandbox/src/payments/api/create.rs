//! Parses and validates the parameters of a new checkout session.

use super::{ApiError, Parameters};
use crate::payments::{
    records::{Intent, IntentStatus, Metadata, Session, SessionStatus},
    session::new_id,
};

/// Shortest lifetime of a session; the same as Stripe's.
const LIFETIME_SECONDS_MIN: i64 = 30 * 60;
/// Longest lifetime of a session, and the default.
const LIFETIME_SECONDS_MAX: i64 = 24 * 60 * 60;
/// Tolerance at both bounds for clock differences and network delay.
const LIFETIME_SECONDS_GRACE: i64 = 60;
/// Line items that are read; further ones are ignored.
const LINE_ITEMS_MAX: usize = 100;
/// Currency codes that are refused, so that tests can simulate an unsupported currency. ISO 4217 reserves both (XTS for
/// tests, XXX for no currency).
const CURRENCIES_REFUSED: [&str; 2] = ["xts", "xxx"];

/// Builds the session that `parameters` request, or returns the first violation.
pub(super) fn session(parameters: &Parameters, now: i64) -> Result<Session, ApiError> {
    if parameters.get("mode").map(String::as_str) != Some("payment") {
        return Err(ApiError::invalid("Only mode=payment is supported."));
    }
    let (amount_total, currency, names) = line_items(parameters)?;
    let expires_at = match parameters.get("expires_at") {
        Some(text) => text.parse().map_err(|_malformed| ApiError::invalid("Invalid expires_at."))?,
        None => now.saturating_add(LIFETIME_SECONDS_MAX),
    };
    let lifetime = expires_at.saturating_sub(now);
    let shortest = LIFETIME_SECONDS_MIN - LIFETIME_SECONDS_GRACE;
    if !(shortest..=LIFETIME_SECONDS_MAX + LIFETIME_SECONDS_GRACE).contains(&lifetime) {
        return Err(ApiError::invalid("expires_at must be 30 minutes to 24 hours away."));
    }
    Ok(Session {
        id: new_id("cs"),
        status: SessionStatus::Open,
        amount_total,
        currency,
        names,
        customer_email: parameters.get("customer_email").cloned(),
        client_reference_id: parameters.get("client_reference_id").cloned(),
        success_url: required(parameters, "success_url")?.to_owned(),
        cancel_url: parameters.get("cancel_url").cloned(),
        metadata: fields(parameters, "metadata"),
        created: now,
        expires_at,
        intent: Intent {
            id: new_id("pi"),
            status: IntentStatus::RequiresPaymentMethod,
            metadata: fields(parameters, "payment_intent_data[metadata]"),
            by_customer: false,
        },
    })
}

/// Returns the parameters named `prefix[…]`, keyed by the part in brackets.
pub(super) fn fields(parameters: &Parameters, prefix: &str) -> Metadata {
    let inner = |name: &str| {
        let rest = name.strip_prefix(prefix)?;
        rest.strip_prefix('[')?.strip_suffix(']').map(str::to_owned)
    };
    parameters.iter().filter_map(|(name, value)| Some((inner(name)?, value.clone()))).collect()
}

/// Returns the total in minor units, the currency and the names of the line items.
fn line_items(parameters: &Parameters) -> Result<(i64, String, Vec<String>), ApiError> {
    let mut total: i64 = 0;
    let mut currency: Option<&str> = None;
    let mut names = Vec::new();
    for index in 0..LINE_ITEMS_MAX {
        let item = format!("line_items[{index}]");
        let Some(amount) = parameters.get(&format!("{item}[price_data][unit_amount]")) else { break };
        let quantity = required(parameters, &format!("{item}[quantity]"))?;
        let whole = |text: &str| text.parse::<i64>().ok().filter(|number| *number > 0);
        let (Some(amount), Some(quantity)) = (whole(amount), whole(quantity)) else {
            return Err(ApiError::invalid(format!("Invalid positive integer in {item}.")));
        };
        let code = required(parameters, &format!("{item}[price_data][currency]"))?;
        if CURRENCIES_REFUSED.contains(&code) || *currency.get_or_insert(code) != code {
            return Err(ApiError::invalid(format!("Invalid currency: {code}.")));
        }
        names.push(required(parameters, &format!("{item}[price_data][product_data][name]"))?.to_owned());
        total = amount
            .checked_mul(quantity)
            .and_then(|sum| sum.checked_add(total))
            .ok_or_else(|| ApiError::invalid("Amount must be no more than 99999999."))?;
    }
    let currency = currency.ok_or_else(|| ApiError::invalid("line_items is required."))?;
    Ok((total, currency.to_owned(), names))
}

fn required<'a>(parameters: &'a Parameters, name: &str) -> Result<&'a str, ApiError> {
    let value = parameters.get(name).map(String::as_str).filter(|value| !value.is_empty());
    value.ok_or_else(|| ApiError::invalid(format!("Missing required param: {name}.")))
}
