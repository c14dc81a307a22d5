//! Bytes of one version of an object.
//!
//! Each request says which version is wanted where the server has names for versions (strong ETags), and each answer is
//! compared with what was known of it when it was listed: other bytes than those of that version never come out.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::executor::block_on;
use futures::stream::BoxStream;
use headrace_io::{FileIdentity, IoError, RemoteBytes, SourceFile, is_abandoned};
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta, coalesce_ranges};
use tokio::sync::SemaphorePermit;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

use super::gather::{GAP_BYTES, Gather, TOGETHER_BYTES_MAX};
use super::network::{ANSWER_TIMEOUT, ANSWERS, Task, no_answer, received, spawn, wait};
use super::refusal::{Kind, Refusal};
use super::store::Object;

/// The device number of what lies elsewhere.
const ELSEWHERE: u64 = u64::MAX;

/// What is fetched of a file's end, and of its beginning, when something small of it is wanted: the
/// footers of most files, and what their readers look at first.
const TAIL_BYTES: u64 = 64 << 10;
const HEAD_BYTES: u64 = 16 << 10;

/// Pieces of a stream that wait to be read.
const PIECES_MAX: usize = 8;

/// A version of an object.
#[derive(Clone, Debug)]
pub struct RemoteFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    object: Object,
    version: Version,
    identity: FileIdentity,
    head: OnceLock<Bytes>,
    tail: OnceLock<Bytes>,
    small: Gather,
}

/// What is known of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    size_bytes: u64,
    e_tag: Option<String>,
    /// Seconds since 1970, as headers have them; 0: unknown.
    modified_s: i64,
}

impl Version {
    fn of(meta: &ObjectMeta) -> Version {
        let modified_s = meta.last_modified.timestamp();
        Version { size_bytes: meta.size, e_tag: meta.e_tag.clone(), modified_s }
    }

    /// For a request that is to be answered for this version only. Weak tags never match there.
    fn if_match(&self) -> Option<String> {
        self.e_tag.clone().filter(|tag| !tag.starts_with("W/"))
    }

    /// How another one differs.
    fn difference(&self, other: &Version) -> Option<String> {
        if self.size_bytes != other.size_bytes {
            return Some(format!("it had {} bytes and has {}", self.size_bytes, other.size_bytes));
        }
        match (&self.e_tag, &other.e_tag) {
            (Some(known), Some(found)) if known == found => return None,
            (Some(known), Some(found)) => {
                return Some(format!("its ETag was {known} and is {found}"));
            }
            _ => {}
        }
        let both_known = self.modified_s != 0 && other.modified_s != 0;
        let differs = both_known && self.modified_s != other.modified_s;
        differs.then(|| "its time of modification differs".to_string())
    }

    /// Of a version that the server has no name for nobody knows whether it is the same: it is equal to none.
    fn identity(&self, address: &str) -> FileIdentity {
        static UNNAMED: AtomicU64 = AtomicU64::new(0);
        let is_named = self.e_tag.is_some() || self.modified_s != 0;
        let unnamed = if is_named { 0 } else { UNNAMED.fetch_add(1, Ordering::Relaxed) + 1 };
        let hash = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, address, &self.e_tag, unnamed).hash(&mut hasher);
            hasher.finish()
        };
        FileIdentity {
            device: ELSEWHERE,
            inode: hash(1),
            size_bytes: self.size_bytes,
            mtime_ns: self.modified_s.saturating_mul(1_000_000_000),
            ctime_ns: hash(2) as i64,
        }
    }
}

impl RemoteFile {
    /// The version that a server told of.
    pub fn new(path: PathBuf, object: Object, meta: &ObjectMeta) -> RemoteFile {
        let version = Version::of(meta);
        let identity = version.identity(&path.to_string_lossy());
        let (head, tail, small) = (OnceLock::new(), OnceLock::new(), Gather::default());
        RemoteFile(Arc::new(Inner { path, object, version, identity, head, tail, small }))
    }

    /// The file as everybody else knows files.
    pub fn source(&self) -> Arc<SourceFile> {
        SourceFile::remote(&self.0.path, self.0.identity, Arc::new(self.clone()))
    }

