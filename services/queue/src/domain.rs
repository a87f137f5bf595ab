//! Types, states and rules of a queue. Nothing here fetches, waits or reads a clock: time is an argument.

pub(crate) mod admission;
pub(crate) mod availability;
pub(crate) mod block;
pub(crate) mod bucket;
pub(crate) mod control;
pub(crate) mod entry;
pub(crate) mod entry_view;
pub(crate) mod estimate;
pub(crate) mod event;
pub(crate) mod join;
pub(crate) mod line;
pub(crate) mod line_change;
pub(crate) mod milestone;
pub(crate) mod neighborhood;
pub(crate) mod policy;
pub(crate) mod queue;
pub(crate) mod queue_change;
pub(crate) mod queue_token;
pub mod rank_index;
pub(crate) mod refusal;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod turn;
pub(crate) mod update_pacing;
pub(crate) mod watcher;
pub(crate) mod windowed_entry;
