//! `payment.refunded` and `quota.invitation`: consumers → app → store::jobs.

use onsale_storage::postgres::Transaction;

use super::App;
use crate::{domain::job::NewJob, error::ConsumeError, store};

impl App {
    /// Stores the job, unless it is stored already.
    pub(crate) async fn add_job(&self, transaction: &Transaction, job: NewJob) -> Result<(), ConsumeError> {
        store::jobs::insert(transaction, &[job]).await?;
        Ok(())
    }
}
