//! Groups as columns of the device: another pipeline that reads them there finds what the host makes of
//! them.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use headrace_cuda::parts::{
    ColumnTarget, DeviceColumn, DeviceGroups, DeviceSegment, FirstStep, GroupColumn, NumberOrder,
    first_groups_source, group_column_source, last_wanted, listing,
};
use headrace_cuda::{CudaProgram, RowOutput, SegmentLayout, Tuning};
use headrace_ir::{AggregateOutput, Field, FirstGroups, Input, OrderKey, Pipeline, Sink, Source};
use headrace_pipeline::SourceInfo;
use headrace_pipeline::bind::{BindOptions, Lookups, bind};
use headrace_pipeline::bound::{Bound, BoundSink, Grouping};
use headrace_pipeline::cpu::WorkerOptions;

use crate::corpus;
use crate::data::Table;
use crate::differential::{Answer, bound_with, failed_of, lines, on_cpu, shapes, text_shapes};
use crate::shim::{LeftOnShim, Memory, build_library, run, run_segments, segments, texts_of};

/// The kernel, ready to run on the host.
struct Kernel {
    _folder: tempfile::TempDir,
    library: PathBuf,
}

impl Kernel {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = group_column_source();
        let library = build_library(folder.path(), source.text, "headrace_group_column");
        Self { _folder: folder, library }
    }

    /// Makes a column; whether all fit.
    fn make(&self, column: &GroupColumn, left: &LeftOnShim, values: u64, validity: u64) -> bool {
        let mut misfit = Memory::zeroed(16);
        let to = ColumnTarget { values, validity, misfit: misfit.address() };
        run(&self.library, &column.params(&left.groups, (0, left.rows), to), 3);
        misfit.bytes(4) == [0; 4]
    }
}

const ROOM: (u64, u64) = (u64::MAX, u64::MAX);

/// All columns of the groups that a run left, as a pipeline over them puts them out; an error if a value does
/// not fit.
fn read_back(kernel: &Kernel, bound: &Bound, columns: &[GroupColumn], left: &LeftOnShim) -> Answer {
    let fits = |column: &GroupColumn| kernel.make(column, left, 0, 0);
    if !columns.iter().filter(|column| column.may_misfit()).all(fits) {
        return Err("does not fit".into());
    }
    let BoundSink::Aggregate { keys, calls, .. } = &bound.sink else { panic!("no groups") };
    let fields = keys.iter().map(|key| &key.field).chain(calls.iter().map(|call| &call.field));
    let fields: Vec<Field> = fields.cloned().collect();
    let ordinals = (0..fields.len()).collect();
    let source =
        Source { input: Input::Stage(0), table: "groups".into(), columns: fields, ordinals };
    let sink = Sink::Rows { columns: source.all_columns(), limit: None };
    let pipeline = Pipeline { source, steps: vec![], sink };
    let info = SourceInfo {
        columns: columns.iter().map(GroupColumn::info).collect(),
        rows_max: left.rows.max(1),
        remaps: vec![],
    };
    let options = BindOptions { lookups: Lookups::Gpu, ..BindOptions::default() };
    let reader = Arc::new(bind(&pipeline, &info, &[], &options).unwrap());
    let layout = SegmentLayout { columns: columns.iter().map(GroupColumn::layout).collect() };
    let program = CudaProgram::compile(Arc::clone(&reader), &layout, Tuning::FULL).unwrap();
    let mut memory = Vec::new();
    let made = columns.iter().map(|column| {
        let mut values = Memory::zeroed(column.value_bytes(left.rows) as usize);
        let mut validity = Memory::zeroed(column.validity_bytes(left.rows) as usize);
        let is_nullable = column.layout().validity;
        let validity_address = if is_nullable { validity.address() } else { 0 };
        assert!(kernel.make(column, left, values.address(), validity_address));
        let made = DeviceColumn {
            values: values.address(),
            form: column.layout().form,
            validity: is_nullable.then_some(validity_address),
            ..DeviceColumn::default()
        };
        memory.extend([values, validity]);
        made
    });
    let segment = DeviceSegment { rows: left.rows as u32, columns: made.collect() };
    let room = ((ROOM, &WorkerOptions::new(1 << 30)), None);
    let (batches, ..) = run_segments((&reader, &program), &[segment], room, &mut |_| {})?;
    Ok(lines(&batches))
}

/// What the columns of a case's groups are; `None`: they are not all made on the device, or there are none.
fn compared(kernel: &Kernel, case: &corpus::Case, table: &Table) -> Option<(Answer, Answer)> {
    let hashed = BindOptions { dense_groups_max: 0, ..BindOptions::default() };
    let bound = bound_with(case, table, &corpus::builds(), hashed).unwrap();
    if !matches!(bound.sink, BoundSink::Aggregate { grouping: Grouping::Hash, .. }) {
        return None;
    }
    let program = CudaProgram::compile(Arc::clone(&bound), &table.layout(), Tuning::FULL).ok()?;
    let layout = program.group_table.as_ref()?;
    let columns = GroupColumn::of(&bound, layout, &program.accumulators).ok()?;
    let mut memory = Vec::new();
    let segments = segments(table, &[], &mut memory);
    let mut found = None;
    let mut take = |left: &LeftOnShim| found = Some(read_back(kernel, &bound, &columns, left));
    let room = ((ROOM, &WorkerOptions::new(1 << 30)), None);
    // An error of the groups is compared, too.
    let ran = run_segments((&bound, &program), &segments, room, &mut take);
    let found = found.or_else(|| ran.err().map(Err))?;
    Some((on_cpu(&bound, table), found))
}

