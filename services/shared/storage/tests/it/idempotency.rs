//! Idempotent requests and their stored answers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onsale_kit::error::{Kind, ServiceError as _};
use onsale_kit::tasks::Tasks;
use onsale_storage::idempotency::{self, Answer, Error, Method};
use onsale_storage::postgres::{Postgres, column};
use onsale_testkit::wait_until;
use onsale_types::RequestId;
use prost::Message as _;
use uuid::Uuid;

use crate::events::NumberAdded;
use crate::support::sandbox;

/// A method whose result is a number and whose response is a message.
const DOUBLE: Method<i64> = Method::new("Double", |number| NumberAdded { number: *number }.encode_to_vec());

/// Runs a request that doubles `number`, and counts the runs in `runs`.
async fn double(
    postgres: &Postgres,
    runs: &AtomicU32,
    caller: &str,
    id: RequestId,
    number: i64,
) -> Result<i64, Error> {
    let request = &DOUBLE.request(caller, id, &NumberAdded { number }.encode_to_vec());
    let answer = postgres
        .transaction("double", |transaction| async move {
            let work = async {
                runs.fetch_add(1, Ordering::Relaxed);
                transaction.execute("SELECT pg_sleep(0.05)", &[]).await?;
                Ok::<_, Error>(number * 2)
            };
            request.once(&transaction, work).await
        })
        .await?;
    Ok(response(answer)?.number)
}

