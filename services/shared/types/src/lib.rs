//! Types shared by all services and their stores: typed ids, money, time and list pages. The crate is pure: no I/O, no
//! runtime, no wire format, and no rule of a single domain.

mod clock;
mod ids;
mod money;
mod named;
mod page;
mod request;
mod timestamp;

pub use clock::{Clock, ManualClock, SystemClock};
pub use ids::{
    ClaimId, CustomerId, DeviceId, EntryId, EventId, GenerationId, HoldId, Id, InvitationId, JobId,
    OrganizerId, ParseIdError, PaymentId, QuotaId, SectorId, TicketId,
};
pub use money::{Currency, Money, MoneyError, ParseCurrencyError};
pub use named::Named;
pub use page::{PageLimits, PageQuery, PageSize, PageSizeError, PageToken, ParsePageTokenError};
pub use request::RequestId;
pub use timestamp::Timestamp;
