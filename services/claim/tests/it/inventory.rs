//! Fake Inventory: keeps units and holds in memory according to the contract, and fails on demand.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
};

use onsale_proto::{
    inventory::v1::{
        CommitHoldRequest, CommitHoldResponse, Hold, HoldState, ReleaseHoldRequest, ReleaseHoldResponse,
        ReserveUnitsRequest, ReserveUnitsResponse,
        inventory_internal_service_server::InventoryInternalService,
    },
    r#type::v1::{EventSummary, LineItem, Money, Seat, Unit, UnitSelection},
};
use onsale_testkit::wait_until;
use onsale_types::{EventId, Timestamp};
use tonic::{Code, Request, Response, Status};

use crate::support::{SOON, refusal, to_pb};

/// Price of every unit.
pub(crate) const PRICE_MINOR: i64 = 2_500;

/// Stock of one event.
#[derive(Clone, Default)]
pub(crate) struct FakeInventory {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub(crate) struct State {
    units_max: u32,
    sectors: HashMap<String, Sector>,
    holds: HashMap<String, (Hold, Vec<UnitSelection>)>,
    /// Quota ids by invitation token.
    pub(crate) invitations: HashMap<String, String>,
    /// Code with which every call fails.
    pub(crate) down: Option<Code>,
    /// Code and reason with which `ReserveUnits` is refused.
    pub(crate) refuses: Option<(Code, &'static str)>,
    /// `ReserveUnits` takes effect, but its response waits while this is set.
    pub(crate) withholds_responses: bool,
    /// `ReserveUnits` times out while this is set, and takes effect with `run_delayed`.
    pub(crate) times_out: bool,
    /// Responses omit the event while this is set.
    pub(crate) omits_event: bool,
    /// Responses carry another event while this is set.
    pub(crate) sends_other_event: bool,
    /// Changed name of the event, and the number of its changes.
    pub(crate) event_name: Option<String>,
    pub(crate) event_revision: u64,
    /// Number of responses with the event.
    pub(crate) events_sent: u32,
    delayed: Vec<ReserveUnitsRequest>,
    /// Number of `ReserveUnits` calls.
    pub(crate) reserve_calls: u32,
}

struct Sector {
    is_seated: bool,
    free: BTreeSet<u32>,
}

impl FakeInventory {
    pub(crate) fn new(units_max: u32) -> Self {
        let inventory = Self::default();
        inventory.state.lock().unwrap().units_max = units_max;
        inventory
    }

    pub(crate) fn add_sector(&self, id: &str, capacity: u32, is_seated: bool) {
        let sector = Sector { is_seated, free: (1..=capacity).collect() };
        self.state.lock().unwrap().sectors.insert(id.to_owned(), sector);
    }

    /// Changes the behavior.
    pub(crate) fn configure(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    /// Sells units to another customer.
    pub(crate) fn sell_elsewhere(&self, sector: &str, units: impl IntoIterator<Item = u32>) {
        let mut state = self.state.lock().unwrap();
        let free = &mut state.sectors.get_mut(sector).unwrap().free;
        for unit in units {
            assert!(free.remove(&unit), "unit {unit} is not free");
        }
    }

    /// Releases every held hold, as Inventory does after `release_after`.
    pub(crate) fn lose_holds(&self) {
        let mut state = self.state.lock().unwrap();
        let held: Vec<_> = state.ids_in(HoldState::Held);
        for id in held {
            state.release(&id);
        }
    }

    pub(crate) fn free(&self, sector: &str) -> u32 {
        u32::try_from(self.state.lock().unwrap().sectors[sector].free.len()).unwrap()
    }

    /// Counts the units of all holds in a state.
    pub(crate) fn units_in(&self, wanted: HoldState) -> usize {
        let state = self.state.lock().unwrap();
        let holds = state.holds.values().filter(|(hold, _)| hold.state() == wanted);
        holds.flat_map(|(hold, _)| &hold.items).map(|item| item.units.len()).sum()
    }

    pub(crate) fn ids_in(&self, wanted: HoldState) -> Vec<String> {
        self.state.lock().unwrap().ids_in(wanted)
    }

    pub(crate) fn reserve_calls(&self) -> u32 {
        self.state.lock().unwrap().reserve_calls
    }
}

impl FakeInventory {
    /// Runs the delayed reservations and returns the number of holds that obtained units.
    pub(crate) fn run_delayed(&self) -> usize {
        let delayed = std::mem::take(&mut self.state.lock().unwrap().delayed);
        assert!(!delayed.is_empty(), "nothing was delayed");
        let answers = delayed.into_iter().map(|request| self.reserve_now(request).unwrap().hold.unwrap());
        answers.filter(|hold| hold.state() == HoldState::Held).count()
    }

