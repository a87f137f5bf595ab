//! Rows of a `COPY … FROM STDIN (FORMAT binary)`, encoded in memory. The driver's own writer sends 4 KiB at a time and
//! wakes both Postgres and itself for each; here the rows of a batch go out in one write.

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio_postgres::types::{IsNull, Type};

use super::{Error, Parameters};

/// Header of the format: signature, no flags, no extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Trailer of the format, in place of a row's column count.
const END: i16 = -1;
/// Length that stands for NULL.
const NULL: i32 = -1;
/// Estimated size of a row, for the first allocation.
const ROW_BYTES: usize = 64;
/// Maximum size of a message. Driver and server each hold one in memory.
const MESSAGE_BYTES_MAX: usize = 256 * 1024;

/// Encoded rows for one COPY.
#[derive(Debug)]
pub struct CopyRows<'a> {
    types: &'a [Type],
    buffer: BytesMut,
}

impl<'a> CopyRows<'a> {
    /// Creates an empty list of rows with columns of `types`, with room for about `count` rows.
    #[must_use]
    pub fn of(types: &'a [Type], count: usize) -> Self {
        let mut buffer = BytesMut::with_capacity(count.saturating_mul(ROW_BYTES));
        buffer.put_slice(HEADER);
        Self { types, buffer }
    }

    /// Appends a row with one value per column. After an error, the rows must not be sent.
    pub fn push(&mut self, row: Parameters<'_>) -> Result<(), Error> {
        if row.len() != self.types.len() {
            let source = format!("{} values for {} columns", row.len(), self.types.len());
            return Err(Error::Row { column: row.len(), source: source.into() });
        }
        let columns = i16::try_from(row.len())
            .map_err(|source| Error::Row { column: row.len(), source: source.into() })?;
        self.buffer.put_i16(columns);
        for (column, (value, of)) in row.iter().zip(self.types).enumerate() {
            let failed = |source| Error::Row { column, source };
            let start = self.buffer.len();
            self.buffer.put_i32(NULL);
            if let IsNull::No = value.to_sql_checked(of, &mut self.buffer).map_err(failed)? {
                let encoded = self.buffer.get_mut(start..).unwrap_or_default();
                let (length, value) = encoded.split_at_mut(size_of::<i32>());
                let bytes = i32::try_from(value.len()).map_err(|source| failed(source.into()))?;
                length.copy_from_slice(&bytes.to_be_bytes());
            }
        }
        Ok(())
    }

    /// Splits the rows into messages of at most 256 KiB.
    pub(super) fn into_messages(mut self) -> impl Iterator<Item = Bytes> {
        self.buffer.put_i16(END);
        let mut rest = self.buffer.freeze();
        std::iter::from_fn(move || {
            let message = rest.split_to(rest.len().min(MESSAGE_BYTES_MAX));
            (!message.is_empty()).then_some(message)
        })
    }
}
