//! External systems for development and tests: a payment provider over HTTP and a mail server over SMTP and HTTP. They are
//! never part of production, and services reach them by address only, as they would reach the real systems.

pub mod mail;
pub mod payments;