    /// The bytes of several ranges; what lies between those that are close together is fetched with them.
    ///
    /// # Errors
    /// What the server said.
    pub async fn ranges(&self, ranges: Vec<Range<u64>>) -> io::Result<Vec<Bytes>> {
        let file = self.clone();
        let task = spawn(async move {
            let fetch = |range: Range<u64>| file.0.fetch(range);
            coalesce_ranges(&ranges, fetch, GAP_BYTES).await.map_err(|e| file.0.error(e))
        })?;
        task.await?
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes, Refusal> {
        let bytes = range.end.saturating_sub(range.start);
        if bytes < TAIL_BYTES
            && let Some(read) = self.windowed(&range)
        {
            return read;
        }
        if bytes >= TOGETHER_BYTES_MAX {
            return self.fetched(range);
        }
        let read = self.0.small.read(range, |range| self.fetched(range), is_abandoned);
        read.unwrap_or_else(|| Err(Refusal::local(&io::Error::other("nobody waits any more"))))
    }

    fn fetched(&self, range: Range<u64>) -> Result<Bytes, Refusal> {
        let file = Arc::clone(&self.0);
        let fetched = wait(async move { file.fetch(range).await });
        fetched.map_err(|error| Refusal::local(&error))?
    }

    /// A small range from the window that it lies in, which is fetched if it was not.
    fn windowed(&self, range: &Range<u64>) -> Option<Result<Bytes, Refusal>> {
        let size = self.0.version.size_bytes;
        let windows = [
            (&self.0.tail, size.saturating_sub(TAIL_BYTES)..size),
            (&self.0.head, 0..size.min(HEAD_BYTES)),
        ];
        let inside = |window: &Range<u64>| window.start <= range.start && range.end <= window.end;
        let (cell, window) = windows.into_iter().find(|(_, window)| inside(window))?;
        let whole = match cell.get() {
            Some(whole) => whole,
            // Several may fetch it at a time; one of them is kept.
            None => match self.fetched(window.clone()) {
                Ok(whole) => cell.get_or_init(|| whole),
                Err(refusal) => return Some(Err(refusal)),
            },
        };
        let at = |offset: u64| (offset - window.start) as usize;
        Some(Ok(whole.slice(at(range.start)..at(range.end))))
    }
}

impl Inner {
    /// What the server answers, once it is known to be of this version.
    async fn get(&self, range: Option<Range<u64>>) -> Result<GetResult, Refusal> {
        let options = GetOptions {
            range: range.map(GetRange::Bounded),
            if_match: self.version.if_match(),
            ..GetOptions::default()
        };
        let answer = self.object.store.get_opts(&self.object.location, options).await;
        let answer = answer.map_err(|error| judged(Refusal::of(&error)))?;
        match self.version.difference(&Version::of(&answer.meta)) {
            Some(how) => Err(Refusal::changed(&how)),
            None => Ok(answer),
        }
    }

    async fn fetch(&self, range: Range<u64>) -> Result<Bytes, Refusal> {
        let wanted = range.end.saturating_sub(range.start);
        if wanted == 0 {
            return Ok(Bytes::new());
        }
        // Before memory is taken: a file says how long its parts are, and may lie.
        if range.end > self.version.size_bytes {
            return Err(Refusal::outside(&range, self.version.size_bytes));
        }
        let _permit = permit().await?;
        let is_all = range.start == 0 && range.end == self.version.size_bytes;
        let answer = self.get(Some(range).filter(|_| !is_all)).await?;
        let mut pieces = answer.into_stream();
        let mut all = BytesMut::with_capacity(wanted as usize);
        while let Some(piece) = next(&mut pieces).await? {
            let came = (all.len() + piece.len()) as u64;
            if came > wanted {
                return Err(Refusal::cut_short(wanted, came));
            }
            all.extend_from_slice(&piece);
        }
        match all.len() as u64 {
            came if came == wanted => Ok(all.freeze()),
            came => Err(Refusal::cut_short(wanted, came)),
        }
    }

    /// Sends everything from an offset on, piece by piece.
    async fn send(&self, offset: u64, to: &Sender<Result<Bytes, Refusal>>) -> Result<(), Refusal> {
        let size = self.version.size_bytes;
        let wanted = size.saturating_sub(offset);
        if wanted == 0 {
            return Ok(());
        }
        // No permit: whoever reads it may wait for another stream, and its pieces are few.
        let answer = self.get((offset > 0).then_some(offset..size)).await?;
        let (mut pieces, mut came) = (answer.into_stream(), 0);
        while let Some(piece) = next(&mut pieces).await? {
            came += piece.len() as u64;
            if came > wanted {
                return Err(Refusal::cut_short(wanted, came));
            }
            if to.send(Ok(piece)).await.is_err() {
                // Nobody wants more.
                return Ok(());
            }
        }
        if came == wanted { Ok(()) } else { Err(Refusal::cut_short(wanted, came)) }
    }