#[test]
fn host_shim_groups_as_columns_are_what_the_host_makes_of_them() {
    let kernel = Kernel::new();
    let cases = corpus::cases().into_iter().chain(corpus::results_by_key());
    let plain = cases.flat_map(|case| {
        let case = Arc::new(case);
        shapes()[1..3].to_vec().into_iter().map(move |shape| (Arc::clone(&case), shape))
    });
    let texts = corpus::plain_texts().into_iter().map(|case| (Arc::new(case), text_shapes()[1]));
    let work =
        plain.chain(texts).map(|(case, shape)| (format!("{} {shape:?}", case.name), (case, shape)));
    let compared_cases = Mutex::new(Vec::new());
    let failed = failed_of(work, |(case, shape)| {
        let table = Table::random(shape, &[1000, 130, 7, 1]);
        let Some((host, device)) = compared(&kernel, &case, &table) else { return };
        match (&host, &device) {
            (Err(_), Err(_)) => {}
            _ => assert_eq!(host, device, "{}", case.name),
        }
        compared_cases.lock().unwrap().push((case.name, host.is_ok()));
    });
    assert!(failed.is_empty(), "{failed:#?}");
    let compared = compared_cases.into_inner().unwrap();
    let right = compared.iter().filter(|(_, is_right)| *is_right).count();
    assert!(right >= 100, "only these were compared: {compared:?}");
    for own in corpus::results_by_key() {
        let is_compared = compared.iter().any(|(name, is_right)| *name == own.name && *is_right);
        assert!(is_compared, "{} was not compared", own.name);
    }
}

/// Lists groups as [`listing`] says.
fn list_groups(
    library: &Path,
    from: (u64, u64),
    (ranges, room): &(Vec<RangeInclusive<u64>>, u64),
    (count, list): (&mut Memory, &mut Memory),
) {
    for numbers in ranges {
        let (count, list) = (count.address(), list.address());
        let (first, last) = (*numbers.start(), *numbers.end());
        let step = FirstStep::List { first, last, room: *room, count, list };
        run(library, &step.params(from), 3);
    }
}

/// Where the column is the whole order, the list has the wanted number of groups, with the numbers that come first.
fn any_of_those_that_tie_will_do(
    library: &Path,
    (numbers, rows): (&mut Memory, u64),
    (wanted, last): (u64, u64),
) {
    if matches!(last, 0 | u64::MAX) || wanted > rows {
        return;
    }
    // As where very many tie.
    let (ranges, room) = listing((wanted, u64::MAX), last, true);
    assert_eq!(room, wanted);
    let (mut count, mut list) = (Memory::zeroed(16), Memory::zeroed(room as usize * 4));
    let from = (numbers.address(), rows);
    list_groups(library, from, &(ranges, room), (&mut count, &mut list));
    let words = numbers.bytes(rows as usize * 8);
    let number = |group: usize| u64::from_le_bytes(words[8 * group..][..8].try_into().unwrap());
    let mut all: Vec<u64> = (0..rows as usize).map(number).collect();
    all.sort_unstable();
    let groups = list.bytes(room as usize * 4);
    let groups = groups.as_chunks::<4>().0.iter().map(|group| u32::from_le_bytes(*group));
    let mut found: Vec<u64> = groups.map(|group| number(group as usize)).collect();
    found.sort_unstable();
    assert_eq!(found, all[..wanted as usize]);
}

