//! The metadata of a file's record batches as a few arrays, because a table may have millions of
//! batches.

use headrace_ir::Extent;

use super::fields::Footprint;
use super::message::{BatchMessage, Compression, Node};

/// Marks an unknown NULL count.
const NOT_KNOWN: u64 = u64::MAX;

/// Record batches of one file, which all have the same number of fields and variadic counts. Per
/// batch and column this takes 40 bytes for fixed width, 56 for text.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    entries: Footprint,
    rows: Vec<u64>,
    /// By batch, then field entry.
    nulls: Vec<u64>,
    /// Rows by batch, then field entry; empty as long as each entry has its batch's rows.
    node_rows: Vec<u64>,
    /// By batch, then buffer.
    buffers: Vec<Extent>,
    /// Start of the buffers of each batch that has variadic ones.
    first_buffers: Vec<usize>,
    /// By batch, then column with variadic buffers.
    variadics: Vec<u32>,
    /// Empty as long as no batch is compressed.
    compression: Vec<Option<Compression>>,
}

impl Batches {
    /// Empty; `entries` are those of each batch, without variadic buffers.
    pub fn new(entries: Footprint) -> Self {
        Self { entries, ..Self::default() }
    }

    /// Adds one, which must have these entries.
    pub fn push(&mut self, message: &BatchMessage) {
        let rows = message.rows;
        if !self.node_rows.is_empty() || message.nodes.iter().any(|node| node.rows != rows) {
            self.node_rows = self.all_node_rows();
            self.node_rows.extend(message.nodes.iter().map(|node| node.rows));
        }
        if !self.compression.is_empty() || message.compression.is_some() {
            self.compression.resize(self.len(), None);
            self.compression.push(message.compression);
        }
        if self.entries.variadics > 0 {
            self.first_buffers.push(self.buffers.len());
        }
        self.rows.push(rows);
        self.nulls.extend(message.nodes.iter().map(|node| node.nulls.unwrap_or(NOT_KNOWN)));
        self.buffers.extend(&message.buffers);
        self.variadics.extend(&message.variadics);
    }

    /// Concatenates all of `parts` in order, without spare memory.
    pub fn joined(entries: Footprint, parts: Vec<Batches>) -> Self {
        let mut all = Self::new(entries);
        all.rows.reserve_exact(parts.iter().map(Batches::len).sum());
        all.nulls.reserve_exact(parts.iter().map(|part| part.nulls.len()).sum());
        all.buffers.reserve_exact(parts.iter().map(|part| part.buffers.len()).sum());
        parts.into_iter().for_each(|part| all.append(part));
        all
    }

    fn append(&mut self, mut part: Batches) {
        if !self.node_rows.is_empty() || !part.node_rows.is_empty() {
            self.node_rows = self.all_node_rows();
            self.node_rows.extend(part.all_node_rows());
        }
        if !self.compression.is_empty() || !part.compression.is_empty() {
            self.compression.resize(self.len(), None);
            self.compression.extend(&part.compression);
            self.compression.resize(self.len() + part.len(), None);
        }
        let before = self.buffers.len();
        self.first_buffers.extend(part.first_buffers.iter().map(|first| before + first));
        self.rows.extend(part.rows);
        self.nulls.extend(part.nulls);
        self.buffers.extend(part.buffers);
        self.variadics.extend(part.variadics);
    }

    /// `node_rows`, also where they are implied by the batches.
    fn all_node_rows(&mut self) -> Vec<u64> {
        if self.node_rows.is_empty() {
            let each = |rows: &u64| std::iter::repeat_n(*rows, self.entries.nodes);
            return self.rows.iter().flat_map(each).collect();
        }
        std::mem::take(&mut self.node_rows)
    }

    /// Number of batches.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Rows of the largest batch.
    pub fn rows_max(&self) -> u64 {
        self.rows.iter().copied().max().unwrap_or(0)
    }

