//! Columns that have been made narrow: the kernel that does it, and pipelines over them, on the
//! host's compiler.

use std::sync::Arc;

use headrace_columns::repr::Repr;
use headrace_cuda::parts::{ColumnForm, ColumnLayout, Narrowing, narrow_source};
use headrace_cuda::{CudaProgram, SegmentLayout, Tuning};
use headrace_ir::ValueRange;
use headrace_pipeline::bound::Bound;

use crate::corpus;
use crate::data::{ColumnData, SegmentData, Shape, Table};
use crate::differential::{assert_same, bound_of, on_cpu, shapes};
use crate::shim::{Memory, NarrowColumn, build_library, on_shim_narrow, run};

/// The kernel, ready to run on the host.
struct NarrowKernel {
    _folder: tempfile::TempDir,
    library: std::path::PathBuf,
}

impl NarrowKernel {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = build_library(folder.path(), narrow_source().text, "headrace_narrow");
        Self { _folder: folder, library }
    }

    /// The column's differences, or `None` if a value did not fit.
    fn narrow(
        &self,
        narrowing: Narrowing,
        column: &ColumnData,
        rows: usize,
        skew: usize,
    ) -> Option<Vec<u8>> {
        let mut values = Memory::of(&column.values);
        let mut validity = column.validity.as_ref().map(|bits| Memory::of(bits));
        let bytes = narrowing.bytes(rows as u32) as usize;
        let (mut deltas, mut misfit) = (Memory::zeroed(bytes), Memory::zeroed(16));
        let params = narrowing.params(
            rows as u32,
            values.address() + skew as u64,
            validity.as_mut().map_or(0, |bits| bits.address() + skew as u64),
            deltas.address(),
            misfit.address(),
        );
        run(&self.library, &params, 3);
        (misfit.bytes(4) == [0; 4]).then(|| deltas.bytes(bytes))
    }
}

/// Every column that becomes narrow, by segment; `leave` says which segments stay plain.
fn narrowed(
    kernel: &NarrowKernel,
    bound: &Bound,
    table: &Table,
    leave: impl Fn(usize) -> bool,
) -> Vec<Vec<Option<NarrowColumn>>> {
    let of_column = |segment: &SegmentData, register: usize| {
        let column = &segment.columns[register];
        let narrowing = Narrowing::of(bound, register, ColumnForm::of(&column.encoding))?;
        let bytes = kernel.narrow(narrowing, column, segment.rows, table.shape.skew);
        let bytes = bytes.expect("what is claimed of the column is true");
        Some(NarrowColumn { bytes, form: narrowing.form(), base: narrowing.base })
    };
    let of_segment = |(index, segment): (usize, &SegmentData)| {
        let registers = 0..segment.columns.len();
        registers.map(|r| if leave(index) { None } else { of_column(segment, r) }).collect()
    };
    table.segments.iter().enumerate().map(of_segment).collect()
}

fn layout(table: &Table, narrow: &[Vec<Option<NarrowColumn>>]) -> SegmentLayout {
    let column = |(column, narrow): (&ColumnData, &Option<NarrowColumn>)| ColumnLayout {
        form: narrow.as_ref().map_or(ColumnForm::of(&column.encoding), |narrow| narrow.form),
        validity: column.validity.is_some(),
    };
    let layouts = table.segments.iter().zip(narrow).map(|(segment, narrow)| SegmentLayout {
        columns: segment.columns.iter().zip(narrow).map(column).collect(),
    });
    SegmentLayout::merged(layouts).unwrap()
}

/// Runs a part of the corpus over narrow columns.
fn compare(every: usize, leave: impl Fn(usize) -> bool + Copy) {
    let kernel = NarrowKernel::new();
    let builds = corpus::builds();
    for (number, case) in corpus::cases().into_iter().enumerate().filter(|(n, _)| n % every == 0) {
        let shape = Shape { code_bytes: 4, ..shapes()[number / every % 4] };
        let table = Table::random(shape, &[1000, 130, 7, 1]);
        let bound = bound_of(&case, &table, &builds).unwrap();
        let narrow = narrowed(&kernel, &bound, &table, leave);
        assert!(narrow.iter().flatten().flatten().count() >= 3);
        let layout = layout(&table, &narrow);
        let program = CudaProgram::compile(Arc::clone(&bound), &layout, Tuning::FULL).unwrap();
        let cuda = on_shim_narrow(&bound, &table, &program, &narrow);
        assert_same(case.name, shape, &on_cpu(&bound, &table), &cuda, &program.source);
    }
}

#[test]
fn host_shim_narrow_columns_answer_as_plain_ones_do() {
    compare(5, |_| false);
}

#[test]
fn host_shim_columns_that_are_narrow_in_some_segments_are_one_kernel() {
    compare(9, |segment| segment % 2 == 1);
}

#[test]
fn host_shim_values_outside_what_is_claimed_are_told() {
    let kernel = NarrowKernel::new();
    let column = |values: &[i32], validity: Option<Vec<u8>>| ColumnData {
        encoding: headrace_ir::Encoding::Plain,
        values: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        offsets: None,
        offsets_base: 0,
        validity,
        remap: None,
    };
    let claimed = |min, max| Narrowing::of_plain(&Repr::I32, ValueRange { min, max }).unwrap();
    let within: Vec<i32> = (0..37).map(|i| 100 + i % 50).collect();
    let bytes = kernel.narrow(claimed(100, 149), &column(&within, None), 37, 0).unwrap();
    let expected: Vec<u8> = within.iter().map(|v| (v - 100) as u8).collect();
    assert_eq!(bytes[..37], expected);
    for (at, outside) in [(0, 99), (36, 356), (20, i32::MIN), (20, i32::MAX)] {
        let mut values = within.clone();
        values[at] = outside;
        let told = kernel.narrow(claimed(100, 149), &column(&values, None), 37, 0).is_none();
        assert!(told, "{outside} at {at}");
        // What a NULL holds is of no meaning.
        let mut bits = vec![0xff; 5];
        bits[at / 8] &= !(1 << (at % 8));
        let null = column(&values, Some(bits));
        assert!(kernel.narrow(claimed(100, 149), &null, 37, 0).is_some(), "{outside} at {at}");
    }
    // The extremes of three bytes, in two planes.
    let wide = [0, (1 << 24) - 1, 0x12_3456];
    let bytes = kernel.narrow(claimed(0, (1 << 24) - 1), &column(&wide, None), 3, 0).unwrap();
    assert_eq!(bytes[..6], [0, 0, 0xff, 0xff, 0x56, 0x34]);
    assert_eq!(bytes[16..19], [0, 0xff, 0x12]);
    let too_wide = column(&[1 << 24], None);
    assert!(kernel.narrow(claimed(0, (1 << 24) - 1), &too_wide, 1, 0).is_none());
}
