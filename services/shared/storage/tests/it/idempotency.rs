//! Requests that come more than once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onsale_kit::error::{Kind, ServiceError as _};
use onsale_storage::idempotency::{self, Error, Request};
use onsale_storage::postgres::Postgres;
use onsale_types::RequestId;

use crate::events::Noted;
use crate::support::sandbox;

/// Does the request `number`, counting in `runs`; the answer is its double.
async fn double(
    postgres: &Postgres,
    runs: &AtomicU32,
    caller: &str,
    id: RequestId,
    number: i64,
) -> Result<i64, Error> {
    let request = &Request::new("Double", caller, id, &Noted { number });
    let answer = postgres
        .transaction("double", |tx| async move {
            let work = async {
                runs.fetch_add(1, Ordering::Relaxed);
                tx.execute("SELECT pg_sleep(0.05)", &[]).await?;
                Ok::<_, Error>(Noted { number: number * 2 })
            };
            idempotency::once(&tx, request, work).await
        })
        .await?;
    Ok(answer.number)
}

#[tokio::test]
async fn the_same_request_is_done_once_and_answered_each_time() {
    let (_database, postgres) = sandbox().await;
    let (runs, id) = (AtomicU32::new(0), RequestId::generate());
    let ask = || double(&postgres, &runs, "me", id, 21);
    // At once, and again later.
    let (one, two, three) = tokio::join!(ask(), ask(), ask());
    for answer in [one, two, three, ask().await] {
        assert_eq!(answer.unwrap(), 42);
    }
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn the_same_id_with_another_body_is_the_callers_mistake() {
    let (_database, postgres) = sandbox().await;
    let (runs, id) = (AtomicU32::new(0), RequestId::generate());
    double(&postgres, &runs, "me", id, 1).await.unwrap();
    let error = double(&postgres, &runs, "me", id, 2).await.unwrap_err();
    assert!(matches!(error, Error::RequestIdReused { .. }), "{error:?}");
    assert_eq!((error.kind(), error.reason().as_str()), (Kind::Invalid, "REQUEST_ID_REUSED"));
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn one_callers_id_does_not_answer_another() {
    let (_database, postgres) = sandbox().await;
    let (runs, id) = (AtomicU32::new(0), RequestId::generate());
    assert_eq!(double(&postgres, &runs, "me", id, 1).await.unwrap(), 2);
    assert_eq!(double(&postgres, &runs, "you", id, 5).await.unwrap(), 10);
}

#[tokio::test]
async fn a_failed_request_is_not_remembered() {
    let (_database, postgres) = sandbox().await;
    let (runs, id) = (AtomicU32::new(0), RequestId::generate());
    let request = &Request::new("Double", "me", id, &Noted { number: 1 });
    let failed = postgres
        .transaction("fails", |tx| async move {
            let work = async { Err::<Noted, _>(Error::RequestIdReused { id: id.as_uuid() }) };
            idempotency::once(&tx, request, work).await
        })
        .await;
    assert!(failed.is_err());
    assert_eq!(double(&postgres, &runs, "me", id, 1).await.unwrap(), 2);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn old_answers_are_forgotten() {
    let (_database, postgres) = sandbox().await;
    let (runs, id) = (AtomicU32::new(0), RequestId::generate());
    double(&postgres, &runs, "me", id, 1).await.unwrap();
    assert_eq!(idempotency::forget(&postgres, Duration::from_secs(60)).await.unwrap(), 0);
    assert_eq!(idempotency::forget(&postgres, Duration::ZERO).await.unwrap(), 1);
    double(&postgres, &runs, "me", id, 1).await.unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}
