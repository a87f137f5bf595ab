//! Idempotent requests. The answer is stored in the transaction of the effect, so a repeated request returns the stored
//! answer and has no second effect.
//!
//! The answer is stored as the bytes of the method's response. A [`Method`] knows how to encode them, so that the use
//! case needs no wire format:
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
//! // grpc: `body` is the encoded request; its fingerprint distinguishes a repeated request from a reused id.
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
use uuid::Uuid;

use crate::postgres::row::RowExt as _;
use crate::postgres::{self, Postgres, Transaction};

// Waits for a concurrent transaction with the same request. If that one commits, this insert adds no row.
const INSERT: &str = "INSERT INTO idempotency (method, caller, request_id, fingerprint)
    VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
const FIND: &str = "SELECT fingerprint, response FROM idempotency
    WHERE method = $1 AND caller = $2 AND request_id = $3";
const STORE: &str = "UPDATE idempotency SET response = $4
    WHERE method = $1 AND caller = $2 AND request_id = $3";
const DELETE_OLD: &str = "DELETE FROM idempotency WHERE ctid IN (
        SELECT ctid FROM idempotency WHERE created_at < now() - make_interval(secs => $1) LIMIT $2
        FOR UPDATE SKIP LOCKED)";

/// Maximum number of rows that one call of [`delete_old`] deletes.
const DELETE_MAX: i64 = 10_000;
/// Interval between two deletions of old answers.
const DELETE_EVERY: Duration = Duration::from_secs(60);
/// Age at which stored answers are deleted (7 days). It must exceed the time for which any caller retries.
pub const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// An idempotent method whose domain result is an `R`.
#[derive(Clone, Copy, Debug)]
pub struct Method<R> {
    name: &'static str,
    encode: fn(&R) -> Vec<u8>,
}

impl<R> Method<R> {
    /// Creates a method. `encode` encodes its response. The name and the encoding are stored, so a change of either
    /// must still match and decode the answers of the last [`RETENTION`].
    #[must_use]
    pub const fn new(name: &'static str, encode: fn(&R) -> Vec<u8>) -> Self {
        Self { name, encode }
    }

    /// Creates a request of `caller` with the encoded `body`. Ids are scoped by caller and method. The body must have
    /// no map fields: their encoding is unordered, so equal bodies could get different fingerprints.
    #[must_use]
    pub fn request<'a>(&self, caller: &'a str, id: RequestId, body: &[u8]) -> Request<'a, R> {
        let fingerprint = Uuid::new_v5(&Uuid::NAMESPACE_OID, body);
        Request { method: self.name, caller, id: id.as_uuid(), fingerprint, encode: self.encode }
    }
}

/// One request of a caller, which may arrive more than once.
#[derive(Clone, Debug)]
pub struct Request<'a, R> {
    method: &'static str,
    caller: &'a str,
    id: Uuid,
    fingerprint: Uuid,
    encode: fn(&R) -> Vec<u8>,
}

impl<R> Request<'_, R> {
    /// Runs `work` and stores its answer, or returns the stored answer of an earlier run. `work` must write in
    /// `transaction`, so that effect and answer are stored together or not at all. If `work` fails, its error must end
    /// the transaction; nothing is stored then, and the request may be repeated.
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

    /// Inserts the request, or returns its stored answer if it was answered before.
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

/// The answer of [`Request::once`], new or stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<R> {
    /// Result of work that ran in this call.
    New(R),
    /// Answer that an earlier call stored.
    Stored(StoredAnswer),
}

/// Encoded response that an earlier call stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAnswer {
    method: &'static str,
    bytes: Vec<u8>,
}

impl<R> Answer<R> {
    /// Returns the response: `respond` builds it from a new result, `decode` from stored bytes.
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
    /// Decodes the stored bytes with the method's decoder.
    pub fn decode<M, E: Into<Box<dyn StdError + Send + Sync>>>(
        &self,
        decode: impl FnOnce(&[u8]) -> Result<M, E>,
    ) -> Result<M, Error> {
        decode(&self.bytes).map_err(|source| Error::Answer { method: self.method, source: source.into() })
    }
}

/// A request that could neither be inserted nor answered from the table.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller used the id before, with another body.
    #[error("request id {id} was used before with another body")]
    RequestIdReused {
        /// Id of the request, chosen by the caller.
        id: Uuid,
    },
    /// The request has a row without an answer: a method committed its transaction although its work had failed. The
    /// effect of that run is unknown.
    #[error("request {id} of {method} has no stored answer")]
    Unanswered {
        /// Name of the method.
        method: &'static str,
        /// Id of the request, chosen by the caller.
        id: Uuid,
    },
    /// The stored answer does not decode as the method's response type.
    #[error("failed to decode the stored answer of {method}")]
    Answer {
        /// Name of the method.
        method: &'static str,
        /// Error of the response decoder.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A query of the table failed.
    #[error("failed to read or store an idempotent request")]
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

/// Deletes at most 10,000 answers older than `retention` and returns how many it deleted. The retention must exceed the
/// time for which any caller retries.
pub async fn delete_old(postgres: &Postgres, retention: Duration) -> Result<u64, postgres::Error> {
    postgres.execute("forget requests", DELETE_OLD, &[&retention.as_secs_f64(), &DELETE_MAX]).await
}

/// Starts the worker that deletes answers older than [`RETENTION`]. Any number of processes may run one.
pub fn start_cleanup(postgres: Postgres, tasks: &Tasks) {
    Worker::every("forget requests", DELETE_EVERY).start(tasks, move || {
        let postgres = postgres.clone();
        async move {
            let deleted = delete_old(&postgres, RETENTION).await?;
            // A busy hour writes more answers than one call deletes.
            let is_full = deleted >= DELETE_MAX.unsigned_abs();
            Ok::<_, postgres::Error>(if is_full { Round::More } else { Round::Idle })
        }
    });
}
