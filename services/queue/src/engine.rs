//! The machinery of Queue that its use cases share.

pub mod fanout;
pub mod find_entries;
pub mod heartbeats;
pub mod leadership;
pub mod polls;
pub mod positions;
pub mod publish;
pub mod reconcile;
pub mod replica_updater;
pub mod replicas;
pub mod snapshots;
pub mod tokens;
pub mod viewers;

use self::{reconcile as heal, replica_updater as follower, replicas as follow, snapshots as snapshot};
use crate::app::{App, lock, read, write};
