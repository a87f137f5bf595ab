//! Answers to requests that were already done, kept in the transaction that did them: asking twice equals asking once.
//!
//! The answer is stored as the bytes of the method's response. A [`Method`] knows how to encode them, so that the use case
//! needs no wire format:
//!
//! ```
//! # use onsale_storage::idempotency::{Answer, Error, Method, Request};
//! # use onsale_storage::postgres::{Postgres, Transaction};
//! # use onsale_types::RequestId;
//! # struct Claim;
//! # fn encode_response(claim: &Claim) -> Vec<u8> { Vec::new() }
//! # async fn release(transaction: &Transaction) -> Result<Claim, Error> { Ok(Claim) }
//! // convert: one constant per method.
//! const RELEASE_CLAIM: Method<Claim> = Method::new("ReleaseClaim", encode_response);
//! // grpc: `body` is the encoded request; its fingerprint tells a repeated request from a reused id.
//! # fn grpc<'a>(caller: &'a str, request_id: RequestId, body: &[u8]) -> Request<'a, Claim> {
//! RELEASE_CLAIM.request(caller, request_id, body)
//! # }
//! // app: names the domain type only.
//! async fn release_claim(postgres: &Postgres, request: &Request<'_, Claim>) -> Result<Answer<Claim>, Error> {
//!     postgres
//!         .transaction("release claim", |transaction| async move {
//!             request.once(&transaction, release(&transaction)).await
//!         })
//!         .await
//! }
//! ```

use std::error::Error as StdError;
use std::future::Future;
use std::time::Duration;

use onsale_kit::error::{Kind, Reason, ServiceError};
use onsale_kit::tasks::Tasks;
use onsale_kit::worker::{Round, Worker};
use onsale_proto::r#type::v1::ErrorReason;
use onsale_types::RequestId;
use prost::Message;
use uuid::Uuid;

use crate::postgres::row::RowExt as _;
use crate::postgres::{self, Postgres, Transaction};

// Waits for a transaction that does the same request right now, and then finds it done.
const INSERT: &str = "INSERT INTO idempotency (method, caller, request_id, fingerprint)
    VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
const FIND: &str = "SELECT fingerprint, response FROM idempotency
    WHERE method = $1 AND caller = $2 AND request_id = $3";
const STORE: &str = "UPDATE idempotency SET response = $4
    WHERE method = $1 AND caller = $2 AND request_id = $3";
const DELETE_OLD: &str = "DELETE FROM idempotency WHERE ctid IN (
        SELECT ctid FROM idempotency WHERE created_at < now() - make_interval(secs => $1) LIMIT $2
        FOR UPDATE SKIP LOCKED)";

/// Maximum number of answers that one call of [`delete_old`] deletes.
const DELETE_MAX: i64 = 10_000;
/// Interval of the worker that deletes old answers.
const DELETE_EVERY: Duration = Duration::from_secs(60);
/// How long answers are kept: far longer than any caller goes on trying.
pub const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// An idempotent method whose result in the domain is an `R`.
#[derive(Clone, Copy, Debug)]
pub struct Method<R> {
    name: &'static str,
    encode: fn(&R) -> Vec<u8>,
}

impl<R> Method<R> {
    /// Describes the method `name`, whose response to a result is encoded by `encode`. Both are stored: a change of the name or
    /// of the encoding must still match, and decode, the answers of the last [`RETENTION`].
    #[must_use]
    pub const fn new(name: &'static str, encode: fn(&R) -> Vec<u8>) -> Self {
        Self { name, encode }
    }

    /// Returns the request of `caller` with the encoded `body`. One caller's id never answers another's request. The body must
    /// have no map fields: their encoding has no order, so the same body would look like another.
    #[must_use]
    pub fn request<'a>(&self, caller: &'a str, id: RequestId, body: &[u8]) -> Request<'a, R> {
        let fingerprint = Uuid::new_v5(&Uuid::NAMESPACE_OID, body);
        Request { method: self.name, caller, id: id.as_uuid(), fingerprint, encode: self.encode }
    }
}

/// A request that may come more than once.
#[derive(Clone, Debug)]
pub struct Request<'a, R = Protobuf> {
    method: &'static str,
    caller: &'a str,
    id: Uuid,
    fingerprint: Uuid,
    encode: fn(&R) -> Vec<u8>,
}

/// Marks a request whose answer is a protobuf message, for [`once`].
#[derive(Clone, Copy, Debug)]
pub enum Protobuf {}

