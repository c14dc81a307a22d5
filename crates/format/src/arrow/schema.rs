//! The common parts of a table's files, stored once: columns, their entries in a batch's metadata,
//! dictionaries.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_data::ArrayData;
use arrow_schema::DataType;
use headrace_ir::Encoding;

use super::fields::{FileField, Footprint};
use super::types::ir_type;

/// Values by dictionary id.
pub(crate) type Dictionaries = HashMap<i64, ArrayData>;

/// The columns of a file, without its own statistics.
#[derive(Debug, PartialEq)]
pub(crate) struct FileSchema {
    pub fields: Vec<FileField>,
    /// By field.
    pub places: Vec<Place>,
    /// Entries of all fields in the metadata of a batch, without variadic buffers.
    pub total: Footprint,
    /// Metadata version 4.
    pub unions_have_validity: bool,
    pub metadata: HashMap<String, String>,
}

/// Start of a field's entries in the metadata of a batch, without variadic buffers, and the
/// encoding of its values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    pub start: Footprint,
    pub lie: Option<Lie>,
}

/// The encoding of a field that pipelines can take in place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lie {
    pub encoding: Encoding,
    /// Bits of a value, or of an offset.
    pub row_bits: u64,
    /// Whether the values are those of a field within this one: floats of lists.
    pub is_list: bool,
}

impl Lie {
    fn of(field: &FileField) -> Option<Lie> {
        let encoding = field.encoding()?;
        let row_bits = match encoding {
            Encoding::Bits => 1,
            Encoding::Offsets { offset_bytes } => u64::from(offset_bytes) * 8,
            _ => encoding.values_bytes(&ir_type(&field.table_type())?, 8)?,
        };
        let is_list = matches!(field.data_type(), DataType::FixedSizeList(..));
        Some(Lie { encoding, row_bits, is_list })
    }

    /// The buffer of the values, or of the offsets, among those of the field: behind its own validity and that of a list's
    /// items.
    pub fn buffer(&self) -> usize {
        if self.is_list { 2 } else { 1 }
    }

    /// Bytes of the values, or of the offsets, of this many rows. At most 2^64 - 1: the number of
    /// rows is a file's claim.
    pub fn bytes(&self, rows: u64) -> u64 {
        let entries =
            u128::from(rows) + u128::from(matches!(self.encoding, Encoding::Offsets { .. }));
        let bytes = (entries * u128::from(self.row_bits)).div_ceil(8);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl FileSchema {
    /// Repeated names get numbers.
    pub fn new(
        mut fields: Vec<FileField>,
        metadata: HashMap<String, String>,
        unions_have_validity: bool,
    ) -> Self {
        let unique = unique_names(fields.iter().map(FileField::name));
        for (field, name) in fields.iter_mut().zip(unique.into_iter().flatten()) {
            field.field.set_name(name);
        }
        let mut total = Footprint::default();
        let mut places = Vec::with_capacity(fields.len());
        for field in &fields {
            places.push(Place { start: total, lie: Lie::of(field) });
            total = total.plus(field.footprint(unions_have_validity));
        }
        FileSchema { fields, places, total, unions_have_validity, metadata }
    }

    /// Start of a field's entries in a batch with this many variadic buffers.
    pub fn start(&self, variadics: &[u32], field: usize) -> Footprint {
        let start = self.places[field].start;
        let variadic: u64 = variadics.iter().take(start.variadics).map(|n| u64::from(*n)).sum();
        Footprint { buffers: start.buffers + variadic as usize, ..start }
    }

    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.fields.iter().for_each(|field| field.field.hash(&mut hasher));
        hasher.finish()
    }
}

/// The shared data of a table's files.
#[derive(Default)]
pub(crate) struct Shared {
    schemas: Known<FileSchema>,
    dictionaries: Known<Dictionaries>,
}

impl Shared {
    pub fn schema(&self, schema: FileSchema) -> Arc<FileSchema> {
        self.schemas.get(schema.hash(), schema)
    }

    pub fn dictionaries(&self, dictionaries: Dictionaries) -> Arc<Dictionaries> {
        let mut ids: Vec<_> = dictionaries.keys().copied().collect();
        ids.sort_unstable();
        let mut hasher = DefaultHasher::new();
        for data in ids.iter().filter_map(|id| dictionaries.get(id)) {
            data.len().hash(&mut hasher);
            data.buffers().iter().for_each(|buffer| hasher.write(buffer));
        }
        self.dictionaries.get(hasher.finish(), dictionaries)
    }
}

/// Values that were seen, by hash.
struct Known<T>(Mutex<HashMap<u64, Vec<Arc<T>>>>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Known(Mutex::default())
    }
}

impl<T: PartialEq> Known<T> {
    /// The first of equal values.
    fn get(&self, hash: u64, value: T) -> Arc<T> {
        // Nothing in here panics halfway.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same_hash = known.entry(hash).or_default();
        if let Some(same) = same_hash.iter().find(|known| ***known == value) {
            return same.clone();
        }
        let value = Arc::new(value);
        same_hash.push(value.clone());
        value
    }
}

/// Unique names: a repeated one gets a number, `a`, `a_1`. `None`: all are unique.
pub fn unique_names<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Option<Vec<String>> {
    let taken: HashSet<&str> = names.clone().collect();
    if taken.len() == names.clone().count() {
        return None;
    }
    let (mut seen, mut given) = (HashSet::new(), HashSet::<String>::new());
    // How often each name was there: of ten thousand equal ones no number is tried twice.
    let mut times: HashMap<&str, usize> = HashMap::new();
    let name = |name: &'a str| {
        if seen.insert(name) {
            return name.to_string();
        }
        let number = times.entry(name).or_default();
        loop {
            *number += 1;
            let numbered = format!("{name}_{number}");
            // A later column may have that name.
            if !taken.contains(numbered.as_str()) && given.insert(numbered.clone()) {
                return numbered;
            }
        }
    };
    Some(names.map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_come_again_have_numbers() {
        let unique = |names: &[&str]| unique_names(names.iter().copied());
        assert_eq!(unique(&["a", "b", "A", ""]), None);
        let given = |names: &[&str]| unique(names).unwrap_or_default().join(" ");
        assert_eq!(given(&["a", "a", "b", "a"]), "a a_1 b a_2");
        assert_eq!(given(&["a", "a", "a_1", "a_1"]), "a a_2 a_1 a_1_1");
    }
}
