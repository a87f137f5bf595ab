//! Fake Queue: knows the turns that a test has granted, and refuses on demand.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use onsale_proto::queue::v1::{
    ValidateTurnRequest, ValidateTurnResponse, queue_internal_service_server::QueueInternalService,
};
use onsale_types::Timestamp;
use tonic::{Code, Request, Response, Status};

use crate::support::{refusal, to_pb};

/// Turns of one queue.
#[derive(Clone, Default)]
pub(crate) struct FakeQueue {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Ends of turns by event, customer and fencing number.
    turns: HashMap<(String, String, u64), Timestamp>,
    refuses: Option<(Code, &'static str)>,
}

impl FakeQueue {
    /// Grants a turn until `end`.
    pub(crate) fn grant(&self, event: &str, customer: &str, fencing_number: u64, end: Timestamp) {
        let turn = (event.to_owned(), customer.to_owned(), fencing_number);
        self.state.lock().unwrap().turns.insert(turn, end);
    }

    /// Refuses every call with this code and reason; `None`: no call.
    pub(crate) fn refuse(&self, refusal: Option<(Code, &'static str)>) {
        self.state.lock().unwrap().refuses = refusal;
    }
}

#[tonic::async_trait]
impl QueueInternalService for FakeQueue {
    async fn validate_turn(
        &self,
        request: Request<ValidateTurnRequest>,
    ) -> Result<Response<ValidateTurnResponse>, Status> {
        let state = self.state.lock().unwrap();
        if let Some((code, reason)) = state.refuses {
            return Err(refusal(code, reason, &[("from", "queue")]));
        }
        let request = request.into_inner();
        let turn = (request.event_id, request.customer_id, request.fencing_number);
        match state.turns.get(&turn) {
            Some(end) => Ok(Response::new(ValidateTurnResponse {
                entry_id: uuid::Uuid::now_v7().to_string(),
                expire_time: Some(to_pb(*end)),
            })),
            None => Err(refusal(Code::NotFound, "ENTRY_NOT_FOUND", &[])),
        }
    }
}
