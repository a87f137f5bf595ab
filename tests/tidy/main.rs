//! Machine checks of the repository's own rules (STYLE), which a compiler does not know. Each failure names all offenders and
//! the rule.

#![cfg(test)]

mod layout;
