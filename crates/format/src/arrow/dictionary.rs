//! Unification of the dictionaries of a table's files.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StringArray};
use arrow_schema::DataType;

/// The dictionary of a text column over all files of a table.
#[derive(Clone, Debug)]
pub struct TableDictionary {
    /// Distinct values, sorted by bytes, none NULL: codes compare like their texts.
    pub values: Arc<StringArray>,
    /// Distinct translations of file codes into codes of `values`. An entry of -1 is NULL.
    pub remaps: Vec<Arc<[i32]>>,
    /// By file: its remap; `None`: the codes are the same.
    remap_of_file: Vec<Option<u32>>,
}

impl TableDictionary {
    /// For values that no file has codes for.
    pub fn of_codes(values: Arc<StringArray>) -> Self {
        Self { values, remaps: Vec::new(), remap_of_file: Vec::new() }
    }

    /// For some of the files.
    pub fn only(&self, wanted: &[usize]) -> Self {
        let remap_of = |&file: &usize| self.remap_of_file.get(file).copied().flatten();
        Self { remap_of_file: wanted.iter().map(remap_of).collect(), ..self.clone() }
    }

    /// The translation of a file's codes into the table's, with its number among the remaps; `None`
    /// if they are the same.
    pub fn remap(&self, file: usize) -> Option<(u32, &Arc<[i32]>)> {
        let number = (*self.remap_of_file.get(file)?)?;
        Some((number, self.remaps.get(number as usize)?))
    }
}

/// Unifies the dictionaries of a column, one per file.
///
/// # Errors
/// The reason why unification is impossible: more values than `i32` codes, or more than 2 GiB of
/// text.
pub(crate) fn unify(files: &[ArrayRef]) -> Result<TableDictionary, String> {
    let (sources, source_of_file) = distinct(files)?;
    let sorted = match sources.as_slice() {
        [single] if is_sorted_set(single) => single.clone(),
        _ => Arc::new(sorted_set(&sources)?),
    };
    if i32::try_from(sorted.len()).is_err() {
        return Err(format!("{} distinct values", sorted.len()));
    }
    if sources.iter().all(|source| Arc::ptr_eq(source, &sorted)) {
        // Its codes are the table's.
        return Ok(TableDictionary::of_codes(sorted));
    }
    // One for all sources: they may be as many as the files.
    let codes: HashMap<&str, i32> = sorted.iter().flatten().zip(0..).collect();
    let mut remaps = Vec::new();
    let mut number_of_source = Vec::with_capacity(sources.len());
    for source in &sources {
        let remap = remap(source, &codes);
        number_of_source.push(remap.is_some().then_some(remaps.len() as u32));
        remaps.extend(remap);
    }
    drop(codes);
    let remap_of_file = source_of_file.into_iter().map(|source| number_of_source[source]).collect();
    Ok(TableDictionary { values: sorted, remaps, remap_of_file })
}

/// The distinct dictionaries, and the one of each file: log writers give every file the same, which
/// is then stored and examined once.
fn distinct(files: &[ArrayRef]) -> Result<(Vec<Arc<StringArray>>, Vec<usize>), String> {
    if let [file] = files {
        return Ok((vec![plain_text(file)?], vec![0]));
    }
    let mut sources: Vec<Arc<StringArray>> = Vec::new();
    let mut by_memory: HashMap<Memory, usize> = HashMap::new();
    let mut by_hash: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut source_of_file = Vec::with_capacity(files.len());
    for values in files {
        let memory = memory(values);
        if let Some(known) = by_memory.get(&memory) {
            source_of_file.push(*known);
            continue;
        }
        let text = plain_text(values)?;
        let mut hasher = DefaultHasher::new();
        text.iter().for_each(|value| value.hash(&mut hasher));
        let candidates = by_hash.entry(hasher.finish()).or_default();
        let known = candidates.iter().copied().find(|i| sources[*i] == text);
        let source = known.unwrap_or_else(|| {
            candidates.push(sources.len());
            sources.push(text);
            sources.len() - 1
        });
        by_memory.insert(memory, source);
        source_of_file.push(source);
    }
    Ok((sources, source_of_file))
}

/// The address of an array's bytes: equal for clones, while `files` hold them.
type Memory = (usize, usize, usize, Vec<usize>);

fn memory(values: &ArrayRef) -> Memory {
    let data = values.to_data();
    let validity = data.nulls().map_or(0, |nulls| nulls.buffer().as_ptr().addr());
    let buffers = data.buffers().iter().map(|buffer| buffer.as_ptr().addr()).collect();
    (data.len(), data.offset(), validity, buffers)
}

