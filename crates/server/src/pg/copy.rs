//! Rows as COPY writes them to the client.

use arrow_schema::Schema;
use bytes::{BufMut, BytesMut};

use super::encode::Rows;
use super::wire;
use super::words::{CopyFormat, CopyOptions};

/// What a binary copy begins with: a signature, flags, the length of what else there is.
const BINARY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

impl CopyOptions {
    /// The formats that values are written in.
    pub fn formats(&self) -> [i16; 1] {
        [i16::from(self.format == CopyFormat::Binary)]
    }

    /// Tells the client what comes.
    pub fn put_begin(&self, out: &mut BytesMut, schema: &Schema) {
        let [format] = self.formats();
        let width = schema.fields().len();
        wire::put(out, b'H', |out| {
            out.put_u8(format as u8);
            out.put_i16(width as i16);
            (0..width).for_each(|_| out.put_i16(format));
        });
        if self.has_header && self.format != CopyFormat::Binary {
            wire::put(out, b'd', |out| {
                for (nth, field) in schema.fields().iter().enumerate() {
                    if nth > 0 {
                        out.put_u8(self.delimiter);
                    }
                    self.put_text(out, field.name().as_bytes());
                }
                out.put_u8(b'\n');
            });
        }
    }

    /// A row; `None`: it is longer than a message can be. What binary rows begin with is in the message of the first: there clients
    /// look for it.
    pub fn put_row(
        &self,
        out: &mut BytesMut,
        rows: &Rows,
        row: usize,
        is_first: bool,
        spare: &mut BytesMut,
    ) -> Option<()> {
        let at = out.len();
        let begun = wire::begin(out, b'd');
        if self.format == CopyFormat::Binary {
            if is_first {
                out.put_slice(BINARY_HEADER);
            }
            if rows.put_values(out, row).is_err() {
                out.truncate(at);
                return None;
            }
            return begun.end(out).then_some(());
        }
        for column in 0..rows.width() {
            if column > 0 {
                out.put_u8(self.delimiter);
            }
            match rows.text(spare, row, column) {
                Some(text) => self.put_text(out, text),
                None => out.put_slice(self.null.as_bytes()),
            }
        }
        out.put_u8(b'\n');
        begun.end(out).then_some(())
    }

    pub fn put_end(&self, out: &mut BytesMut, is_empty: bool) {
        if self.format == CopyFormat::Binary {
            wire::put(out, b'd', |out| {
                if is_empty {
                    out.put_slice(BINARY_HEADER);
                }
                out.put_i16(-1);
            });
        }
        wire::put(out, b'c', |_| {});
    }

    fn put_text(&self, out: &mut BytesMut, text: &[u8]) {
        match self.format {
            CopyFormat::Csv => self.put_quoted(out, text),
            _ => self.put_escaped(out, text),
        }
    }

    fn put_escaped(&self, out: &mut BytesMut, text: &[u8]) {
        for byte in text {
            match byte {
                b'\\' => out.put_slice(b"\\\\"),
                b'\n' => out.put_slice(b"\\n"),
                b'\r' => out.put_slice(b"\\r"),
                b'\t' => out.put_slice(b"\\t"),
                8 => out.put_slice(b"\\b"),
                11 => out.put_slice(b"\\v"),
                12 => out.put_slice(b"\\f"),
                byte if *byte == self.delimiter => out.put_slice(&[b'\\', *byte]),
                byte => out.put_u8(*byte),
            }
        }
    }

    fn put_quoted(&self, out: &mut BytesMut, text: &[u8]) {
        let is_special = |byte: &u8| [self.delimiter, self.quote, b'\n', b'\r'].contains(byte);
        // One that looks like NULL, or like the end, is told from that by its quotes.
        let needs_quotes =
            text == self.null.as_bytes() || text == b"\\." || text.iter().any(is_special);
        if !needs_quotes {
            return out.put_slice(text);
        }
        out.put_u8(self.quote);
        for byte in text {
            if *byte == self.quote {
                out.put_u8(self.quote);
            }
            out.put_u8(*byte);
        }
        out.put_u8(self.quote);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};

    use super::super::types::described;
    use super::*;
    use crate::pg::words::Command;

    fn copied(options: &str) -> Vec<u8> {
        let texts = StringArray::from(vec![Some("a\t\"b\\"), None, Some("")]);
        let columns: [(&str, ArrayRef); 2] =
            [("n", Arc::new(Int32Array::from(vec![1, 2, 3]))), ("s,", Arc::new(texts))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let sql = format!("copy t to stdout {options}");
        let Command::CopyOut { options, .. } = Command::of(&sql) else { panic!("{sql}") };
        let described = described(&batch.schema(), &options.formats());
        let rows = Rows::of(&batch, &described).unwrap();
        let (mut out, mut spare) = (BytesMut::new(), BytesMut::new());
        options.put_begin(&mut out, &batch.schema());
        for row in 0..3 {
            options.put_row(&mut out, &rows, row, row == 0, &mut spare).unwrap();
        }
        options.put_end(&mut out, false);
        // What the messages have in them.
        let (mut all, mut rest) = (Vec::new(), &out[..]);
        while let [kind, a, b, c, d, body @ ..] = rest {
            let length = i32::from_be_bytes([*a, *b, *c, *d]) as usize - 4;
            if *kind == b'd' {
                all.extend(&body[..length]);
            }
            rest = &body[length..];
        }
        all
    }

    #[test]
    fn rows_are_texts_or_bytes() {
        assert_eq!(copied(""), b"1\ta\\t\"b\\\\\n2\t\\N\n3\t\n");
        assert_eq!(copied("csv header"), b"n,\"s,\"\n1,\"a\t\"\"b\\\"\n2,\n3,\"\"\n");
        assert_eq!(copied("(format csv, null 'x', delimiter ';')"), b"1;\"a\t\"\"b\\\"\n2;x\n3;\n");
        let binary = copied("(format binary)");
        assert_eq!(&binary[..19], BINARY_HEADER);
        let rows = &binary[19..];
        assert_eq!(&rows[..10], [0, 2, 0, 0, 0, 4, 0, 0, 0, 1]);
        assert_eq!(&rows[rows.len() - 2..], [0xff, 0xff]);
    }
}
