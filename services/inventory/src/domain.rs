//! Events, sectors, units, holds and quotas, with the rules for their changes. Pure functions: time is an argument, nothing
//! does I/O.

pub(crate) mod availability;
pub(crate) mod commands;
pub(crate) mod counts;
pub(crate) mod domain_event;
pub(crate) mod event;
pub(crate) mod hold;
pub(crate) mod invitation;
pub(crate) mod layout;
pub(crate) mod pick;
pub(crate) mod quota;
pub(crate) mod results;
pub(crate) mod unit_set;
