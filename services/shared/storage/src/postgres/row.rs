//! The one strict way to read and write columns. A value that does not fit is an error that names its column; no value is
//! ever replaced by another.
//!
//! | value | read | written |
//! |---|---|---|
//! | an id | [`RowExt::read_id`] | `&id.as_uuid()`, [`uuids`] |
//! | a count (`u16` to `u64`, `usize`; `int2`, `int4` or `int8` column) | [`RowExt::read_count`] | `&SqlCount(count)` |
//! | a time (`timestamptz` column) | [`RowExt::read_time`] | `&SqlTime(time)` |
//! | an enum with names | [`RowExt::read_named`] | `&state.name()` |
//! | JSON | [`RowExt::read_json`] | `&Json(&value)` |
//! | anything else | [`RowExt::read`] | itself |

use std::error::Error as StdError;
use std::str::FromStr;

use bytes::BytesMut;
use onsale_types::{Id, Timestamp};
use serde::de::DeserializeOwned;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, Json, ToSql, Type, accepts, to_sql_checked};
use uuid::Uuid;

use super::{Error, column};

type Cause = Box<dyn StdError + Send + Sync>;

/// Microseconds from the epoch of Unix to the epoch of Postgres, 2000-01-01.
const POSTGRES_EPOCH_MICROS: i64 = 946_684_800_000_000;

/// Typed readers of a row. Every failure is [`Error::Column`] and maps to INTERNAL, because the service wrote the row
/// itself.
pub trait RowExt {
    /// Reads a column of a type that the driver supports; use `Option` for nullable columns.
    fn read<'a, T: FromSql<'a>>(&'a self, name: &'static str) -> Result<T, Error>;

    /// Reads an id as its typed form.
    fn read_id<I: Id>(&self, name: &'static str) -> Result<I, Error> {
        self.read(name).map(I::from_uuid)
    }

    /// Reads a typed id; `None` for NULL.
    fn read_optional_id<I: Id>(&self, name: &'static str) -> Result<Option<I>, Error> {
        Ok(self.read::<Option<Uuid>>(name)?.map(I::from_uuid))
    }

    /// Reads an array of typed ids.
    fn read_ids<I: Id>(&self, name: &'static str) -> Result<Vec<I>, Error> {
        Ok(self.read::<Vec<Uuid>>(name)?.into_iter().map(I::from_uuid).collect())
    }

    /// Reads a count; a negative one, or one too large for `C`, is an error.
    fn read_count<C: Count>(&self, name: &'static str) -> Result<C, Error> {
        self.read::<SqlCount<C>>(name).map(|count| count.0)
    }

    /// Reads a count; `None` for NULL.
    fn read_optional_count<C: Count>(&self, name: &'static str) -> Result<Option<C>, Error> {
        Ok(self.read::<Option<SqlCount<C>>>(name)?.map(|count| count.0))
    }

    /// Reads an array of counts.
    fn read_counts<C: Count>(&self, name: &'static str) -> Result<Vec<C>, Error> {
        Ok(self.read::<Vec<SqlCount<C>>>(name)?.into_iter().map(|count| count.0).collect())
    }

    /// Reads a time. Infinity is an error.
    fn read_time(&self, name: &'static str) -> Result<Timestamp, Error> {
        self.read::<SqlTime>(name).map(|time| time.0)
    }

    /// Reads a time; `None` for NULL.
    fn read_optional_time(&self, name: &'static str) -> Result<Option<Timestamp>, Error> {
        Ok(self.read::<Option<SqlTime>>(name)?.map(|time| time.0))
    }

    /// Reads a text column with the name of an enum's value (see [`onsale_types::Named`]), or another text that `T`
    /// parses, such as a currency.
    fn read_named<T: FromStr<Err: Into<Cause>>>(&self, name: &'static str) -> Result<T, Error> {
        self.read::<Parsed<T>>(name).map(|parsed| parsed.0)
    }

    /// Reads a name; `None` for NULL.
    fn read_optional_named<T: FromStr<Err: Into<Cause>>>(
        &self,
        name: &'static str,
    ) -> Result<Option<T>, Error> {
        Ok(self.read::<Option<Parsed<T>>>(name)?.map(|parsed| parsed.0))
    }

    /// Reads a `json` or `jsonb` column.
    fn read_json<T: DeserializeOwned>(&self, name: &'static str) -> Result<T, Error> {
        self.read::<Json<T>>(name).map(|json| json.0)
    }

