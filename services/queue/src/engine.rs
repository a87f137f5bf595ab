//! The machinery of Queue that its use cases share.

pub(crate) mod fanout;
pub(crate) mod find_entries;
pub(crate) mod heartbeats;
pub(crate) mod leadership;
pub(crate) mod polls;
pub(crate) mod positions;
pub(crate) mod publish;
pub(crate) mod reconcile;
pub(crate) mod replica_updater;
pub(crate) mod replicas;
pub(crate) mod snapshots;
pub(crate) mod tokens;
pub(crate) mod viewers;

use self::{reconcile as heal, replica_updater as follower, replicas as follow, snapshots as snapshot};
use crate::app::{App, lock, read, write};
