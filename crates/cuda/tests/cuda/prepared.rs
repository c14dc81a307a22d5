//! What the text of a kernel depends on: the shape of a pipeline, not its names, constants,
//! dictionaries or the sizes of its builds; and one layout for all segments of a table.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::StringArray;
use headrace_columns::repr::Dictionary;
use headrace_cuda::parts::ColumnForm;
use headrace_cuda::{CudaDevice, CudaOptions, CudaProgram, SegmentLayout, Tuning};
use headrace_ir::{Expr, Scalar, Sink, Step, Value};
use headrace_pipeline::bind::Lookups;
use headrace_pipeline::bound::{Bound, BoundSink};

use crate::corpus::{self, Case};
use crate::data::{Shape, Table};
use crate::differential::{assert_same, bound_of, on_cpu, shapes};
use crate::gpu::on_gpu;
use crate::shim::on_shim;
use crate::ssb;

/// The same constants, one larger; operands of arithmetic stay, as divisors are part of the text.
fn altered(expr: &Expr) -> Expr {
    let mut expr = expr.clone();
    alter(&mut expr);
    expr
}

fn alter(expr: &mut Expr) {
    match expr {
        Expr::Compare { left, right, .. } => {
            [left, right].into_iter().for_each(|side| match side.as_mut() {
                Expr::Literal(scalar) => alter_scalar(scalar),
                other => alter(other),
            });
        }
        Expr::InList { value, list, .. } => {
            alter(value);
            list.iter_mut().for_each(alter_scalar);
        }
        Expr::Like { pattern, .. } => *pattern = pattern.replace('7', "8"),
        Expr::And(operands) | Expr::Or(operands) => operands.iter_mut().for_each(alter),
        Expr::Not(value) | Expr::IsNull(value) | Expr::Cast { value, .. } => alter(value),
        Expr::Case { branches, .. } => {
            branches.iter_mut().for_each(|(condition, _)| alter(condition));
        }
        _ => {}
    }
}

fn alter_scalar(scalar: &mut Scalar) {
    match &mut scalar.value {
        Value::Int(value) => *value += 1,
        Value::Float(value) => *value += 1.5,
        Value::Utf8(text) => *text = text.replace('7', "8"),
        _ => {}
    }
}

fn altered_case(case: &Case) -> Case {
    let mut case = case.clone();
    for step in &mut case.steps {
        match step {
            Step::Filter(expr) => *expr = altered(expr),
            Step::Compute(named) => named.expr = altered(&named.expr),
            Step::Probe(_) => {}
        }
    }
    match &mut case.sink {
        Sink::Rows { columns, .. } => columns.iter_mut().for_each(|c| c.expr = altered(&c.expr)),
        Sink::Aggregate { calls, .. } => {
            for call in calls {
                call.filter = call.filter.as_ref().map(altered);
            }
        }
        _ => {}
    }
    case
}

#[test]
fn constants_are_not_part_of_the_text() {
    let builds = corpus::builds();
    let (mut changed, mut reclassed) = (0, 0);
    for shape in [shapes()[0], shapes()[2]] {
        let table = Table::random(shape, &[100]);
        for case in corpus::cases() {
            let program = |case: &Case| {
                let bound = bound_of(case, &table, &builds).unwrap();
                CudaProgram::compile(bound, &table.layout(), Tuning::FULL).unwrap()
            };
            let (one, other) = (program(&case), program(&altered_case(&case)));
            // How much filters are expected to keep orders them, and says whether a queue is worth it:
            // with the same expectations, that is the same too.
            let is_same_class = one.source == other.source;
            reclassed += usize::from(!is_same_class);
            let other = if is_same_class {
                other
            } else {
                let selectivities = one.bound.selectivities();
                let bound = Arc::new(other.bound.expecting(&selectivities, Lookups::Gpu));
                CudaProgram::compile(bound, &table.layout(), Tuning::FULL).unwrap()
            };
            assert!(one.source == other.source, "{}\n{}\n{}", case.name, one.source, other.source);
            changed += usize::from(one.constants != other.constants || one.tables != other.tables);
        }
    }
    assert!(changed >= 30, "only {changed} cases differ in their constants");
    assert!((1..=4).contains(&reclassed), "{reclassed} cases are of another class");
}

