//! What a queue is and what may happen in it: types, states, rules. Nothing here fetches, waits or reads a clock.

pub mod admission;
pub mod block;
pub mod bucket;
pub mod entry;
pub mod estimate;
pub mod line;
pub mod milestones;
pub mod moves;
pub mod pace;
pub mod policy;
pub mod queue;
pub mod rank_index;
pub mod refusal;
pub mod watching;
pub mod window;
