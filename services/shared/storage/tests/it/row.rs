//! Readers and writers of columns.

use std::error::Error as _;

use onsale_kit::error::{Kind, ServiceError as _};
use onsale_storage::postgres::row::{RowExt as _, SqlCount, SqlTime, uuids};
use onsale_storage::postgres::{Error, Json, Parameters, Postgres, Row};
use onsale_types::{ClaimId, Currency, Named as _, Timestamp};

use crate::support::sandbox;

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
enum State {
    Waiting,
    AllDone,
}

async fn row(postgres: &Postgres, sql: &'static str, parameters: Parameters<'_>) -> Row {
    postgres.query_one("row", sql, parameters).await.unwrap()
}

/// Asserts that the error names `column`, is INTERNAL, and has `cause` in its chain.
fn assert_unreadable<T: std::fmt::Debug>(result: Result<T, Error>, column: &str, cause: &str) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Column { name, .. } if name == column), "{error:?}");
    assert_eq!(error.kind(), Kind::Internal);
    let mut causes = String::new();
    let mut next = error.source();
    while let Some(source) = next {
        causes.push_str(&source.to_string());
        next = source.source();
    }
    assert!(causes.contains(cause), "{causes}");
}

#[tokio::test]
async fn written_values_are_read_back() {
    let (_database, postgres) = sandbox().await;
    let ids = [ClaimId::generate(), ClaimId::generate()];
    let time = Timestamp::from_micros(-1);
    let (small, large) = (i16::MAX.unsigned_abs(), i64::MAX.unsigned_abs());
    let sql = "SELECT $1::uuid AS id, $2::uuid[] AS ids, $3::int2 AS small, $4::int4 AS count, $5::int8 AS large,
            $6::int4[] AS counts, $7::timestamptz AS time, $8::text AS state, $9::jsonb AS json, 'EUR' AS currency";
    let row = row(
        &postgres,
        sql,
        &[
            &ids[0].as_uuid(),
            &uuids(&ids),
            &SqlCount(small),
            &SqlCount(7_usize),
            &SqlCount(large),
            &vec![SqlCount(0_u32), SqlCount(9)],
            &SqlTime(time),
            &State::AllDone.name(),
            &Json(vec!["a"]),
        ],
    )
    .await;
    assert_eq!(row.read_id::<ClaimId>("id").unwrap(), ids[0]);
    assert_eq!(row.read_ids::<ClaimId>("ids").unwrap(), ids);
    assert_eq!(row.read_count::<u16>("small").unwrap(), small);
    assert_eq!(row.read_count::<usize>("count").unwrap(), 7);
    assert_eq!(row.read_count::<u64>("large").unwrap(), large);
    assert_eq!(row.read_counts::<u32>("counts").unwrap(), [0, 9]);
    assert_eq!(row.read_time("time").unwrap(), time);
    assert_eq!(row.read_named::<State>("state").unwrap(), State::AllDone);
    assert_eq!(row.read_named::<Currency>("currency").unwrap().code(), "EUR");
    assert_eq!(row.read_json::<Vec<String>>("json").unwrap(), ["a"]);
    assert_eq!(row.read_optional_count::<u32>("count").unwrap(), Some(7));
}

#[tokio::test]
async fn null_is_none_for_optional_readers_and_an_error_for_others() {
    let (_database, postgres) = sandbox().await;
    let nothing: Option<SqlTime> = None;
    let sql = "SELECT NULL::uuid AS id, NULL::int4 AS count, $1::timestamptz AS time, NULL::text AS state,
            NULL::jsonb AS json";
    let row = row(&postgres, sql, &[&nothing]).await;
    assert_eq!(row.read_optional_id::<ClaimId>("id").unwrap(), None);
    assert_eq!(row.read_optional_count::<u32>("count").unwrap(), None);
    assert_eq!(row.read_optional_time("time").unwrap(), None);
    assert_eq!(row.read_optional_named::<State>("state").unwrap(), None);
    assert_eq!(row.read_optional_json::<Vec<String>>("json").unwrap(), None);
    assert_unreadable(row.read_id::<ClaimId>("id"), "id", "NULL");
    assert_unreadable(row.read_count::<u32>("count"), "count", "NULL");
    assert_unreadable(row.read_time("time"), "time", "NULL");
    assert_unreadable(row.read_named::<State>("state"), "state", "NULL");
    assert_unreadable(row.read_json::<Vec<String>>("json"), "json", "NULL");
}

#[tokio::test]
async fn unfit_values_are_errors_that_name_column_and_cause() {
    let (_database, postgres) = sandbox().await;
    let sql = "SELECT -1 AS negative, 4294967296::int8 AS large, 'infinity'::timestamptz AS late,
            '-infinity'::timestamptz AS early, 'all_done' AS state, '{}'::jsonb AS json, 1.5::float8 AS float";
    let row = row(&postgres, sql, &[]).await;
    assert_unreadable(row.read_count::<u32>("negative"), "negative", "the count -1 is negative");
    assert_unreadable(row.read_count::<u32>("large"), "large", "out of range");
    assert_unreadable(row.read_count::<u32>("float"), "float", "float8");
    assert_unreadable(row.read_time("late"), "late", "infinite");
    assert_unreadable(row.read_time("early"), "early", "infinite");
    assert_unreadable(row.read_named::<State>("state"), "state", "\"all_done\"");
    assert_unreadable(row.read_json::<Vec<String>>("json"), "json", "sequence");
    assert_unreadable(row.read_id::<ClaimId>("missing"), "missing", "missing");
}

#[tokio::test]
async fn values_too_large_for_their_column_fail_the_statement() {
    let (_database, postgres) = sandbox().await;
    let write = async |sql, value: &(dyn onsale_storage::postgres::ToSql + Sync)| {
        let error = postgres.query_one("write", sql, &[value]).await.unwrap_err();
        assert!(matches!(error, Error::Query { label: "write", .. }), "{error:?}");
        assert_eq!(error.kind(), Kind::Internal);
        assert!(error.source().is_some());
    };
    write("SELECT $1::int4", &SqlCount(u32::MAX)).await;
    write("SELECT $1::int8", &SqlCount(u64::MAX)).await;
    write("SELECT $1::int4[]", &vec![SqlCount(u32::MAX)]).await;
    write("SELECT $1::timestamptz", &SqlTime(Timestamp::from_micros(i64::MIN))).await;
    // Postgres would read this as `-infinity`.
    let infinite = i64::MIN + 946_684_800_000_000;
    write("SELECT $1::timestamptz", &SqlTime(Timestamp::from_micros(infinite))).await;
    // Postgres refuses times before 4713 BC.
    write("SELECT $1::timestamptz", &SqlTime(Timestamp::from_micros(infinite + 1))).await;
}