    /// Reads a `json` or `jsonb` column; `None` for NULL.
    fn read_optional_json<T: DeserializeOwned>(&self, name: &'static str) -> Result<Option<T>, Error> {
        Ok(self.read::<Option<Json<T>>>(name)?.map(|json| json.0))
    }
}

impl RowExt for Row {
    fn read<'a, T: FromSql<'a>>(&'a self, name: &'static str) -> Result<T, Error> {
        column(self, name)
    }
}

/// Unsigned integer for counts: `u16`, `u32`, `u64` or `usize`.
pub trait Count: TryFrom<u64, Error: Into<Cause>> + TryInto<i64, Error: Into<Cause>> + Copy {}

impl Count for u16 {}
impl Count for u32 {}
impl Count for u64 {}
impl Count for usize {}

/// A count in an integer column of any width. A count that is too large for its column fails the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqlCount<C>(pub C);

impl<'a, C: Count> FromSql<'a> for SqlCount<C> {
    fn from_sql(of: &Type, raw: &'a [u8]) -> Result<Self, Cause> {
        let number = match *of {
            Type::INT2 => i64::from(i16::from_sql(of, raw)?),
            Type::INT4 => i64::from(i32::from_sql(of, raw)?),
            _ => i64::from_sql(of, raw)?,
        };
        let count = u64::try_from(number).map_err(|_negative| format!("the count {number} is negative"))?;
        C::try_from(count).map(Self).map_err(Into::into)
    }

    accepts!(INT2, INT4, INT8);
}

impl<C: Count + std::fmt::Debug> ToSql for SqlCount<C> {
    fn to_sql(&self, of: &Type, out: &mut BytesMut) -> Result<IsNull, Cause> {
        let number: i64 = self.0.try_into().map_err(Into::into)?;
        match *of {
            Type::INT2 => i16::try_from(number)?.to_sql(of, out),
            Type::INT4 => i32::try_from(number)?.to_sql(of, out),
            _ => number.to_sql(of, out),
        }
    }

    accepts!(INT2, INT4, INT8);
    to_sql_checked!();
}

/// A time in a `timestamptz` column. A time that Postgres cannot store fails the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqlTime(pub Timestamp);

impl<'a> FromSql<'a> for SqlTime {
    fn from_sql(_of: &Type, raw: &'a [u8]) -> Result<Self, Cause> {
        // Postgres encodes infinity as `i64::MAX`, for which the addition overflows, and minus infinity as `i64::MIN`.
        let of_postgres = i64::from_be_bytes(raw.try_into()?);
        let micros = of_postgres.checked_add(POSTGRES_EPOCH_MICROS).filter(|_| of_postgres != i64::MIN);
        Ok(Self(Timestamp::from_micros(micros.ok_or("the time is infinite or too late")?)))
    }

    accepts!(TIMESTAMPTZ);
}

impl ToSql for SqlTime {
    fn to_sql(&self, _of: &Type, out: &mut BytesMut) -> Result<IsNull, Cause> {
        let micros = self.0.as_micros().checked_sub(POSTGRES_EPOCH_MICROS).filter(|it| *it != i64::MIN);
        // Postgres refuses times before 4713 BC itself.
        out.extend_from_slice(&micros.ok_or("the time is too early")?.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

/// Returns the ids as an array parameter.
pub fn uuids<'a, I: Id + 'a>(ids: impl IntoIterator<Item = &'a I>) -> Vec<Uuid> {
    ids.into_iter().map(I::as_uuid).collect()
}

struct Parsed<T>(T);

/// A text that the type's parser refuses.
#[derive(Debug, thiserror::Error)]
#[error("failed to parse {text:?}")]
struct ParseError {
    text: String,
    #[source]
    source: Cause,
}

impl<'a, T: FromStr<Err: Into<Cause>>> FromSql<'a> for Parsed<T> {
    fn from_sql(of: &Type, raw: &'a [u8]) -> Result<Self, Cause> {
        let text = <&str>::from_sql(of, raw)?;
        match text.parse() {
            Ok(value) => Ok(Self(value)),
            Err(source) => Err(ParseError { text: text.to_owned(), source: source.into() }.into()),
        }
    }

    fn accepts(of: &Type) -> bool {
        <&str as FromSql<'_>>::accepts(of)
    }
}
