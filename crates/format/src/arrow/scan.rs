//! Finds the messages in a stream of encoded bytes that arrives in pieces.

use arrow_ipc::{Block, MessageHeader};

/// Continuation marker and length of the flatbuffer.
const PREFIX_BYTES: usize = 8;

/// A message whose header is complete.
pub(crate) struct ScannedMessage {
    /// Its kind.
    pub header: MessageHeader,
    /// Its location.
    pub block: Block,
    /// Id of a dictionary, and whether it is a delta.
    pub dictionary: Option<(i64, bool)>,
}

/// Follows a stream of messages from its first byte on.
#[derive(Default)]
pub(crate) struct MessageScanner {
    /// Prefix and flatbuffer of the current message, as far as received.
    header: Vec<u8>,
    /// Remaining bytes of its body.
    body_left: u64,
}

impl MessageScanner {
    /// Takes the next piece, at `offset` of the file, and returns the messages whose headers it
    /// completes.
    pub fn scan(
        &mut self,
        mut piece: &[u8],
        mut offset: u64,
    ) -> Result<Vec<ScannedMessage>, String> {
        let mut found = Vec::new();
        while !piece.is_empty() {
            let wanted = if self.body_left > 0 { self.body_left } else { self.header_left()? };
            let taken = wanted.min(piece.len() as u64);
            let (now, later) = piece.split_at(taken as usize);
            if self.body_left > 0 {
                self.body_left -= taken;
            } else {
                self.header.extend_from_slice(now);
            }
            piece = later;
            offset += taken;
            if self.body_left == 0 && self.header_left()? == 0 {
                found.extend(self.message(offset)?);
            }
        }
        Ok(found)
    }

    /// Missing bytes of the current message's header.
    fn header_left(&self) -> Result<u64, String> {
        let have = self.header.len();
        if have < PREFIX_BYTES {
            return Ok((PREFIX_BYTES - have) as u64);
        }
        let length = [self.header[4], self.header[5], self.header[6], self.header[7]];
        let length = usize::try_from(i32::from_le_bytes(length)).map_err(|e| e.to_string())?;
        Ok((PREFIX_BYTES + length - have) as u64)
    }

    /// The message whose header ends at `offset`; `None` for the end of the stream.
    fn message(&mut self, offset: u64) -> Result<Option<ScannedMessage>, String> {
        let header = std::mem::take(&mut self.header);
        if header.len() == PREFIX_BYTES {
            return Ok(None);
        }
        let message =
            arrow_ipc::root_as_message(&header[PREFIX_BYTES..]).map_err(|e| e.to_string())?;
        let body_bytes = message.bodyLength();
        self.body_left = u64::try_from(body_bytes).map_err(|e| e.to_string())?;
        let start = offset - header.len() as u64;
        Ok(Some(ScannedMessage {
            header: message.header_type(),
            block: Block::new(start as i64, header.len() as i32, body_bytes),
            dictionary: message.header_as_dictionary_batch().map(|d| (d.id(), d.isDelta())),
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array, RecordBatch};
    use arrow_ipc::writer::StreamWriter;

    use super::*;

    #[test]
    fn pieces_of_any_size_give_the_same_messages() {
        let array: ArrayRef = Arc::new(Int32Array::from_iter_values(0..100));
        let batch = RecordBatch::try_from_iter([("i", array)]).unwrap();
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema()).unwrap();
        (0..3).for_each(|_| writer.write(&batch).unwrap());
        writer.finish().unwrap();
        for size in [1, 7, 64, 1000, bytes.len()] {
            let mut scanner = MessageScanner::default();
            let mut offset = 64;
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                found.extend(scanner.scan(piece, offset).unwrap());
                offset += piece.len() as u64;
            }
            let kinds: Vec<_> = found.iter().map(|m| m.header).collect();
            let batch = MessageHeader::RecordBatch;
            assert_eq!(kinds, [MessageHeader::Schema, batch, batch, batch], "{size}");
            let first = &found[1].block;
            let length = i64::from(first.metaDataLength()) + first.bodyLength();
            assert_eq!(found[2].block.offset(), first.offset() + length);
            assert_eq!(first.bodyLength(), 448);
        }
    }
}