/// The same pipeline over a table whose columns have other names, as its results have.
fn renamed(bound: &Bound) -> Bound {
    let mut bound = bound.clone();
    rename(&mut bound.table);
    bound.registers.iter_mut().for_each(|register| rename(&mut register.name));
    match &mut bound.sink {
        BoundSink::Aggregate { keys, .. } => {
            keys.iter_mut().for_each(|key| rename(&mut key.field.name));
        }
        BoundSink::Rows { columns, .. } | BoundSink::Sorted { columns, .. } => {
            columns.iter_mut().for_each(|(field, _)| rename(&mut field.name));
        }
        BoundSink::Build { .. } => {}
    }
    bound
}

fn rename(name: &mut String) {
    *name = format!("other {name}");
}

#[test]
fn names_are_not_part_of_the_text() {
    let (builds, mut others) = (corpus::builds(), corpus::builds());
    for build in others.iter_mut().map(|build| Arc::get_mut(build).unwrap()) {
        rename(&mut build.name);
        build.keys.iter_mut().for_each(|key| rename(&mut key.name));
        build.payload.iter_mut().for_each(|column| rename(&mut column.field.name));
    }
    let table = Table::random(shapes()[2], &[100]);
    for case in corpus::cases() {
        let one = bound_of(&case, &table, &builds).unwrap();
        let other = Arc::new(renamed(&bound_of(&case, &table, &others).unwrap()));
        let text = |bound: Arc<Bound>| {
            CudaProgram::compile(bound, &table.layout(), Tuning::FULL).unwrap().source
        };
        let (one, other) = (text(one), text(other));
        assert!(one == other, "{}\n{one}\n{other}", case.name);
    }
}

#[test]
fn a_dictionary_that_has_grown_is_not_part_of_the_text() {
    for texts in [50, 60] {
        let (case, shape) = (corpus::by_text(), shapes()[0]);
        let table = Table::random(shape, &[100]);
        let mut grown = Table::random(shape, &[100]);
        let dictionary =
            StringArray::from((0..texts).map(|i| format!("text {i:03}")).collect::<Vec<_>>());
        for column in &mut grown.source.columns {
            if column.dictionary.is_some() {
                column.dictionary = Some(Arc::new(Dictionary { values: dictionary.clone() }));
            }
        }
        let program = |table: &Table| {
            let bound = bound_of(&case, table, &[]).unwrap();
            CudaProgram::compile(bound, &table.layout(), Tuning::FULL).unwrap()
        };
        let (one, other) = (program(&table), program(&grown));
        assert!(one.source == other.source, "{}\n{}", one.source, other.source);
        assert_ne!(one.constants, other.constants);
    }
}

#[test]
fn sizes_of_dimensions_are_not_part_of_the_text() {
    let grown = ssb::Sizes { customers: 3_100_000, suppliers: 205_000, parts: 1_410_000 };
    for (one, other) in ssb::queries(&ssb::SF100).into_iter().zip(ssb::queries(&grown)) {
        for layout in [one.layout.clone(), ssb::narrow_layout(&one)] {
            let program = |query: &ssb::Query| {
                CudaProgram::compile(Arc::clone(&query.bound), &layout, Tuning::FULL).unwrap()
            };
            assert!(program(&one).source == program(&other).source, "{}", one.name);
        }
    }
}

/// A table each of whose segments has bitmaps for other columns, a translation or none, and codes
/// of another width.
fn motley(segments: usize) -> Table {
    let shape = Shape { code_bytes: 1, ..shapes()[2] };
    let mut table = Table::random(shape, &vec![9; segments]);
    let skew = shape.skew;
    for (index, segment) in table.segments.iter_mut().enumerate() {
        let nullable: Vec<usize> =
            (0..segment.columns.len()).filter(|&c| segment.columns[c].validity.is_some()).collect();
        for (bit, column) in nullable.into_iter().enumerate() {
            if index >> bit & 1 == 1 {
                segment.columns[column].validity = None;
            }
        }
        let codes = segment.columns.iter_mut().find(|c| c.remap.is_some());
        if let Some(codes) = codes.filter(|_| index % 4 == 3) {
            let code_bytes = [2, 4, 8][index / 4 % 3];
            let wide = codes.values[skew..].iter().flat_map(|&code| {
                let mut bytes = vec![0; usize::from(code_bytes)];
                bytes[0] = code;
                bytes
            });
            codes.values = vec![0; skew].into_iter().chain(wide).collect();
            codes.encoding = headrace_ir::Encoding::Dictionary { code_bytes };
        }
    }
    table
}

