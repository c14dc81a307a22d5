//! Why a block is not decoded here.

/// Why the server must read this block itself. Nothing of the block was appended.
///
/// Lines are numbers of line pointers from 1 (the second half of a `ctid`), attributes are
/// positions in the relation from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reroute {
    /// The block changed since it was listed, according to
    /// [`BlockOwner::holds`](super::BlockOwner).
    #[error("the block was changed since it was listed")]
    Changed,
    /// Fewer or more bytes than a block has.
    #[error("{found_bytes} bytes are not a block of {block_bytes}")]
    Length {
        /// Bytes given.
        found_bytes: usize,
        /// Bytes of a block.
        block_bytes: usize,
    },
    /// All bytes are zero: a block that was added to the file and not yet written. Its rows, if
    /// any, are in shared buffers.
    #[error("a new page: all bytes are zero")]
    NewPage,
    /// The page was changed, torn, or belongs elsewhere.
    #[error("the checksum is {stored:#06x} and should be {computed:#06x}")]
    Checksum {
        /// The page's checksum.
        stored: u16,
        /// The computed checksum.
        computed: u16,
    },
    /// The page header contradicts itself.
    #[error("page header: {flaw}")]
    Header {
        /// The contradiction.
        flaw: &'static str,
    },
    /// The page does not claim that all its tuples are visible to everybody.
    #[error("the page is not all-visible")]
    NotAllVisible,
    /// A line pointer is impossible on a sound, all-visible page.
    #[error("line pointer {line}: {flaw}")]
    LinePointer {
        /// Its number.
        line: u16,
        /// The problem.
        flaw: &'static str,
    },
    /// A tuple is damaged, or impossible on an all-visible page.
    #[error("tuple {line}: {flaw}")]
    Tuple {
        /// The number of its line pointer.
        line: u16,
        /// The problem.
        flaw: &'static str,
    },
    /// A wanted value lies in the TOAST table.
    #[error("attribute {attribute}: a value lies in the TOAST table")]
    External {
        /// The attribute.
        attribute: usize,
    },
    /// A wanted value is compressed, which only the CPU expands.
    #[error("attribute {attribute}: a value is compressed, which a GPU does not expand")]
    Compressed {
        /// The attribute.
        attribute: usize,
    },
    /// A value is damaged, or has no exact counterpart in the column's Arrow type.
    #[error("attribute {attribute}: {flaw}")]
    Value {
        /// The attribute.
        attribute: usize,
        /// The problem.
        flaw: &'static str,
    },
    /// The values of a text or binary column would take more than 2 GiB in one batch. The page is
    /// sound: take the batch, then decode the block again.
    #[error("attribute {attribute}: the batch is full, take it first")]
    BatchFull {
        /// The attribute.
        attribute: usize,
    },
}
