//! The server's binary COPY format: a header, rows, a trailer.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;

use super::columns::Column;
use super::values::{self, Builder};
use crate::error::{PgError, Result};

const HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0";
/// The header, flags, and the length of an extension.
const HEAD_BYTES: usize = HEAD.len() + 8;
/// In place of a row's number of fields.
const END: i16 = -1;

/// Rows of one COPY, to record batches.
pub(super) struct Decoder<'a> {
    columns: &'a [Column],
    schema: SchemaRef,
    /// The data's name in messages.
    place: &'a str,
    builders: Vec<Box<dyn Builder>>,
    /// The beginning of an incomplete row.
    rest: Vec<u8>,
    state: State,
    rows: usize,
    rows_taken: u64,
    bytes: usize,
}

#[derive(PartialEq, Eq)]
enum State {
    Head,
    Rows,
    Ended,
}

impl<'a> Decoder<'a> {
    pub fn new(columns: &'a [Column], schema: SchemaRef, place: &'a str) -> Decoder<'a> {
        Decoder {
            columns,
            schema,
            place,
            builders: columns.iter().map(values::builder).collect(),
            rest: Vec::new(),
            state: State::Head,
            rows: 0,
            rows_taken: 0,
            bytes: 0,
        }
    }

    /// Rows and server bytes of the next batch.
    pub fn pending(&self) -> (usize, usize) {
        (self.rows, self.bytes)
    }

    /// Takes data from the server: any part of the stream.
    pub fn push(&mut self, data: &[u8]) -> Result<()> {
        self.bytes += data.len();
        if self.rest.is_empty() {
            let taken = self.take_rows(data)?;
            self.rest.extend_from_slice(&data[taken..]);
            return Ok(());
        }
        let mut joined = std::mem::take(&mut self.rest);
        joined.extend_from_slice(data);
        let taken = self.take_rows(&joined)?;
        joined.drain(..taken);
        self.rest = joined;
        Ok(())
    }

    /// The rows so far.
    pub fn take(&mut self) -> Result<RecordBatch> {
        let columns = self.builders.iter_mut().map(|builder| builder.finish()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows_taken += self.rows as u64;
        (self.rows, self.bytes) = (0, 0);
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|error| PgError::new(format!("{}: {error}", self.place)))
    }

    /// The server has sent everything.
    pub fn end(&self) -> Result<()> {
        match self.state == State::Ended && self.rest.is_empty() {
            true => Ok(()),
            false => Err(self.broken("the rows end in their middle")),
        }
    }

    /// Complete rows at the beginning of `data`; returns their bytes.
    fn take_rows(&mut self, data: &[u8]) -> Result<usize> {
        let mut at = 0;
        if self.state == State::Head {
            let Some(length) = self.head_bytes(data)? else { return Ok(0) };
            at = length;
            self.state = State::Rows;
        }
        while let Some(count) = integer::<2>(data, at).map(i16::from_be_bytes) {
            if count == END {
                self.state = State::Ended;
                return Ok(at + 2);
            }
            if usize::try_from(count) != Ok(self.columns.len()) {
                return Err(self.broken(&format!("a row of {count} fields")));
            }
            let Some(end) = row_end(data, at + 2, self.columns.len()) else { break };
            self.take_row(&data[at + 2..end])?;
            at = end;
        }
        Ok(at)
    }

    /// One complete row.
    fn take_row(&mut self, mut fields: &[u8]) -> Result<()> {
        for index in 0..self.builders.len() {
            let length = integer::<4>(fields, 0).map_or(-1, i32::from_be_bytes);
            fields = &fields[4..];
            let Ok(length) = usize::try_from(length) else {
                self.builders[index].append_null();
                continue;
            };
            let (value, rest) = fields.split_at(length);
            self.builders[index].append(value).map_err(|unfit| self.refused(index, &unfit))?;
            fields = rest;
        }
        self.rows += 1;
        Ok(())
    }

    /// `None` if it is incomplete.
    fn head_bytes(&self, data: &[u8]) -> Result<Option<usize>> {
        let known = data.len().min(HEAD.len());
        if data[..known] != HEAD[..known] {
            return Err(self.broken("another head than that of binary rows"));
        }
        let Some(extension) = integer::<4>(data, HEAD_BYTES - 4) else { return Ok(None) };
        let length = HEAD_BYTES + u32::from_be_bytes(extension) as usize;
        Ok((data.len() >= length).then_some(length))
    }

    fn refused(&self, index: usize, unfit: &values::Unfit) -> PgError {
        let column = &self.columns[index].name;
        let row = self.rows_taken + self.rows as u64 + 1;
        let error =
            PgError::new(format!("{}: row {row}, column {column}: {}", self.place, unfit.found));
        if unfit.instead.is_empty() {
            return error;
        }
        let name = super::columns::quoted(column);
        let instead = unfit.instead.replace("{}", &name);
        error.remedy(format!(
            "leave such rows out, or select another value with --query: select …, {instead} as {name}, …"
        ))
    }

    fn broken(&self, cause: &str) -> PgError {
        PgError::new(format!("{}: the server's answer is broken: {cause}", self.place))
    }
}

