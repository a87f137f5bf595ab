//! `ReleaseHold`: grpc → app → engine::end_holds → store → domain::hold → store. Frees the units of a hold. A hold that does
//! not exist is recorded as released, so that a late reservation cannot make it.

use onsale_types::HoldId;

use super::App;
use crate::{
    domain::{hold::HoldEnd, results::HoldAndOffer},
    error::Error,
};

impl App {
    pub(crate) async fn release_hold(&self, hold_id: HoldId) -> Result<HoldAndOffer, Error> {
        self.end_holds.end_hold(hold_id, HoldEnd::Release).await
    }
}
