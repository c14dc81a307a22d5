//! Which objects are a table's files, and which tables a folder holds.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};

use datafusion::common::Result;
use futures::TryStreamExt;
use object_store::{GetOptions, GetRange, ObjectMeta};

use super::address::{Address, shown_path};
use super::file::RemoteFile;
use super::network::wait;
use super::refusal::{Kind, Refusal};
use super::store::Object;
use crate::catalog::formats::format_of;
use crate::catalog::partition_names::partition_of;
use crate::catalog::refused;

/// A file of a table.
#[derive(Debug)]
pub struct Entry {
    /// The file.
    pub file: RemoteFile,
    /// Its address.
    pub path: PathBuf,
    /// Keys and values of the folders that it lies in, below the table's.
    pub partition: Vec<(String, String)>,
}

/// What lies in a folder.
#[derive(Debug, Default)]
pub struct Tree {
    /// Files, by name.
    pub files: BTreeMap<String, Entry>,
    /// Folders, by name.
    pub folders: BTreeMap<String, Tree>,
}

/// The files of an address: one, or those of a folder and of its folders of partitions.
///
/// # Errors
/// What the server said.
pub fn files_of(path: &Path) -> Result<Vec<Entry>> {
    let (address, object) = known(path)?;
    let is_file = format_of(&shown_path(path)).is_some();
    match &address {
        Address::S3 { key, .. } if key.is_empty() || key.ends_with('/') || !is_file => {
            let files = folder(&address, &object, path)?;
            match files.is_empty() && !key.is_empty() && !key.ends_with('/') {
                // A file whose name says nothing is refused for that, if it is there at all.
                true => one_file(&object, path),
                false => Ok(files),
            }
        }
        Address::S3 { .. } => one_file(&object, path).or_else(|error| {
            let files = folder(&address, &object, path)?;
            if files.is_empty() { Err(error) } else { Ok(files) }
        }),
        Address::Web { .. } if shown_path(path).to_string_lossy().ends_with('/') => Err(refused(
            &shown_path(path),
            "what lies in a folder of a web server cannot be asked",
            "name its files one by one",
        )),
        Address::Web { .. } => one_file(&object, path),
    }
}

/// Everything below a folder; of a web server's file, `None`.
///
/// # Errors
/// What the server said.
pub fn tree_of(path: &Path) -> Result<Option<Tree>> {
    let (address, object) = known(path)?;
    let Address::S3 { key, .. } = &address else { return Ok(None) };
    if !key.ends_with('/') && format_of(path).is_some() {
        return Ok(None);
    }
    let mut tree = Tree::default();
    for meta in objects(&address, &object, path)? {
        let Some(inside) = inside(key, &meta) else { continue };
        let mut parts: Vec<&str> = inside.split('/').collect();
        if parts.iter().any(|part| part.starts_with('.')) {
            continue;
        }
        let Some(name) = parts.pop() else { continue };
        let mut at = &mut tree;
        for part in parts {
            at = at.folders.entry(part.to_string()).or_default();
        }
        at.files.insert(name.to_string(), entry(&address, &object, &meta, Vec::new()));
    }
    Ok(Some(tree))
}

fn known(path: &Path) -> Result<(Address, Object)> {
    let address = Address::of(path)?;
    let object = Object::of(&address)?;
    Ok((address, object))
}

/// What a server answers to one who waits, with the place where it goes wrong.
fn answered<T: Send + 'static>(
    path: &Path,
    work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T> {
    let answer = wait(work).map_err(|error| Refusal::local(&error)).and_then(|answer| answer);
    answer.map_err(|refusal| refused(&shown_path(path), refusal.cause, refusal.remedy))
}

fn one_file(object: &Object, path: &Path) -> Result<Vec<Entry>> {
    let asked = object.clone();
    let meta = answered(path, async move { version_of(&asked).await })?;
    let path = shown_path(path);
    let file = RemoteFile::new(path.clone(), object.clone(), &meta);
    Ok(vec![Entry { file, path, partition: Vec::new() }])
}

/// The version of an object that there is now. Signed addresses may allow GET alone, and only its refusals have words.
async fn version_of(object: &Object) -> Result<ObjectMeta, Refusal> {
    let ask = async |options| object.store.get_opts(&object.location, options).await;
    let head = GetOptions { head: true, ..GetOptions::default() };
    let refusal = match ask(head).await {
        Ok(answer) => return Ok(answer.meta),
        Err(error) => Refusal::of(&error),
    };
    if refusal.kind == Kind::Unreachable {
        return Err(refusal);
    }
    let range = Some(GetRange::Bounded(0..1));
    let answer = ask(GetOptions { range, ..GetOptions::default() }).await;
    answer.map(|answer| answer.meta).map_err(|error| match Refusal::of(&error) {
        // Then what HEAD was refused for is the cause.
        other if other.kind == Kind::NoRanges => refusal,
        other => other,
    })
}

/// Files of a folder, and of its folders of partitions.
fn folder(address: &Address, object: &Object, path: &Path) -> Result<Vec<Entry>> {
    let Address::S3 { key, .. } = address else { return Ok(Vec::new()) };
    let prefix = object.location.clone();
    let store = object.store.clone();
    let of = |error: object_store::Error| Refusal::of(&error);
    let listed = answered(path, async move {
        let at = Some(&prefix).filter(|prefix| !prefix.as_ref().is_empty());
        let mut found = store.list_with_delimiter(at).await.map_err(of)?;
        for folder in &found.common_prefixes {
            if partition_of(Path::new(folder.as_ref())).is_some() {
                let below: Vec<ObjectMeta> =
                    store.list(Some(folder)).try_collect().await.map_err(of)?;
                found.objects.extend(below);
            }
        }
        Ok(found.objects)
    })?;
    let mut files = Vec::new();
    for meta in listed {
        let Some(inside) = inside(key, &meta) else { continue };
        let mut parts: Vec<&str> = inside.split('/').collect();
        if parts.iter().any(|part| part.starts_with('.')) {
            continue;
        }
        parts.pop();
        let partition: Option<Vec<_>> =
            parts.iter().map(|part| partition_of(Path::new(part))).collect();
        let Some(partition) = partition else { continue };
        let file = entry(address, object, &meta, partition);
        if format_of(&file.path).is_some_and(|(format, _)| format.is_table(&file.file.source())) {
            files.push(file);
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn objects(address: &Address, object: &Object, path: &Path) -> Result<Vec<ObjectMeta>> {
    let Address::S3 { .. } = address else { return Ok(Vec::new()) };
    let asked = object.clone();
    answered(path, async move {
        let at = Some(&asked.location).filter(|prefix| !prefix.as_ref().is_empty());
        let listed = asked.store.list(at).try_collect().await;
        listed.map_err(|error| Refusal::of(&error))
    })
}

/// An object's name below a folder.
fn inside<'m>(key: &str, meta: &'m ObjectMeta) -> Option<&'m str> {
    let inside = meta.location.as_ref().strip_prefix(key.trim_end_matches('/'))?;
    let inside = inside.strip_prefix('/').unwrap_or(inside);
    (!inside.is_empty()).then_some(inside)
}

fn entry(
    address: &Address,
    object: &Object,
    meta: &ObjectMeta,
    partition: Vec<(String, String)>,
) -> Entry {
    let bucket = match address {
        Address::S3 { bucket, .. } => bucket.as_str(),
        Address::Web { .. } => "",
    };
    let path = PathBuf::from(format!("s3://{bucket}/{}", meta.location));
    let object = Object { location: meta.location.clone(), ..object.clone() };
    Entry { file: RemoteFile::new(path.clone(), object, meta), path, partition }
}