/// The groups of a run that come first by a column, as the steps of the device leave them, as output.
fn first_on_shim(
    (bound, program, library): (&Arc<Bound>, &CudaProgram, &Path),
    kernel: &Kernel,
    column: &GroupColumn,
    (order, wanted): (NumberOrder, u64),
    left: &LeftOnShim,
) -> Answer {
    let mut numbers = Memory::zeroed(left.rows as usize * 8);
    let params = column.order_params(&left.groups, left.rows, (order, numbers.address()));
    run(&kernel.library, &params, 3);
    let from = (numbers.address(), left.rows);
    let count = |prefix, shift| {
        let mut counts = Memory::zeroed(256 * 8);
        let step = FirstStep::Count { prefix, shift, counts: counts.address() };
        run(library, &step.params(from), 3);
        let bytes = counts.bytes(256 * 8);
        let of = |digit: usize| u64::from_le_bytes(bytes[8 * digit..][..8].try_into().unwrap());
        Ok::<_, String>(std::array::from_fn(of))
    };
    let (last, chosen) = last_wanted((wanted, 0), count)?;
    let (mut listed, mut list) = (Memory::zeroed(16), Memory::zeroed(chosen as usize * 4));
    let whole = listing((wanted, chosen), last, false);
    list_groups(library, from, &whole, (&mut listed, &mut list));
    assert_eq!(listed.bytes(8), chosen.to_le_bytes());
    any_of_those_that_tie_will_do(library, (&mut numbers, left.rows), (wanted, last));
    let mut gathered = |from: u64, bytes: u64| {
        let mut to = Memory::zeroed((chosen * bytes) as usize);
        let (list, words) = (list.address(), bytes / 8);
        let step = FirstStep::Gather { list, to: to.address(), words };
        run(library, &step.params((from, chosen)), 3);
        to.bytes((chosen * bytes) as usize)
    };
    let layout = program.group_table.as_ref().unwrap();
    let keys = gathered(left.groups.keys, layout.keys.words as u64 * 8);
    let arrays = program.accumulators.iter().zip(&left.groups.accumulators);
    let entries: Vec<_> = arrays.map(|(kind, at)| (*kind, gathered(*at, kind.bytes()))).collect();
    let entries = entries.iter().map(|(kind, bytes)| (*kind, bytes.as_slice()));
    let kept = layout.kept_texts(&keys, entries.clone(), (left.groups.texts, u64::MAX)).unwrap();
    let texts: Vec<Vec<&[u8]>> = kept.iter().map(|values| texts_of(values)).collect();
    let texts = texts.iter().map(Vec::as_slice).collect();
    let groups = DeviceGroups::new(layout, &keys, entries, texts).unwrap();
    let batches = Mutex::new(Vec::new());
    let emit = |batch| {
        batches.lock().unwrap().push(batch);
        true
    };
    let output = RowOutput::new(bound, &WorkerOptions::new(1 << 30), &emit).unwrap();
    output.take_groups(&groups, true).map_err(|error| error.to_string())?;
    output.finish().map_err(|error| error.to_string())?;
    Ok(lines(&batches.into_inner().unwrap()))
}

/// By each column that has an order, either way: what the steps of the device leave of the groups is enough for the host to find the
/// first.
#[test]
fn host_shim_the_first_groups_of_the_device_are_the_first_of_all() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let library = build_library(folder.path(), first_groups_source().text, "headrace_first_groups");
    let cases = corpus::cases().into_iter().chain(corpus::results_by_key());
    let cases = cases.map(|case| (case, shapes()[1]));
    let texts = corpus::plain_texts().into_iter().map(|case| (case, text_shapes()[1]));
    let work = cases.chain(texts).map(|(case, shape)| (case.name.to_string(), (case, shape)));
    let compared = Mutex::new(0);
    let failed = failed_of(work, |(case, shape)| {
        let table = Table::random(shape, &[1000, 130, 7, 1]);
        let hashed = BindOptions { dense_groups_max: 0, ..BindOptions::default() };
        let Sink::Aggregate { keys, calls, output: AggregateOutput::Final, .. } = &case.sink else {
            return;
        };
        for column in 0..keys.len() + calls.len() {
            let (descending, nulls_first) = (column % 2 == 0, column % 3 == 0);
            let mut first = case.clone();
            if let Sink::Aggregate { output, .. } = &mut first.sink {
                let by = vec![OrderKey { column, descending, nulls_first }];
                *output = AggregateOutput::First(FirstGroups { by, groups: 5, with_ties: true });
            }
            let bound = bound_with(&first, &table, &corpus::builds(), hashed).unwrap();
            if !matches!(bound.sink, BoundSink::Aggregate { grouping: Grouping::Hash, .. }) {
                return;
            }
            let Ok(program) =
                CudaProgram::compile(Arc::clone(&bound), &table.layout(), Tuning::FULL)
            else {
                return;
            };
            let layout = program.group_table.as_ref().unwrap();
            let Ok(columns) = GroupColumn::of(&bound, layout, &program.accumulators) else {
                return;
            };
            if !columns[column].has_order() {
                continue;
            }
            let mut memory = Vec::new();
            let segments = segments(&table, &[], &mut memory);
            let mut found = None;
            let order = NumberOrder { descending, nulls_first };
            let mut take = |left: &LeftOnShim| {
                let what = (&bound, &program, &*library);
                found = Some(first_on_shim(what, &kernel, &columns[column], (order, 5), left));
            };
            let room = ((ROOM, &WorkerOptions::new(1 << 30)), None);
            if run_segments((&bound, &program), &segments, room, &mut take).is_ok() {
                assert_eq!(on_cpu(&bound, &table), found.unwrap(), "{} by {column}", case.name);
                *compared.lock().unwrap() += 1;
            }
        }
    });
    assert!(failed.is_empty(), "{failed:#?}");
    let compared = compared.into_inner().unwrap();
    assert!(compared >= 100, "only {compared} orders were compared");
}

#[test]
fn host_shim_a_total_beyond_its_type_is_told_before_anything_is_read() {
    let table = Table::random(shapes()[1], &[1000]);
    let (host, device) =
        compared(&Kernel::new(), &corpus::total_beyond_its_type(), &table).unwrap();
    assert!(host.is_err_and(|error| error.contains("overflow")), "a total of 2^72");
    assert_eq!(device, Err("does not fit".into()));
}