/// The end of a row with this many fields that begins at `at`; `None` if it has not arrived.
fn row_end(data: &[u8], mut at: usize, fields: usize) -> Option<usize> {
    for _ in 0..fields {
        let length = i32::from_be_bytes(integer::<4>(data, at)?);
        at += 4 + usize::try_from(length).unwrap_or(0);
    }
    (at <= data.len()).then_some(at)
}

fn integer<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;

    use super::super::columns::{Values, schema};
    use super::*;

    fn column(name: &str, values: Values) -> Column {
        Column {
            name: name.into(),
            values,
            is_dictionary: false,
            is_nullable: true,
            cast: None,
            server_type: String::new(),
        }
    }

    fn row(fields: &[Option<&[u8]>]) -> Vec<u8> {
        let mut sent = (fields.len() as i16).to_be_bytes().to_vec();
        for field in fields {
            match field {
                None => sent.extend((-1_i32).to_be_bytes()),
                Some(value) => {
                    sent.extend((value.len() as i32).to_be_bytes());
                    sent.extend(*value);
                }
            }
        }
        sent
    }

    fn stream(rows: &[Vec<u8>]) -> Vec<u8> {
        let mut sent = HEAD.to_vec();
        sent.extend([0; 8]);
        rows.iter().for_each(|row| sent.extend(row));
        sent.extend(END.to_be_bytes());
        sent
    }

    #[test]
    fn rows_come_in_any_pieces() {
        let columns = [column("i", Values::Int4), column("t", Values::Padded)];
        let sent = stream(&[
            row(&[Some(&7_i32.to_be_bytes()), Some(b" ab  ")]),
            row(&[None, None]),
            row(&[Some(&(-1_i32).to_be_bytes()), Some(b"")]),
        ]);
        for piece in [1, 2, 3, 19, 24, sent.len()] {
            let mut decoder = Decoder::new(&columns, schema(&columns), "t");
            sent.chunks(piece).for_each(|data| decoder.push(data).unwrap());
            decoder.end().unwrap();
            let batch = decoder.take().unwrap();
            let numbers: Vec<_> = batch.column(0).as_primitive::<Int32Type>().iter().collect();
            let texts: Vec<_> = batch.column(1).as_string::<i32>().iter().collect();
            assert_eq!(numbers, [Some(7), None, Some(-1)]);
            assert_eq!(texts, [Some(" ab"), None, Some("")]);
        }
    }

    #[test]
    fn what_is_broken_or_does_not_fit_is_said_with_its_place() {
        let columns = [column("i", Values::Int4)];
        let decoder = || Decoder::new(&columns, schema(&columns), "public.t");
        let failed = |sent: &[u8]| decoder().push(sent).unwrap_err().cause;
        assert!(failed(b"PGCOPY\nrows").contains("another head"));
        assert!(failed(&stream(&[row(&[None, None])])).contains("2 fields"));
        let wrong = stream(&[row(&[None]), row(&[Some(b"abc")])]);
        assert!(failed(&wrong).contains("public.t: row 2, column i: 3 bytes"));
        let mut cut = decoder();
        cut.push(&stream(&[row(&[None])])[..25]).unwrap();
        assert!(cut.end().is_err());
    }
}
