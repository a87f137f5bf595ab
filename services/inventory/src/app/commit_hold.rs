//! `CommitHold`: grpc → app → engine::end_holds → store → domain::hold → store. Sells the units of a hold.

use onsale_types::HoldId;

use super::App;
use crate::{
    domain::{hold::HoldEnd, results::HoldAndOffer},
    error::Error,
};

impl App {
    pub(crate) async fn commit_hold(&self, hold_id: HoldId) -> Result<HoldAndOffer, Error> {
        self.end_holds.end_hold(hold_id, HoldEnd::Commit).await
    }
}