    fn reserve_now(&self, request: ReserveUnitsRequest) -> Result<ReserveUnitsResponse, Status> {
        let mut state = self.state.lock().unwrap();
        state.check()?;
        if let Some((code, reason)) = state.refuses {
            return Err(refusal(code, reason, &[("from", "inventory")]));
        }
        let hold = state.reserve(&request)?;
        let event = EventSummary {
            event_id: if state.sends_other_event {
                EventId::generate().to_string()
            } else {
                request.event_id
            },
            name: state.event_name.clone().unwrap_or_else(|| "Final".to_owned()),
            venue_name: "Arena".to_owned(),
            venue_address: String::new(),
            time_zone: "Europe/Zagreb".to_owned(),
            start_time: Some(to_pb(Timestamp::from_secs(4_000_000_000))),
        };
        let event_revision = state.event_revision + 1;
        let is_known = state.omits_event || request.known_event_revision == event_revision;
        state.events_sent += u32::from(!is_known);
        Ok(ReserveUnitsResponse {
            hold: Some(hold),
            event: (!is_known).then_some(event),
            units_per_customer_max: state.units_max,
            event_revision,
        })
    }
}

impl State {
    fn ids_in(&self, wanted: HoldState) -> Vec<String> {
        let found = self.holds.iter().filter(|(_, (hold, _))| hold.state() == wanted);
        found.map(|(id, _)| id.clone()).collect()
    }

    fn check(&self) -> Result<(), Status> {
        match self.down {
            Some(Code::Unavailable) => Err(refusal(Code::Unavailable, "DEPENDENCY_UNAVAILABLE", &[])),
            Some(code) => Err(Status::new(code, "fails on demand")),
            None => Ok(()),
        }
    }

    fn reserve(&mut self, request: &ReserveUnitsRequest) -> Result<Hold, Status> {
        if let Some((hold, selections)) = self.holds.get(&request.hold_id) {
            return if *selections == request.selections || selections.is_empty() {
                Ok(hold.clone())
            } else {
                Err(refusal(Code::InvalidArgument, "HOLD_ID_REUSED", &[("hold_id", &request.hold_id)]))
            };
        }
        let token = request.invitation_token.as_str();
        let quota_id = match self.invitations.get(token) {
            _ if token.is_empty() => String::new(),
            Some(quota) => quota.clone(),
            None => return Err(refusal(Code::PermissionDenied, "INVITATION_TOKEN_INVALID", &[])),
        };
        let picked: Result<Vec<_>, _> = request.selections.iter().map(|it| self.pick(it)).collect();
        let items: Vec<LineItem> = picked?;
        for item in &items {
            let free = &mut self.sectors.get_mut(&item.sector_id).unwrap().free;
            for unit in &item.units {
                assert!(free.remove(&unit.number), "a unit was picked twice");
            }
        }
        let hold = Hold {
            hold_id: request.hold_id.clone(),
            event_id: request.event_id.clone(),
            customer_id: request.customer_id.clone(),
            state: HoldState::Held.into(),
            items,
            quota_id,
            ..Hold::default()
        };
        self.holds.insert(request.hold_id.clone(), (hold.clone(), request.selections.clone()));
        Ok(hold)
    }