    fn error(&self, refusal: Refusal) -> io::Error {
        if refusal.kind != Kind::Changed {
            return refusal.into();
        }
        let what = refusal.cause.split_once(": ").map_or("", |(_, how)| how).to_string();
        io::Error::other(IoError::Changed { path: self.path.clone(), what })
    }
}

/// An object that is gone is another one than was listed.
fn judged(refusal: Refusal) -> Refusal {
    match refusal.kind {
        Kind::NotFound => Refusal::changed("it is not there any more"),
        _ => refusal,
    }
}

async fn permit() -> Result<SemaphorePermit<'static>, Refusal> {
    ANSWERS.acquire().await.map_err(|error| Refusal::local(&io::Error::other(error)))
}

impl RemoteBytes for RemoteFile {
    fn fill(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let range = offset..offset + into.len() as u64;
        into.copy_from_slice(&self.read(range).map_err(|refusal| self.0.error(refusal))?);
        Ok(())
    }

    fn stream(&self, offset: u64) -> io::Result<Box<dyn Read + Send>> {
        let (sender, pieces) = channel(PIECES_MAX);
        let file = Arc::clone(&self.0);
        let sending = spawn(async move {
            if let Err(refusal) = file.send(offset, &sender).await {
                let _ = sender.send(Err(refusal)).await;
            }
        })?;
        Ok(Box::new(Pieces { file: self.clone(), pieces, at: Bytes::new(), _sending: sending }))
    }
}

/// A stream as those read it who wait for it. Dropped, it ends.
struct Pieces {
    file: RemoteFile,
    pieces: Receiver<Result<Bytes, Refusal>>,
    at: Bytes,
    _sending: Task<()>,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at.is_empty() {
            match block_on(self.pieces.recv()) {
                None => return Ok(0),
                Some(piece) => self.at = piece.map_err(|refusal| self.file.0.error(refusal))?,
            }
        }
        let bytes = self.at.len().min(into.len());
        into[..bytes].copy_from_slice(&self.at.split_to(bytes));
        Ok(bytes)
    }
}

/// The next piece of an answer, unless the server falls silent.
async fn next(
    pieces: &mut BoxStream<'static, object_store::Result<Bytes>>,
) -> Result<Option<Bytes>, Refusal> {
    match timeout(ANSWER_TIMEOUT, pieces.next()).await {
        Err(_) => Err(Refusal::local(&no_answer(ANSWER_TIMEOUT))),
        Ok(None) => Ok(None),
        Ok(Some(Ok(piece))) => {
            received(piece.len());
            Ok(Some(piece))
        }
        Ok(Some(Err(error))) => Err(Refusal::of(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(size_bytes: u64, e_tag: Option<&str>, modified_s: i64) -> Version {
        Version { size_bytes, e_tag: e_tag.map(str::to_string), modified_s }
    }

    #[test]
    fn versions_are_told_apart_by_what_is_known_of_both() {
        let known = version(9, Some("\"a\""), 7);
        for other in [version(9, Some("\"a\""), 8), version(9, None, 7), version(9, None, 0)] {
            assert_eq!(known.difference(&other), None, "{other:?}");
        }
        for other in
            [version(8, Some("\"a\""), 7), version(9, Some("\"b\""), 7), version(9, None, 8)]
        {
            assert!(known.difference(&other).is_some(), "{other:?}");
        }
        assert_eq!(known.if_match().as_deref(), Some("\"a\""));
        assert_eq!(version(9, Some("W/\"a\""), 7).if_match(), None);
    }

    #[test]
    fn a_version_without_a_name_is_equal_to_none() {
        let named = version(9, None, 7);
        assert_eq!(named.identity("x"), named.identity("x"));
        assert_ne!(named.identity("x"), named.identity("y"));
        assert_ne!(named.identity("x"), version(9, Some("\"a\""), 7).identity("x"));
        let unnamed = version(9, None, 0);
        assert_ne!(unnamed.identity("x"), unnamed.identity("x"));
    }
}
