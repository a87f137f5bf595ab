//! Answers to requests that were already done, kept in the transaction that did them: asking twice equals asking once.

use std::future::Future;
use std::time::Duration;

use onsale_kit::error::{Chain, Kind, Reason, ServiceError};
use onsale_proto::r#type::v1::ErrorReason;
use onsale_types::RequestId;
use prost::Message;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::postgres::{self, Postgres, Transaction, column};

// Waits for a transaction that does the same request right now, and then finds it done.
const ENTER: &str = "INSERT INTO idempotency (method, caller, request_id, fingerprint)
    VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
const FIND: &str = "SELECT fingerprint, response FROM idempotency
    WHERE method = $1 AND caller = $2 AND request_id = $3";
const ANSWER: &str = "UPDATE idempotency SET response = $4
    WHERE method = $1 AND caller = $2 AND request_id = $3";
const FORGET: &str = "DELETE FROM idempotency WHERE ctid IN (
        SELECT ctid FROM idempotency WHERE created_at < now() - make_interval(secs => $1) LIMIT $2
        FOR UPDATE SKIP LOCKED)";

/// How much one call of [`forget`] removes.
const FORGET_MAX: i64 = 10_000;
/// How often [`keep_small`] looks for old answers.
const FORGET_EVERY: Duration = Duration::from_secs(60);
/// How long answers are kept: far longer than any caller goes on trying.
pub const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// A request that may come more than once.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    method: &'static str,
    caller: &'a str,
    id: Uuid,
    fingerprint: Uuid,
}

impl<'a> Request<'a> {
    /// The request `body` of `caller` to `method`. One caller's id never answers another's request. The body must have
    /// no map fields: their encoding has no order, so the same body would look like another.
    #[must_use]
    pub fn new(method: &'static str, caller: &'a str, id: RequestId, body: &impl Message) -> Self {
        let fingerprint = Uuid::new_v5(&Uuid::NAMESPACE_OID, &body.encode_to_vec());
        Self { method, caller, id: id.as_uuid(), fingerprint }
    }
}

/// Why a request could not be answered from memory, nor entered into it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The id was used before, with another body.
    #[error("request id {id} was used before with another body")]
    RequestIdReused {
        /// The id.
        id: Uuid,
    },
    /// The request failed and its transaction was committed nevertheless: a mistake of the method. What was done of it is
    /// not known.
    #[error("request {id} of {method} has no stored answer")]
    Unanswered {
        /// The method.
        method: &'static str,
        /// The id.
        id: Uuid,
    },
    /// The stored answer does not decode: it is of another type than the method's.
    #[error("failed to decode the stored answer of {method}")]
    Answer {
        /// The method.
        method: &'static str,
        /// Why.
        #[source]
        source: prost::DecodeError,
    },
    /// Postgres failed.
    #[error("failed to look up a request")]
    Postgres(#[from] postgres::Error),
}

impl ServiceError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::RequestIdReused { .. } => Kind::Invalid,
            Self::Unanswered { .. } | Self::Answer { .. } => Kind::Internal,
            Self::Postgres(error) => error.kind(),
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::RequestIdReused { .. } => ErrorReason::RequestIdReused.into(),
            Self::Unanswered { .. } | Self::Answer { .. } => ErrorReason::Internal.into(),
            Self::Postgres(error) => error.reason(),
        }
    }
}

/// Does `work` unless the request was done before; then its stored answer is the answer. `work` must do its writes in
/// `transaction`: effect and answer are kept together or not at all. A failed request is not remembered, so it may be
/// asked again; its error must end the transaction.
pub async fn once<R, E>(
    transaction: &Transaction,
    request: &Request<'_>,
    work: impl Future<Output = Result<R, E>>,
) -> Result<R, E>
where
    R: Message + Default,
    E: From<Error>,
{
    let Request { method, caller, id, fingerprint } = request;
    let entered =
        transaction.execute(ENTER, &[method, caller, id, fingerprint]).await.map_err(Error::from)?;
    if entered == 0 {
        return Ok(stored(transaction, request).await?);
    }
    let answer = work.await?;
    let encoded = answer.encode_to_vec();
    transaction.execute(ANSWER, &[method, caller, id, &encoded]).await.map_err(Error::from)?;
    Ok(answer)
}

/// Forgets answers older than `retention`, some at a time; answers how many. The retention must be longer than any
/// caller goes on trying.
pub async fn forget(postgres: &Postgres, retention: Duration) -> Result<u64, postgres::Error> {
    postgres.execute("forget requests", FORGET, &[&retention.as_secs_f64(), &FORGET_MAX]).await
}

/// Forgets answers older than [`RETENTION`], until `shutdown`. Any number of processes may do so at once.
pub async fn keep_small(postgres: Postgres, shutdown: CancellationToken) {
    let mut rounds = tokio::time::interval(FORGET_EVERY);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = rounds.tick() => {}
        }
        // One call removes less than a busy hour writes, so as many as it takes.
        loop {
            match forget(&postgres, RETENTION).await {
                Ok(forgotten) if forgotten < FORGET_MAX.unsigned_abs() => break,
                Ok(_) if shutdown.is_cancelled() => return,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "failed to forget old answers, trying again later");
                    break;
                }
            }
        }
    }
}

async fn stored<R: Message + Default>(transaction: &Transaction, request: &Request<'_>) -> Result<R, Error> {
    let row = transaction.query_one(FIND, &[&request.method, &request.caller, &request.id]).await?;
    if column::<Uuid>(&row, "fingerprint")? != request.fingerprint {
        return Err(Error::RequestIdReused { id: request.id });
    }
    let method = request.method;
    let response =
        column::<Option<&[u8]>>(&row, "response")?.ok_or(Error::Unanswered { method, id: request.id })?;
    R::decode(response).map_err(|source| Error::Answer { method, source })
}