#[test]
fn host_shim_any_number_of_layouts_is_one_kernel() {
    let table = motley(120);
    let forms = |segment: &crate::data::SegmentData| -> Vec<_> {
        let columns = segment.columns.iter();
        columns.map(|c| (ColumnForm::of(&c.encoding), c.validity.is_some(), c.remap)).collect()
    };
    let layouts: HashSet<_> = table.segments.iter().map(forms).collect();
    assert!(layouts.len() > 62, "{} layouts", layouts.len());
    let layout: SegmentLayout = table.layout();
    assert!(layout.columns.iter().any(|column| column.form == ColumnForm::Varying));
    let builds = corpus::builds();
    let names = ["text equals", "or over nulls", "nullable compare", "text or null"];
    for case in corpus::cases().into_iter().filter(|case| names.contains(&case.name)) {
        let bound = bound_of(&case, &table, &builds).unwrap();
        let program = CudaProgram::compile(Arc::clone(&bound), &layout, Tuning::FULL).unwrap();
        let cuda = on_shim(&bound, &table, &program);
        assert_same(case.name, table.shape, &on_cpu(&bound, &table), &cuda, &program.source);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_dimensions_that_have_grown_compile_nothing() {
    let options = CudaOptions { borrows_max: 0, ..CudaOptions::default() };
    let device = CudaDevice::open(0, options).unwrap();
    let prepare = |sizes: &ssb::Sizes| {
        for query in ssb::queries(sizes) {
            device.kernel(&query.bound, &ssb::narrow_layout(&query)).unwrap();
        }
        device.kernels_loaded()
    };
    let loaded = prepare(&ssb::SF100);
    let grown = ssb::Sizes { customers: 3_100_000, suppliers: 205_000, parts: 1_410_000 };
    assert!(loaded >= 5);
    assert_eq!(prepare(&grown), loaded);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_constants_of_another_class_borrow_a_kernel_until_they_come_often() {
    let borrows_max = CudaOptions::default().borrows_max;
    let builds = corpus::builds();
    let table = Table::random(shapes()[0], &[5000]);
    let mut borrowed = 0;
    for case in corpus::cases() {
        let [one, other] =
            [&case, &altered_case(&case)].map(|case| bound_of(case, &table, &builds).unwrap());
        let text = |bound: &Arc<Bound>| {
            let layout = table.layout();
            CudaProgram::compile(Arc::clone(bound), &layout, Tuning::FULL).unwrap().source
        };
        if text(&one) == text(&other) {
            continue;
        }
        // Each case has a device of its own, which knows of no other relatives.
        let device = CudaDevice::open(0, CudaOptions::default()).unwrap();
        let run = |bound: &Arc<Bound>| {
            let found = on_gpu(&device, bound, &table);
            assert_same(case.name, table.shape, &on_cpu(bound, &table), &found, "");
            device.kernels_loaded()
        };
        let loaded = run(&one);
        for _ in 0..borrows_max {
            assert_eq!(run(&other), loaded, "{}", case.name);
        }
        let now = run(&other);
        assert!(now > loaded, "{}", case.name);
        assert_eq!((run(&other), run(&one)), (now, now), "{}", case.name);
        borrowed += 1;
    }
    assert!(borrowed >= 1, "no case is of another class");
}

/// A hasty kernel comes first, and the full one when it is compiled: both answer alike.
#[test]
#[ignore = "needs a GPU"]
fn gpu_hasty_kernels_answer_as_full_ones_do() {
    const VARIABLE: &str = "HEADRACE_TEST_HASTY";
    if std::env::var_os(VARIABLE).is_none() {
        // In a process with an empty cache of kernels.
        let folder = tempfile::tempdir().unwrap();
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "prepared::gpu_hasty_kernels_answer_as_full_ones_do", "--ignored"])
            .envs([(VARIABLE, "1".as_ref()), ("HEADRACE_CACHE", folder.path().as_os_str())])
            .status()
            .unwrap();
        assert!(status.success(), "{status}");
        return;
    }
    let options = CudaOptions { hasty_kernels: true, ..CudaOptions::default() };
    let device = CudaDevice::open(0, options).unwrap();
    let (builds, table) = (corpus::builds(), Table::random(shapes()[0], &[5000]));
    let cases: Vec<_> = corpus::cases().into_iter().step_by(8).collect();
    let mut has_full = false;
    for is_hasty in [true, false] {
        for case in &cases {
            let bound = bound_of(case, &table, &builds).unwrap();
            let kernel = device.kernel(&bound, &table.layout()).unwrap();
            // Some cases are relatives of others.
            has_full |= !kernel.is_borrowed;
            assert!(!is_hasty || kernel.is_borrowed, "{}", case.name);
            let found = on_gpu(&device, &bound, &table);
            assert_same(case.name, table.shape, &on_cpu(&bound, &table), &found, "");
        }
        headrace_cuda::settle();
    }
    assert!(has_full);
}