impl<'a> Request<'a> {
    /// The request `body` of `caller` to `method`. One caller's id never answers another's request. The body must have
    /// no map fields: their encoding has no order, so the same body would look like another.
    #[must_use]
    pub fn new(method: &'static str, caller: &'a str, id: RequestId, body: &impl Message) -> Self {
        Method::new(method, |_: &Protobuf| Vec::new()).request(caller, id, &body.encode_to_vec())
    }
}

impl<R> Request<'_, R> {
    /// Does `work` unless the request was done before; then the answer is the stored one. `work` must do its writes in
    /// `transaction`: effect and answer are stored together or not at all. A failed request is not stored, so it may be
    /// repeated; its error must end the transaction.
    pub async fn once<E: From<Error>>(
        &self,
        transaction: &Transaction,
        work: impl Future<Output = Result<R, E>>,
    ) -> Result<Answer<R>, E> {
        if let Some(stored) = self.enter(transaction).await? {
            return Ok(Answer::Stored(stored));
        }
        let result = work.await?;
        self.store(transaction, &(self.encode)(&result)).await?;
        Ok(Answer::New(result))
    }

    /// Enters the request, unless it was done before; then returns its stored answer.
    async fn enter(&self, transaction: &Transaction) -> Result<Option<StoredAnswer>, Error> {
        let Self { method, caller, id, fingerprint, .. } = self;
        if transaction.execute(INSERT, &[method, caller, id, fingerprint]).await? > 0 {
            return Ok(None);
        }
        let row = transaction.query_one(FIND, &[method, caller, id]).await?;
        if row.read::<Uuid>("fingerprint")? != *fingerprint {
            return Err(Error::RequestIdReused { id: *id });
        }
        let bytes = row.read::<Option<Vec<u8>>>("response")?;
        let bytes = bytes.ok_or(Error::Unanswered { method, id: *id })?;
        Ok(Some(StoredAnswer { method, bytes }))
    }

    async fn store(&self, transaction: &Transaction, response: &[u8]) -> Result<(), Error> {
        transaction.execute(STORE, &[&self.method, &self.caller, &self.id, &response]).await?;
        Ok(())
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<R> {
    /// The request was done now, with this result.
    New(R),
    /// The request was done before.
    Stored(StoredAnswer),
}

/// The encoded response of a request that was done before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAnswer {
    method: &'static str,
    bytes: Vec<u8>,
}

impl<R> Answer<R> {
    /// Returns the response: `respond` makes it of a new result, `decode` of the stored bytes.
    pub fn into_response<M, E: Into<Box<dyn StdError + Send + Sync>>>(
        self,
        respond: impl FnOnce(&R) -> M,
        decode: impl FnOnce(&[u8]) -> Result<M, E>,
    ) -> Result<M, Error> {
        match self {
            Self::New(result) => Ok(respond(&result)),
            Self::Stored(stored) => stored.decode(decode),
        }
    }
}

impl StoredAnswer {
    /// Decodes the response.
    pub fn decode<M, E: Into<Box<dyn StdError + Send + Sync>>>(
        &self,
        decode: impl FnOnce(&[u8]) -> Result<M, E>,
    ) -> Result<M, Error> {
        decode(&self.bytes).map_err(|source| Error::Answer { method: self.method, source: source.into() })
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
        source: Box<dyn StdError + Send + Sync>,
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
    if let Some(stored) = request.enter(transaction).await? {
        return Ok(stored.decode(|bytes| R::decode(bytes))?);
    }
    let answer = work.await?;
    request.store(transaction, &answer.encode_to_vec()).await?;
    Ok(answer)
}

/// Deletes at most 10,000 answers older than `retention` and returns their number. The retention must be longer than any
/// caller retries.
pub async fn delete_old(postgres: &Postgres, retention: Duration) -> Result<u64, postgres::Error> {
    postgres.execute("forget requests", DELETE_OLD, &[&retention.as_secs_f64(), &DELETE_MAX]).await
}

/// Starts a worker that deletes answers older than [`RETENTION`]. Any number of processes may run one.
pub fn start_cleanup(postgres: Postgres, tasks: &Tasks) {
    Worker::every("forget requests", DELETE_EVERY).start(tasks, move || {
        let postgres = postgres.clone();
        async move {
            let deleted = delete_old(&postgres, RETENTION).await?;
            // A busy hour writes more than one call deletes.
            let is_full = deleted >= DELETE_MAX.unsigned_abs();
            Ok::<_, postgres::Error>(if is_full { Round::More } else { Round::Idle })
        }
    });
}
