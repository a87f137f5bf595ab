//! A fake Inventory whose free units the test sets.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use onsale_proto::inventory::v1::{
    Availability, EventState, GetAvailabilityRequest, GetAvailabilityResponse, SectorAvailability,
    inventory_service_server::InventoryService,
};
use tonic::{Request, Response, Status};

/// A fake Inventory with one sector.
#[derive(Clone, Default)]
pub(crate) struct FakeInventory {
    free: Arc<AtomicU32>,
    is_down: Arc<AtomicBool>,
    sector_id: Arc<std::sync::Mutex<String>>,
}

impl FakeInventory {
    pub(crate) fn set_free(&self, free: u32) {
        self.free.store(free, Ordering::SeqCst);
    }

    pub(crate) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    pub(crate) fn set_sector(&self, sector_id: &str) {
        sector_id.clone_into(&mut self.sector_id.lock().unwrap());
    }
}

#[tonic::async_trait]
impl InventoryService for FakeInventory {
    async fn get_availability(
        &self,
        request: Request<GetAvailabilityRequest>,
    ) -> Result<Response<GetAvailabilityResponse>, Status> {
        if self.is_down.load(Ordering::SeqCst) {
            return Err(Status::unavailable("down"));
        }
        let sector = SectorAvailability {
            sector_id: self.sector_id.lock().unwrap().clone(),
            capacity: 1_000_000,
            free_count: self.free.load(Ordering::SeqCst),
            ..SectorAvailability::default()
        };
        let availability = Availability {
            event_id: request.into_inner().event_id,
            event_state: EventState::OnSale.into(),
            sectors: vec![sector],
            ..Availability::default()
        };
        Ok(Response::new(GetAvailabilityResponse { availability: Some(availability), next_poll_after: None }))
    }
}