    /// Rows of a batch; 0 for one that does not exist.
    pub fn rows(&self, batch: usize) -> u64 {
        self.rows.get(batch).copied().unwrap_or(0)
    }

    /// Rows of all batches.
    pub fn rows_total(&self) -> u64 {
        self.rows.iter().sum()
    }

    /// NULLs of a field entry.
    pub fn nulls(&self, batch: usize, node: usize) -> Option<u64> {
        let nulls = self.nulls.get(batch * self.entries.nodes + node).copied();
        nulls.filter(|nulls| *nulls != NOT_KNOWN)
    }

    /// Buffers of a batch.
    pub fn buffers(&self, batch: usize) -> &[Extent] {
        let range = match self.first_buffers.get(batch) {
            Some(first) => {
                let next = self.first_buffers.get(batch + 1).copied();
                *first..next.unwrap_or(self.buffers.len())
            }
            None => batch * self.entries.buffers..(batch + 1) * self.entries.buffers,
        };
        self.buffers.get(range).unwrap_or_default()
    }

    /// The number of buffers of each variadic column.
    pub fn variadics(&self, batch: usize) -> &[u32] {
        let count = self.entries.variadics;
        self.variadics.get(batch * count..(batch + 1) * count).unwrap_or_default()
    }

    /// The first compressed batch.
    pub fn compressed(&self) -> Option<(usize, Compression)> {
        self.compression.iter().enumerate().find_map(|(batch, codec)| Some((batch, (*codec)?)))
    }

    /// A batch's metadata as in its message.
    pub fn message(&self, batch: usize) -> BatchMessage {
        let rows = self.rows(batch);
        let node = |node: usize| {
            let own = self.node_rows.get(batch * self.entries.nodes + node).copied();
            Node { rows: own.unwrap_or(rows), nulls: self.nulls(batch, node) }
        };
        BatchMessage {
            rows,
            nodes: (0..self.entries.nodes).map(node).collect(),
            buffers: self.buffers(batch).to_vec(),
            variadics: self.variadics(batch).to_vec(),
            compression: self.compression.get(batch).copied().flatten(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ENTRIES: Footprint = Footprint { nodes: 2, buffers: 3, variadics: 1 };

    fn message(number: u64) -> BatchMessage {
        // Now and then children have other rows, buffers are compressed, and counts differ.
        let own = if number % 5 == 3 { number * 2 } else { number };
        let variadic = (number % 3) as u32;
        let node = |rows, nulls| Node { rows, nulls };
        BatchMessage {
            rows: number,
            nodes: vec![node(number, Some(number / 2)), node(own, None)],
            buffers: (0..3 + u64::from(variadic))
                .map(|i| Extent { offset: number * 1000 + i, bytes: i })
                .collect(),
            variadics: vec![variadic],
            compression: (number % 7 == 4).then_some(Compression::Zstd),
        }
    }

    #[test]
    fn batches_come_back_however_they_were_put_together() {
        for (count, each) in [(0, 1), (1, 1), (40, 40), (40, 1), (41, 4), (41, 7)] {
            let parts = (0..count).step_by(each).map(|first| {
                let mut part = Batches::new(ENTRIES);
                let end = (first + each).min(count);
                (first..end).for_each(|number| part.push(&message(number as u64)));
                part
            });
            let all = Batches::joined(ENTRIES, parts.collect());
            assert_eq!(all.len(), count);
            for number in 0..count {
                let wanted = message(number as u64);
                assert_eq!(all.message(number), wanted, "{count} {each}");
                assert_eq!(all.buffers(number), wanted.buffers);
                assert_eq!(all.nulls(number, 0), wanted.nodes[0].nulls);
            }
            assert_eq!((all.rows(count), all.variadics(count)), (0, [].as_slice()));
            assert_eq!(all.compressed(), (count > 4).then_some((4, Compression::Zstd)));
        }
    }
}
