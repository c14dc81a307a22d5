//! A file becomes an object, whole or not at all.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use datafusion::common::Result;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use tokio::task::JoinSet;

use super::address::Address;
use super::network::wait;
use super::refusal::Refusal;
use super::store::Object;
use crate::catalog::refused;

/// Bytes of a part, at least; what is smaller is sent in one piece.
const PART_BYTES_MIN: u64 = 8 << 20;

/// Parts that an object may have; the stores' own limit is 10,000.
const PARTS_MAX: u64 = 9_000;

/// Parts that are sent at a time.
const SENT_AT_ONCE: usize = 4;

/// Looks whether something could be written there, before there is anything to write.
///
/// # Errors
/// Why not.
pub fn check_target(target: &Path) -> Result<()> {
    object_of(target).map(drop)
}

fn object_of(target: &Path) -> Result<Object> {
    let address = Address::of(target)?;
    let fail = |cause, remedy| Err(refused(target, cause, remedy));
    match &address {
        Address::Web { .. } => {
            fail("web servers are only read from", "write to a path or to s3://")
        }
        Address::S3 { key, .. } if key.is_empty() || key.ends_with('/') => {
            fail("it is a folder", "name one object, such as s3://bucket/x.parquet")
        }
        Address::S3 { .. } => Object::of(&address),
    }
}

/// Sends a file.
///
/// # Errors
/// What the server said; then nothing is there, or what was there before.
pub fn upload(from: &Path, target: &Path) -> Result<()> {
    let object = object_of(target)?;
    let opened = File::open(from).and_then(|file| Ok((file.metadata()?.len(), file)));
    let sent =
        opened.and_then(|(bytes, file)| wait(async move { send(file, bytes, &object).await }));
    let fail = |refusal: Refusal| refused(target, refusal.cause, refusal.remedy);
    sent.map_err(|error| fail(Refusal::local(&error)))?.map_err(fail)
}

async fn send(mut file: File, bytes: u64, object: &Object) -> Result<(), Refusal> {
    let of = |error: object_store::Error| Refusal::of(&error);
    if bytes <= PART_BYTES_MIN {
        let part = part(&mut file, bytes)?.unwrap_or_default();
        return object.store.put(&object.location, part).await.map(drop).map_err(of);
    }
    let mut upload = object.store.put_multipart(&object.location).await.map_err(of)?;
    let sent = send_parts(&mut file, bytes, upload.as_mut()).await;
    let completed = match sent {
        Ok(()) => upload.complete().await.map(drop).map_err(of),
        Err(refusal) => Err(refusal),
    };
    if completed.is_err() {
        // What was sent is the store's to forget; that it failed is said in any case.
        let _ = upload.abort().await;
    }
    completed
}

async fn send_parts(
    file: &mut File,
    bytes: u64,
    upload: &mut dyn MultipartUpload,
) -> Result<(), Refusal> {
    let part_bytes = PART_BYTES_MIN.max(bytes.div_ceil(PARTS_MAX));
    let mut under_way = JoinSet::new();
    let one_done =
        |done: Option<Result<object_store::Result<()>, tokio::task::JoinError>>| match done {
            Some(Ok(Err(error))) => Err(Refusal::of(&error)),
            Some(Err(error)) => Err(Refusal::local(&io::Error::other(error))),
            Some(Ok(Ok(()))) | None => Ok(()),
        };
    while let Some(part) = part(file, part_bytes)? {
        if under_way.len() >= SENT_AT_ONCE {
            one_done(under_way.join_next().await)?;
        }
        under_way.spawn(upload.put_part(part));
    }
    while !under_way.is_empty() {
        one_done(under_way.join_next().await)?;
    }
    Ok(())
}

/// The next bytes of a file; `None` at its end.
fn part(file: &mut File, bytes: u64) -> Result<Option<PutPayload>, Refusal> {
    let mut part = Vec::new();
    let read = file.take(bytes).read_to_end(&mut part);
    read.map_err(|error| Refusal::local(&error))?;
    Ok((!part.is_empty()).then(|| part.into()))
}
