//! Messages of `GenerationService`.

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::ticketing::v1::{
    self as pb, get_generation_request::Lookup as GetLookup, watch_generation_request::Lookup as WatchLookup,
};
use onsale_types::{EventId, GenerationId, RequestId};

use super::timestamp_to_pb;
use crate::{
    app::watch_generation::GenerationLookup,
    domain::generation::{Generation, GenerationState, SectorProgress},
};

/// Which event's job to start.
pub fn create_generation(
    request: &pb::CreateGenerationRequest,
) -> Result<(RequestId, EventId), InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let event_id = violations.check("event_id", EventId::parse(&request.event_id));
    violations.build(|| Some((request_id?, event_id?)))
}

/// Which job to answer.
pub fn get_generation(request: &pb::GetGenerationRequest) -> Result<GenerationLookup, InvalidFields> {
    match &request.lookup {
        Some(GetLookup::GenerationId(id)) => by_id(id),
        Some(GetLookup::EventId(id)) => by_event(id),
        None => by_nothing(),
    }
}

/// Which job to watch.
pub fn watch_generation(request: &pb::WatchGenerationRequest) -> Result<GenerationLookup, InvalidFields> {
    match &request.lookup {
        Some(WatchLookup::GenerationId(id)) => by_id(id),
        Some(WatchLookup::EventId(id)) => by_event(id),
        None => by_nothing(),
    }
}

fn by_id(id: &str) -> Result<GenerationLookup, InvalidFields> {
    let mut violations = Violations::new();
    let id = violations.check("generation_id", GenerationId::parse(id));
    violations.build(|| id.map(GenerationLookup::Id))
}

fn by_event(id: &str) -> Result<GenerationLookup, InvalidFields> {
    let mut violations = Violations::new();
    let id = violations.check("event_id", EventId::parse(id));
    violations.build(|| id.map(GenerationLookup::NewestOf))
}

fn by_nothing() -> Result<GenerationLookup, InvalidFields> {
    let mut violations = Violations::new();
    violations.push("lookup", "is required: generation_id or event_id");
    violations.build(|| None)
}

/// A job for its organizer.
#[must_use]
pub fn generation_to_pb(generation: &Generation) -> pb::Generation {
    let sector = |sector: &SectorProgress| pb::SectorGeneration {
        sector_id: sector.sector_id.to_string(),
        ticket_count: sector.ticket_count,
        generated_count: sector.generated_count,
    };
    pb::Generation {
        generation_id: generation.generation_id.to_string(),
        event_id: generation.event_id.to_string(),
        state: state_to_pb(generation.state).into(),
        ticket_count: generation.ticket_count(),
        generated_count: generation.generated_count(),
        sectors: generation.sectors.iter().map(sector).collect(),
        create_time: Some(timestamp_to_pb(generation.create_time)),
        start_time: generation.start_time.map(timestamp_to_pb),
        end_time: generation.end_time.map(timestamp_to_pb),
    }
}

fn state_to_pb(state: GenerationState) -> pb::GenerationState {
    match state {
        GenerationState::Pending => pb::GenerationState::Pending,
        GenerationState::Running => pb::GenerationState::Running,
        GenerationState::Completed => pb::GenerationState::Completed,
        GenerationState::Failed => pb::GenerationState::Failed,
    }
}
