//! Members of a `.npz`: a ZIP archive whose members lie in the file as they are.
//!
//! ```text
//! local header, name, extra | the member's bytes | .. | directory: a record a member | (ZIP64) | end of directory
//! ```
//!
//! The checksums of members are not verified: that would take a pass of its own.

use headrace_io::ReadAt;

use crate::{OocError, Result};

/// Bytes of the end of a directory, without its comment.
const END_BYTES: usize = 22;

/// It lies in these last bytes of a file, with the longest comment.
const END_BYTES_MAX: u64 = END_BYTES as u64 + 65_535;

/// The longest directory that is read: a matrix has few members.
const DIRECTORY_BYTES_MAX: u64 = 1 << 20;

/// A field that says that its value is in the ZIP64 extra.
const ELSEWHERE: u64 = u32::MAX as u64;

/// Where a member lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub name: String,
    pub offset: u64,
    pub bytes: u64,
}

/// The members of an archive.
///
/// # Errors
/// [`OocError::Input`] for a file that is no archive, a damaged one, and compressed members; errors of the read.
pub(crate) fn members(file: &dyn ReadAt) -> Result<Vec<Member>> {
    let directory = directory(file)?;
    let (mut members, mut rest) = (Vec::new(), &directory[..]);
    while rest.starts_with(b"PK\x01\x02") {
        let (record, after) = Record::of(rest).ok_or_else(|| broken(file))?;
        rest = after;
        // Others may be compressed: they are not read.
        if record.name.ends_with(".npy") {
            members.push(record.member(file)?);
        }
    }
    Ok(members)
}

fn broken(file: &dyn ReadAt) -> OocError {
    let remedy = "save it anew with scipy.sparse.save_npz(.., compressed=False)";
    OocError::input(file.path(), "no ZIP archive, or a damaged one", remedy)
}

/// A little-endian number of a few bytes.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..width].copy_from_slice(bytes.get(at..at.checked_add(width)?)?);
    Some(u64::from_le_bytes(word))
}

/// The bytes of the directory.
fn directory(file: &dyn ReadAt) -> Result<Vec<u8>> {
    let tail_bytes = file.size_bytes().min(END_BYTES_MAX);
    let mut tail = vec![0; tail_bytes as usize];
    file.read_exact_at(file.size_bytes() - tail_bytes, &mut tail)?;
    let end = tail.windows(END_BYTES).rposition(|end| end.starts_with(b"PK\x05\x06"));
    let place =
        end.and_then(|end| Some((end, number(&tail, end + 12, 4)?, number(&tail, end + 16, 4)?)));
    let (end, mut bytes, mut offset) = place.ok_or_else(|| broken(file))?;
    if bytes == ELSEWHERE || offset == ELSEWHERE {
        let locator = end.checked_sub(20).filter(|at| tail[*at..].starts_with(b"PK\x06\x07"));
        let at = locator.and_then(|at| number(&tail, at + 8, 8)).ok_or_else(|| broken(file))?;
        let wide = read(file, at, 56)?;
        let place = (number(&wide, 40, 8), number(&wide, 48, 8));
        let (Some(wide_bytes), Some(wide_offset), true) =
            (place.0, place.1, wide.starts_with(b"PK\x06\x06"))
        else {
            return Err(broken(file));
        };
        (bytes, offset) = (wide_bytes, wide_offset);
    }
    read(file, offset, bytes)
}

/// Some bytes of the file, if it has them and they are few.
fn read(file: &dyn ReadAt, offset: u64, bytes: u64) -> Result<Vec<u8>> {
    let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= file.size_bytes());
    if !is_inside || bytes > DIRECTORY_BYTES_MAX {
        return Err(broken(file));
    }
    let mut read = vec![0; bytes as usize];
    file.read_exact_at(offset, &mut read)?;
    Ok(read)
}

/// A record of the directory.
struct Record {
    name: String,
    is_stored: bool,
    bytes: u64,
    header_offset: u64,
}

impl Record {
    /// The first record, and what follows it.
    fn of(directory: &[u8]) -> Option<(Record, &[u8])> {
        let of = |at, width| number(directory, at, width);
        let (flags, method) = (of(8, 2)?, of(10, 2)?);
        let (mut stored_bytes, mut bytes, mut header_offset) = (of(20, 4)?, of(24, 4)?, of(42, 4)?);
        let (name_bytes, extra_bytes, comment_bytes) = (of(28, 2)?, of(30, 2)?, of(32, 2)?);
        let name_end = 46 + name_bytes as usize;
        let extra_end = name_end + extra_bytes as usize;
        let name = String::from_utf8_lossy(directory.get(46..name_end)?).into_owned();
        let mut wide = wide_fields(directory.get(name_end..extra_end)?);
        for field in [&mut bytes, &mut stored_bytes, &mut header_offset] {
            if *field == ELSEWHERE {
                *field = wide.next()?;
            }
        }
        let is_stored = method == 0 && flags & 1 == 0 && stored_bytes == bytes;
        let rest = directory.get(extra_end + comment_bytes as usize..)?;
        Some((Record { name, is_stored, bytes, header_offset }, rest))
    }

    /// Behind its local header, whose extra may be of another length than the directory's.
    fn member(self, file: &dyn ReadAt) -> Result<Member> {
        let Record { name, is_stored, bytes, header_offset } = self;
        if !is_stored {
            let what = format!("{name} in it is compressed");
            let remedy = "save it with scipy.sparse.save_npz(.., compressed=False), or unpack it into a folder";
            return Err(OocError::input(file.path(), what, remedy));
        }
        let header = read(file, header_offset, 30)?;
        let lengths = number(&header, 26, 2).zip(number(&header, 28, 2));
        let (Some((name_bytes, extra_bytes)), true) = (lengths, header.starts_with(b"PK\x03\x04"))
        else {
            return Err(broken(file));
        };
        let offset = header_offset + 30 + name_bytes + extra_bytes;
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= file.size_bytes());
        if !is_inside {
            return Err(broken(file));
        }
        Ok(Member { name, offset, bytes })
    }
}

/// The values of a record's ZIP64 extra, in the order of the fields that refer to it.
fn wide_fields(mut extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut wide: &[u8] = &[];
    while let (Some(id), Some(bytes)) = (number(extra, 0, 2), number(extra, 2, 2)) {
        let end = (4 + bytes as usize).min(extra.len());
        if id == 1 {
            wide = &extra[4..end];
        }
        extra = &extra[end..];
    }
    wide.as_chunks().0.iter().map(|field| u64::from_le_bytes(*field))
}
