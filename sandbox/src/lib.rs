//! The outside world of development and tests: a payment provider and a mail server that behave like real ones, over real
//! HTTP and SMTP. Never part of production, and never a shortcut: our services know them by their addresses only.

pub mod mail;
pub mod payments;
