//! A build on text, as seen by a stream whose text is dictionary codes: the dictionary is
//! looked up once, and each row of the stream needs only its code.

use std::sync::{Arc, PoisonError};

use arrow_array::Array;
use headrace_columns::column::Column;
use headrace_columns::key;
use headrace_columns::repr::{Dictionary, Repr};
use headrace_columns::vector::{Data, Vector};
use headrace_ir::Field;

use crate::ExecError;
use crate::build::fetch::{NO_MATCH, fetch};
use crate::build::{BuildColumn, BuildIndex, BuildOptions, BuildTable, ByCode, Chains};

/// Dictionaries by which one build is remembered.
const DICTIONARIES_MAX: usize = 4;

impl ByCode {
    fn get_or_make(
        &self,
        dictionary: &Arc<Dictionary>,
        make: impl FnOnce() -> Result<BuildTable, ExecError>,
    ) -> Result<Arc<BuildTable>, ExecError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = match known.iter().position(|(of, _)| Arc::ptr_eq(of, dictionary)) {
            Some(position) => known.remove(position),
            None => (Arc::clone(dictionary), Arc::new(make()?)),
        };
        let build = Arc::clone(&latest.1);
        known.truncate(DICTIONARIES_MAX - 1);
        known.insert(0, latest);
        Ok(build)
    }
}

impl BuildTable {
    /// The same build with codes of `dictionary` in place of its one text key. Rows whose key
    /// is not in the dictionary are left out: nobody can ask for them. The same dictionary gets
    /// the same build.
    pub(crate) fn keyed_by_code(
        &self,
        dictionary: &Arc<Dictionary>,
    ) -> Result<Arc<Self>, ExecError> {
        let BuildIndex::Chains(chains) = &self.index else {
            return Err(ExecError::Internal("a direct-address build on text".into()));
        };
        chains.by_code.get_or_make(dictionary, || self.recoded(chains, dictionary))
    }

    fn recoded(&self, chains: &Chains, dictionary: &Arc<Dictionary>) -> Result<Self, ExecError> {
        let (mut codes, mut entries) = (Vec::new(), Vec::new());
        for code in 0..dictionary.values.len() {
            let text = Vector::constant(Data::Str(vec![dictionary.values.value(code)]), false);
            let encoded = key::encode(std::iter::once(&text), 1);
            let heads = chains.find_encoded(&encoded, NO_MATCH);
            let heads =
                heads.ok_or_else(|| ExecError::Internal("a build on text by number".into()))?;
            let mut entry = heads[0];
            while entry != NO_MATCH {
                codes.push(code as i32);
                entries.push(entry);
                entry = chains.next[entry as usize];
            }
        }
        let rows = entries.len();
        let key_field = self.keys.first().map_or_else(
            || Err(ExecError::Internal("a build without keys".into())),
            |field| Ok(Field { nullable: false, ..field.clone() }),
        )?;
        let repr = Repr::Code(Arc::clone(dictionary));
        let codes = Column::of(repr.clone(), &Vector::new(Data::I32(codes.into())), rows)?;
        let keys = vec![BuildColumn { field: key_field, repr, parts: vec![&codes] }];
        let fetched = (0..self.payload.len()).map(|column| {
            let repr = self.payload[column].repr.clone();
            Ok(Column::of(repr, &fetch(self, column, &entries)?, rows)?)
        });
        let fetched = fetched.collect::<Result<Vec<Column>, ExecError>>()?;
        let payload = self.payload.iter().zip(&fetched).map(|(own, column)| {
            let (field, repr) = (own.field.clone(), own.repr.clone());
            BuildColumn { field, repr, parts: vec![column] }
        });
        let payload = payload.collect();
        let options = BuildOptions { source_rows: self.source_rows, ..BuildOptions::default() };
        let mut build = Self::assemble(&self.name, keys, payload, options)?;
        build.has_null_key = self.has_null_key;
        // Whether the build is empty decides `NOT IN`, so its own rows count.
        build.rows = self.rows;
        Ok(build)
    }
}