#[tokio::test]
async fn repeated_request_runs_once_and_is_always_answered() {
    let (_database, postgres) = sandbox().await;
    let (runs, id) = (AtomicU32::new(0), RequestId::generate());
    let ask = || double(&postgres, &runs, "me", id, 21);
    // Concurrently, then once more.
    let (one, two, three) = tokio::join!(ask(), ask(), ask());
    for answer in [one, two, three, ask().await] {
        assert_eq!(answer.unwrap(), 42);
    }
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn reused_id_with_another_body_is_invalid() {
    let (_database, postgres) = sandbox().await;
    let (runs, id) = (AtomicU32::new(0), RequestId::generate());
    double(&postgres, &runs, "me", id, 1).await.unwrap();
    let error = double(&postgres, &runs, "me", id, 2).await.unwrap_err();
    assert!(matches!(error, Error::RequestIdReused { .. }), "{error:?}");
    assert_eq!((error.kind(), error.reason().as_str()), (Kind::Invalid, "REQUEST_ID_REUSED"));
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn ids_are_scoped_by_caller() {
    let (_database, postgres) = sandbox().await;
    let (runs, id) = (AtomicU32::new(0), RequestId::generate());
    assert_eq!(double(&postgres, &runs, "me", id, 1).await.unwrap(), 2);
    assert_eq!(double(&postgres, &runs, "you", id, 5).await.unwrap(), 10);
}

#[tokio::test]
async fn failed_request_is_not_stored() {
    let (_database, postgres) = sandbox().await;
    let (runs, id) = (AtomicU32::new(0), RequestId::generate());
    let request = &DOUBLE.request("me", id, &NumberAdded { number: 1 }.encode_to_vec());
    let failed = postgres
        .transaction("fails", |transaction| async move {
            let work = async { Err::<i64, _>(Error::RequestIdReused { id: id.as_uuid() }) };
            request.once(&transaction, work).await
        })
        .await;
    assert!(failed.is_err());
    assert_eq!(double(&postgres, &runs, "me", id, 1).await.unwrap(), 2);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn committed_failure_leaves_an_unanswered_request() {
    let (_database, postgres) = sandbox().await;
    let id = RequestId::generate();
    let request = &DOUBLE.request("me", id, &NumberAdded { number: 1 }.encode_to_vec());
    postgres
        .transaction("swallows", |transaction| async move {
            let work = async { Err::<i64, _>(Error::RequestIdReused { id: id.as_uuid() }) };
            assert!(request.once(&transaction, work).await.is_err());
            Ok::<_, Error>(())
        })
        .await
        .unwrap();
    let again = double(&postgres, &AtomicU32::new(0), "me", id, 1).await;
    assert!(matches!(again, Err(Error::Unanswered { .. })), "{again:?}");
}

#[tokio::test]
async fn old_answers_are_deleted() {
    let (_database, postgres) = sandbox().await;
    let (runs, id) = (AtomicU32::new(0), RequestId::generate());
    double(&postgres, &runs, "me", id, 1).await.unwrap();
    assert_eq!(idempotency::delete_old(&postgres, Duration::from_secs(60)).await.unwrap(), 0);
    assert_eq!(idempotency::delete_old(&postgres, Duration::ZERO).await.unwrap(), 1);
    double(&postgres, &runs, "me", id, 1).await.unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn cleanup_deletes_all_old_answers_and_no_young_one() {
    let (_database, postgres) = sandbox().await;
    // More old rows than one call deletes, and some young ones.
    let fill = "INSERT INTO idempotency (method, caller, request_id, fingerprint, response, created_at)
        SELECT 'Double', 'me', gen_random_uuid(), gen_random_uuid(), '', now() - make_interval(secs => $1)
        FROM generate_series(1, $2)";
    let retention = idempotency::RETENTION.as_secs_f64();
    postgres.execute("fill", fill, &[&(retention + 60.0), &25_000_i32]).await.unwrap();
    postgres.execute("fill", fill, &[&(retention - 600.0), &3_i32]).await.unwrap();
    let kept = async || {
        let row = postgres.query_one("kept", "SELECT count(*) AS count FROM idempotency", &[]).await.unwrap();
        column::<i64>(&row, "count").unwrap()
    };
    let tasks = Tasks::new();
    for _ in 0..2 {
        idempotency::start_cleanup(postgres.clone(), &tasks);
    }
    wait_until("the old answers are deleted", Duration::from_secs(20), async || kept().await <= 3).await;
    assert!(tasks.shutdown(Duration::from_secs(20)).await.is_empty());
    assert_eq!(kept().await, 3);
}

async fn double_typed(postgres: &Postgres, id: RequestId, number: i64) -> Result<Answer<i64>, Error> {
    let request = &DOUBLE.request("me", id, &NumberAdded { number }.encode_to_vec());
    postgres
        .transaction("double", |transaction| async move {
            request.once(&transaction, async { Ok::<_, Error>(number * 2) }).await
        })
        .await
}

fn response(answer: Answer<i64>) -> Result<NumberAdded, Error> {
    answer.into_response(|number| NumberAdded { number: *number }, |bytes| NumberAdded::decode(bytes))
}

#[tokio::test]
async fn typed_request_is_new_once_and_then_stored() {
    let (_database, postgres) = sandbox().await;
    let id = RequestId::generate();
    assert_eq!(double_typed(&postgres, id, 21).await.unwrap(), Answer::New(42));
    let again = double_typed(&postgres, id, 21).await.unwrap();
    assert!(matches!(again, Answer::Stored(_)), "{again:?}");
    assert_eq!(response(again).unwrap(), NumberAdded { number: 42 });
    let reused = double_typed(&postgres, id, 22).await;
    assert!(matches!(reused, Err(Error::RequestIdReused { .. })), "{reused:?}");
}

#[tokio::test]
async fn answer_in_the_form_of_earlier_versions_still_decodes() {
    let (_database, postgres) = sandbox().await;
    let id = RequestId::generate();
    let body = NumberAdded { number: 21 }.encode_to_vec();
    let fingerprint = Uuid::new_v5(&Uuid::NAMESPACE_OID, &body);
    let stored = NumberAdded { number: 42 }.encode_to_vec();
    let insert = "INSERT INTO idempotency (method, caller, request_id, fingerprint, response)
        VALUES ('Double', 'me', $1, $2, $3)";
    postgres.execute("insert", insert, &[&id.as_uuid(), &fingerprint, &stored]).await.unwrap();
    let answer = double_typed(&postgres, id, 21).await.unwrap();
    assert!(matches!(answer, Answer::Stored(_)), "{answer:?}");
    assert_eq!(response(answer).unwrap().number, 42);
}

#[tokio::test]
async fn a_stored_answer_that_does_not_decode_is_internal() {
    let (_database, postgres) = sandbox().await;
    let id = RequestId::generate();
    double_typed(&postgres, id, 1).await.unwrap();
    postgres.execute("change", "UPDATE idempotency SET response = '\\xff'", &[]).await.unwrap();
    let error = response(double_typed(&postgres, id, 1).await.unwrap()).unwrap_err();
    assert!(matches!(error, Error::Answer { method: "Double", .. }), "{error:?}");
    assert_eq!(error.kind(), Kind::Internal);
}