fn plain_text(values: &ArrayRef) -> Result<Arc<StringArray>, String> {
    let values = match values.data_type() {
        DataType::Utf8 => values.clone(),
        _ => arrow_cast::cast(values, &DataType::Utf8).map_err(|e| e.to_string())?,
    };
    Ok(Arc::new(values.as_string::<i32>().clone()))
}

fn is_sorted_set(values: &StringArray) -> bool {
    values.null_count() == 0
        && (1..values.len()).all(|i| values.value(i - 1).as_bytes() < values.value(i).as_bytes())
}

fn sorted_set(sources: &[Arc<StringArray>]) -> Result<StringArray, String> {
    let mut all: Vec<&str> = sources.iter().flat_map(|s| s.iter().flatten()).collect();
    all.sort_unstable();
    all.dedup();
    let bytes: usize = all.iter().map(|value| value.len()).sum();
    if i32::try_from(bytes).is_err() {
        return Err(format!("{bytes} bytes of distinct text"));
    }
    Ok(StringArray::from_iter_values(all))
}

/// `None` if the codes are the same.
fn remap(source: &StringArray, codes: &HashMap<&str, i32>) -> Option<Arc<[i32]>> {
    let remap: Arc<[i32]> = source
        .iter()
        .map(|value| value.and_then(|value| codes.get(value).copied()).unwrap_or(-1))
        .collect();
    let identity = remap.iter().zip(0..).all(|(code, i)| *code == i);
    (!identity).then_some(remap)
}

/// Code type of a table whose files have codes of the given types and which has `values` distinct
/// values: signed, at least as wide as the widest of them, and wide enough.
///
/// Never less than 32 bits: where Arrow concatenates batches of different dictionaries, equal values may get several
/// codes, which are then more than the values.
pub(crate) fn table_code_type<'a>(
    files: impl Iterator<Item = &'a DataType>,
    values: usize,
) -> DataType {
    let widest = files.filter_map(DataType::primitive_width).max().unwrap_or(1);
    let is_enough = widest <= size_of::<i32>() && i32::try_from(values).is_ok();
    if is_enough { DataType::Int32 } else { DataType::Int64 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow_array::{LargeStringArray, StringViewArray};

    use super::*;

    fn text(values: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringArray::from(values.to_vec()))
    }

    #[test]
    fn orders_gaps_and_nulls_are_mapped() {
        let files = [
            text(&[Some("b"), Some("a")]),
            text(&[Some("a"), Some("b"), Some("c")]),
            text(&[None, Some("c"), Some("c")]),
            text(&[]),
            text(&[Some("b"), Some("a")]),
        ];
        let unified = unify(&files).unwrap();
        let values: Vec<_> = unified.values.iter().flatten().collect();
        assert_eq!(values, ["a", "b", "c"]);
        let remaps: Vec<_> = (0..5).map(|i| unified.remap(i).map(|(_, remap)| &**remap)).collect();
        assert_eq!(remaps[0], Some([1, 0].as_slice()));
        assert_eq!(remaps[1], None);
        assert_eq!(remaps[2], Some([-1, 2, 2].as_slice()));
        assert_eq!(remaps[3], None);
        assert_eq!(unified.remap(0).unwrap().0, unified.remap(4).unwrap().0);
        assert_eq!(unified.remaps.len(), 2);
    }

    #[test]
    fn a_sorted_dictionary_is_taken_as_it_is_whatever_its_layout() {
        let large: ArrayRef = Arc::new(LargeStringArray::from(vec!["", "Z", "a", "é"]));
        let view: ArrayRef = Arc::new(StringViewArray::from(vec!["", "Z", "a", "é"]));
        let unified = unify(&[large, view]).unwrap();
        assert!(unified.remaps.is_empty());
        assert_eq!(unified.values.value(3), "é");
        assert_eq!(unify(&[]).unwrap().values.len(), 0);
    }

    #[test]
    fn code_types_are_wide_enough() {
        use DataType::*;
        assert_eq!(table_code_type([Int8, Int16].iter(), 5), Int32);
        assert_eq!(table_code_type([Int8].iter(), 1 << 31), Int64);
        assert_eq!(table_code_type([UInt32].iter(), 1), Int32);
        assert_eq!(table_code_type([UInt64].iter(), 1), Int64);
    }
}