    fn pick(&self, selection: &UnitSelection) -> Result<LineItem, Status> {
        let id = selection.sector_id.as_str();
        let unknown = || refusal(Code::NotFound, "SECTOR_NOT_FOUND", &[("sector_id", id)]);
        let sector = self.sectors.get(id).ok_or_else(unknown)?;
        let count = usize::try_from(selection.count).unwrap();
        let units: Vec<u32> = if count == 0 {
            if selection.units.iter().any(|unit| !sector.free.contains(unit)) {
                return Err(refusal(Code::FailedPrecondition, "UNITS_TAKEN", &[("sector_id", id)]));
            }
            selection.units.clone()
        } else {
            sector.free.iter().copied().take(count).collect()
        };
        if units.len() < count {
            let free = sector.free.len().to_string();
            let metadata = [("sector_id", id), ("free_count", free.as_str())];
            return Err(refusal(Code::FailedPrecondition, "NOT_ENOUGH_UNITS", &metadata));
        }
        let seat = |number: &u32| Seat { row_label: "A".to_owned(), seat_label: number.to_string() };
        let amount = i64::try_from(units.len()).unwrap() * PRICE_MINOR;
        Ok(LineItem {
            sector_id: id.to_owned(),
            sector_name: "North".to_owned(),
            units: units
                .iter()
                .map(|number| Unit { number: *number, seat: sector.is_seated.then(|| seat(number)) })
                .collect(),
            unit_price: Some(Money { amount_minor: PRICE_MINOR, currency_code: "EUR".to_owned() }),
            amount: Some(Money { amount_minor: amount, currency_code: "EUR".to_owned() }),
            group_count: u32::from(sector.is_seated),
        })
    }

    fn release(&mut self, id: &str) {
        let (hold, _) = self.holds.get_mut(id).unwrap();
        if hold.state() == HoldState::Held {
            hold.set_state(HoldState::Released);
            for item in &hold.items {
                let free = &mut self.sectors.get_mut(&item.sector_id).unwrap().free;
                free.extend(item.units.iter().map(|unit| unit.number));
            }
        }
    }

    fn hold(&self, id: &str) -> Result<Hold, Status> {
        let found = self.holds.get(id).map(|(hold, _)| hold.clone());
        found.ok_or_else(|| refusal(Code::NotFound, "HOLD_NOT_FOUND", &[("hold_id", id)]))
    }
}

#[tonic::async_trait]
impl InventoryInternalService for FakeInventory {
    async fn reserve_units(
        &self,
        request: Request<ReserveUnitsRequest>,
    ) -> Result<Response<ReserveUnitsResponse>, Status> {
        let request = request.into_inner();
        self.state.lock().unwrap().reserve_calls += 1;
        if self.state.lock().unwrap().times_out {
            self.state.lock().unwrap().delayed.push(request);
            return Err(refusal(Code::DeadlineExceeded, "DEADLINE_EXCEEDED", &[]));
        }
        let answer = self.reserve_now(request)?;
        wait_until("responses are allowed", SOON, async || !self.state.lock().unwrap().withholds_responses)
            .await;
        Ok(Response::new(answer))
    }

    async fn commit_hold(
        &self,
        request: Request<CommitHoldRequest>,
    ) -> Result<Response<CommitHoldResponse>, Status> {
        let id = request.into_inner().hold_id;
        let mut state = self.state.lock().unwrap();
        state.check()?;
        if state.hold(&id)?.state() == HoldState::Released {
            return Err(refusal(Code::FailedPrecondition, "HOLD_RELEASED", &[("hold_id", &id)]));
        }
        state.holds.get_mut(&id).unwrap().0.set_state(HoldState::Committed);
        Ok(Response::new(CommitHoldResponse { hold: Some(state.hold(&id)?) }))
    }

    async fn release_hold(
        &self,
        request: Request<ReleaseHoldRequest>,
    ) -> Result<Response<ReleaseHoldResponse>, Status> {
        let id = request.into_inner().hold_id;
        let mut state = self.state.lock().unwrap();
        state.check()?;
        if state.hold(&id).is_err() {
            // A later reservation of this hold finds it released.
            let hold = Hold { hold_id: id.clone(), state: HoldState::Released.into(), ..Hold::default() };
            state.holds.insert(id, (hold.clone(), Vec::new()));
            return Ok(Response::new(ReleaseHoldResponse { hold: Some(hold) }));
        }
        if state.hold(&id)?.state() == HoldState::Committed {
            return Err(refusal(Code::FailedPrecondition, "HOLD_COMMITTED", &[("hold_id", &id)]));
        }
        state.release(&id);
        Ok(Response::new(ReleaseHoldResponse { hold: Some(state.hold(&id)?) }))
    }
}
