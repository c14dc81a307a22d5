//! Functions of whole tables that users write: their kernels compiled by NVRTC, run on the host, and called on a GPU.

use std::sync::Arc;

use arrow_array::builder::{FixedSizeBinaryBuilder, FixedSizeListBuilder, Float32Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Float64Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Float64Array, Int8Array, Int64Array, RecordBatch,
    StringArray,
};
use headrace_columns::whole::{whole_array, whole_part, whole_width_bytes};
use headrace_cuda::parts::{COMPILE_OPTIONS, TABLE_HEADER, TABLE_KERNEL_NAME, TableKernel};
use headrace_cuda::{CudaDevice, CudaOptions, call_table, check_table_function};
use headrace_flow::CancelToken;
use headrace_gpu::Compiler;
use headrace_ir::{CudaTableFunction, DataType, Scalar, TableLaunch, Value};

use crate::shim::{Memory, build_library, run};

const ROWS: usize = 1_000;
const LIST: DataType = DataType::FloatList { item_bytes: 4, items: 3 };

/// A function with values for its parameters.
struct Case {
    function: CudaTableFunction,
    parameters: Vec<Scalar>,
    rows_max: u64,
}

/// What a call has written, and the number of rows that it emitted.
struct Answer {
    columns: Vec<ArrayRef>,
    counted: u64,
}

fn named(columns: &[(&str, DataType)]) -> Vec<(String, DataType)> {
    columns.iter().map(|(name, data_type)| ((*name).to_string(), data_type.clone())).collect()
}

fn columns() -> Vec<(String, DataType)> {
    named(&[
        ("id", DataType::Int64),
        ("x", DataType::Float64),
        ("small", DataType::Int8),
        ("is", DataType::Bool),
        ("day", DataType::Date32),
        ("name", DataType::Utf8),
        ("fp", DataType::FixedBinary(5)),
        ("v", LIST),
    ])
}

/// Every third `x`, fifth name, seventh list and eleventh `is` is NULL.
fn batch(first: usize, rows: usize) -> RecordBatch {
    let all = first..first + rows;
    let some = |row: usize, every: usize| row % every != every - 1;
    let mut bytes = FixedSizeBinaryBuilder::new(5);
    let mut lists = FixedSizeListBuilder::new(Float32Builder::new(), 3);
    for row in all.clone() {
        bytes.append_value([row as u8, 1, 2, 3, 4]).unwrap();
        (0..3).for_each(|item| lists.values().append_value((row * 3 + item) as f32));
        lists.append(some(row, 7));
    }
    let arrays: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(all.clone().map(|row| row as i64)))),
        (
            "x",
            Arc::new(Float64Array::from_iter(
                all.clone().map(|row| some(row, 3).then_some(row as f64 / 2.0)),
            )),
        ),
        (
            "small",
            Arc::new(Int8Array::from_iter_values(all.clone().map(|row| (row % 100) as i8 - 50))),
        ),
        (
            "is",
            Arc::new(BooleanArray::from_iter(
                all.clone().map(|row| some(row, 11).then_some(row % 2 == 0)),
            )),
        ),
        ("day", Arc::new(Date32Array::from_iter_values(all.clone().map(|row| row as i32)))),
        (
            "name",
            Arc::new(StringArray::from_iter(
                all.map(|row| some(row, 5).then(|| format!("name {row}"))),
            )),
        ),
        ("fp", Arc::new(bytes.finish())),
        ("v", Arc::new(lists.finish())),
    ];
    RecordBatch::try_from_iter(arrays).unwrap()
}

/// The table, in batches of whatever length, slices among them.
fn batches() -> Vec<RecordBatch> {
    let cuts = [0, 1, 1, 130, 640, ROWS];
    let parts = cuts.windows(2).map(|cut| (cut[0], cut[1] - cut[0]));
    parts
        .map(|(first, rows)| batch(first.saturating_sub(3), rows + 5).slice(first.min(3), rows))
        .collect()
}

fn case(outputs: &[(&str, DataType)], rows_max: Option<u64>, body: &str) -> Case {
    let parameters = [
        ("low", DataType::Float64, Value::Float(200.0)),
        ("k", DataType::Int64, Value::Int(-3)),
        ("word", DataType::Utf8, Value::Utf8("name 12".into())),
        (
            "w",
            LIST,
            Value::Binary([1f32, 10.0, 100.0].iter().flat_map(|f| f.to_le_bytes()).collect()),
        ),
        ("narrow", DataType::Float32, Value::Float(0.5)),
        ("yes", DataType::Bool, Value::Bool(true)),
    ];
    let function = CudaTableFunction {
        name: "f".into(),
        table: "t".into(),
        columns: columns(),
        parameters: parameters
            .iter()
            .map(|(name, t, _)| ((*name).to_string(), t.clone()))
            .collect(),
        outputs: named(outputs),
        emits: rows_max.is_some(),
        block_threads: 128,
        body: body.into(),
    };
    assert_eq!(function.error(), None);
    let parameters = parameters.map(|(_, t, value)| Scalar::new(t, value)).to_vec();
    Case { function, parameters, rows_max: rows_max.unwrap_or(ROWS as u64) }
}

const EACH: &str = "for (uint64_t i = thread; i < t.rows; i += threads)";

fn emitting() -> Case {
    let body = format!(
        "{EACH}\n    if (!t.x.is_null(i) && t.x[i] > low) emit(t.id[i] * k, t.x[i] - low);"
    );
    case(&[("a", DataType::Int64), ("b", DataType::Float64)], Some(ROWS as u64), &body)
}

/// Every type, in and out.
fn of_all_types() -> Case {
    let body = format!(
        "{EACH} {{
            int64_t sum = t.small[i] + t.day[i] + int64_t(narrow * 2);
            if (!t.name.is_null(i)) {{
                bool same = t.name[i].size == word.size;
                for (uint32_t n = 0; same && n < word.size; ++n) same = t.name[i][n] == word[n];
                sum += 1000 * t.name[i].size + (same ? 1000000 : 0);
            }}
            if (yes && !t.is.is_null(i) && t.is[i]) sum += 7;
            float twice[3];
            for (int item = 0; item < 3; ++item) twice[item] = 2 * t.v[i][item] + w[item];
            if (i % 10 == 9) continue;
            if (t.v.is_null(i)) put(i, sum, null, t.fp[i], t.day[i] + 1, i % 2 == 0);
            else put(i, sum, twice, t.fp[i], null, null);
        }}"
    );
    let outputs = [
        ("sum", DataType::Int64),
        ("twice", LIST),
        ("fp", DataType::FixedBinary(5)),
        ("day", DataType::Date32),
        ("even", DataType::Bool),
    ];
    case(&outputs, None, &body)
}

fn copying() -> Case {
    let body =
        format!("{EACH} if (t.v.is_null(i)) emit(null, null); else emit(t.v[i], t.fp[i].data);");
    case(&[("v", LIST), ("fp", DataType::FixedBinary(5))], Some(2 * ROWS as u64), &body)
}

fn check_emitted(answer: &Answer) {
    let (a, b) = (
        answer.columns[0].as_primitive::<Int64Type>(),
        answer.columns[1].as_primitive::<Float64Type>(),
    );
    let mut found: Vec<_> = (0..a.len()).map(|row| (-a.value(row), b.value(row))).collect();
    found.sort_by_key(|(a, _)| *a);
    let wanted: Vec<_> = (0..ROWS)
        .filter(|row| row % 3 != 2 && *row > 400)
        .map(|row| (3 * row as i64, row as f64 / 2.0 - 200.0))
        .collect();
    assert_eq!(found, wanted);
    assert_eq!((a.null_count(), b.null_count(), answer.counted), (0, 0, wanted.len() as u64));
}

fn check_all_types(answer: &Answer) {
    let [sum, twice, fp, day, even] = answer.columns.as_slice() else { panic!("columns") };
    let (sum, twice) = (sum.as_primitive::<Int64Type>(), twice.as_fixed_size_list());
    let (fp, day, even) =
        (fp.as_fixed_size_binary(), day.as_primitive::<Date32Type>(), even.as_boolean());
    assert_eq!((sum.len(), answer.counted), (ROWS, 0));
    for row in 0..ROWS {
        if row % 10 == 9 {
            // What is not put is NULL.
            assert!(answer.columns.iter().all(|column| column.is_null(row)), "{row}");
            continue;
        }
        let mut wanted = (row % 100) as i64 - 50 + row as i64 + 1;
        if row % 5 != 4 {
            wanted +=
                1000 * format!("name {row}").len() as i64 + if row == 12 { 1_000_000 } else { 0 };
        }
        if row % 11 != 10 && row % 2 == 0 {
            wanted += 7;
        }
        assert_eq!(sum.value(row), wanted, "{row}");
        assert_eq!(fp.value(row), [row as u8, 1, 2, 3, 4], "{row}");
        let is_null = row % 7 == 6;
        assert_eq!(
            (twice.is_null(row), day.is_null(row), even.is_null(row)),
            (is_null, !is_null, !is_null)
        );
        if is_null {
            assert_eq!((day.value(row), even.value(row)), (row as i32 + 1, row % 2 == 0));
        } else {
            let floats = twice.value(row);
            let floats = floats.as_primitive::<arrow_array::types::Float32Type>().values().to_vec();
            let wanted: Vec<_> =
                (0..3).map(|n| 2.0 * (row * 3 + n) as f32 + 10f32.powi(n as i32)).collect();
            assert_eq!(floats, wanted, "{row}");
        }
    }
}

fn check_copied(answer: &Answer) {
    let (v, fp) = (&answer.columns[0], answer.columns[1].as_fixed_size_binary());
    assert_eq!((v.len(), answer.counted), (ROWS, ROWS as u64));
    assert_eq!(v.null_count(), (0..ROWS).filter(|row| row % 7 == 6).count());
    let firsts = |row: usize| {
        v.as_fixed_size_list().value(row).as_primitive::<arrow_array::types::Float32Type>().value(0)
    };
    for row in (0..ROWS).filter(|row| v.is_valid(*row)) {
        assert_eq!(fp.value(row)[0], (firsts(row) as usize / 3) as u8);
    }
}

type Check = fn(&Answer);

fn cases() -> Vec<(Case, Check)> {
    vec![(emitting(), check_emitted), (of_all_types(), check_all_types), (copying(), check_copied)]
}

/// What the kernel does on the host, by the words that `table_function` gives it.
fn on_host(case: &Case, batches: &[RecordBatch]) -> Answer {
    let kernel = TableKernel::of(&case.function).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("headrace")).unwrap();
    std::fs::write(folder.path().join(TABLE_HEADER.0), TABLE_HEADER.1).unwrap();
    let library = build_library(folder.path(), &kernel.text, TABLE_KERNEL_NAME);
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let mut emitted = Memory::zeroed(8);
    let mut words = vec![rows as u64, case.rows_max, emitted.address()];
    let mut held = Vec::new();
    for (at, (_, data_type)) in case.function.columns.iter().enumerate() {
        let parts: Vec<_> =
            batches.iter().map(|b| whole_part(b.column(at), data_type).unwrap()).collect();
        let values: Vec<u8> = parts.iter().flat_map(|part| part.values.to_vec()).collect();
        let valid = parts.iter().zip(batches).flat_map(|(part, batch)| {
            part.valid.clone().unwrap_or_else(|| vec![1; batch.num_rows()])
        });
        let valid: Vec<u8> = valid.collect();
        let (mut offsets, mut base) = (vec![0u64], 0);
        for part in &parts {
            offsets.extend(part.ends.iter().flatten().map(|end| base + end));
            base += part.values.len() as u64;
        }
        let offsets: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
        let mut memory = [Memory::of(&values), Memory::of(&valid), Memory::of(&offsets)];
        let has_nulls = valid.contains(&0);
        let is_text = *data_type == DataType::Utf8;
        let [values, valid, offsets] = &mut memory;
        words.extend([
            values.address(),
            if has_nulls { valid.address() } else { 0 },
            if is_text { offsets.address() } else { 0 },
        ]);
        held.extend(memory);
    }
    for scalar in &case.parameters {
        let (bits, bytes) = match &scalar.value {
            Value::Bool(value) => (u64::from(*value), 0),
            Value::Int(value) => (*value as u64, 0),
            Value::Float(value) if scalar.data_type == DataType::Float32 => {
                ((*value as f32).to_bits().into(), 0)
            }
            Value::Float(value) => (value.to_bits(), 0),
            Value::Utf8(text) => {
                held.push(Memory::of(text.as_bytes()));
                (held.last_mut().unwrap().address(), text.len() as u64)
            }
            Value::Binary(bytes) => {
                held.push(Memory::of(bytes));
                (held.last_mut().unwrap().address(), bytes.len() as u64)
            }
            Value::Null => panic!("NULL"),
        };
        words.extend([bits, bytes]);
    }
    let mut outputs: Vec<_> = case
        .function
        .outputs
        .iter()
        .map(|(_, data_type)| {
            let width = whole_width_bytes(data_type).unwrap();
            (
                width,
                Memory::zeroed(case.rows_max as usize * width),
                Memory::zeroed(case.rows_max as usize),
            )
        })
        .collect();
    for (_, values, valid) in &mut outputs {
        words.extend([values.address(), valid.address()]);
    }
    run(&library, &words, 3);
    let counted = u64::from_le_bytes(emitted.bytes(8).try_into().unwrap());
    let rows = if case.function.emits { counted.min(case.rows_max) as usize } else { rows };
    let columns = outputs.iter().zip(&case.function.outputs).map(
        |((width, values, valid), (_, data_type))| {
            whole_array(data_type, rows, values.bytes(rows * width), &valid.bytes(rows)).unwrap()
        },
    );
    Answer { columns: columns.collect(), counted }
}

#[test]
fn host_shim_functions_of_tables_write_what_they_say() {
    for (case, check) in cases() {
        check(&on_host(&case, &batches()));
    }
}

#[test]
fn host_shim_what_does_not_fit_is_counted_and_not_written() {
    let mut case = emitting();
    case.rows_max = 10;
    let answer = on_host(&case, &batches());
    assert_eq!((answer.counted, answer.columns[0].len()), (399, 10));
    let mut case = of_all_types();
    case.function.body =
        "put(t.rows, 1, null, null, null, null); put(0, 5, null, null, null, null);".into();
    let answer = on_host(&case, &batches());
    assert_eq!((answer.counted, answer.columns[0].null_count()), (1, ROWS - 1));
}

#[test]
#[ignore = "needs NVRTC"]
fn nvrtc_compiles_functions_of_tables() {
    let compiler = Compiler::load(None).unwrap();
    for (case, _) in cases() {
        let kernel = TableKernel::of(&case.function).unwrap();
        for arch in ["sm_80", "sm_90"] {
            let compiled =
                kernel.with_source(|source| compiler.compile(source, arch, &COMPILE_OPTIONS));
            if let Err(error) = compiled {
                panic!("{error}\n{}", kernel.text);
            }
        }
        check_table_function(&case.function).unwrap();
    }
}

#[test]
#[ignore = "needs NVRTC"]
fn nvrtc_tells_what_is_wrong_with_a_function_of_a_table_by_its_own_lines() {
    let told = |body: &str| {
        let mut function = emitting().function;
        function.body = body.into();
        check_table_function(&function).map_err(|error| error.to_string())
    };
    // Shared memory, barriers and other atomics are there as in any kernel.
    let whole = "__shared__ double sums[128];\nsums[threadIdx.x] = low;\n__syncthreads();\n\
                 if (threadIdx.x == 0) emit(int64_t(sums[1]), sums[2]);\natomicAdd(&sums[0], 1.0);";
    assert_eq!(told(whole), Ok(()));
    let misspelt = told("uint64_t i = thread;\nif (i < t.rows) emit(t.idd[i], 1.0);").unwrap_err();
    assert!(misspelt.contains("function f(2): error"), "{misspelt}");
    assert!(misspelt.contains(">     2 | if (i < t.rows) emit(t.idd[i], 1.0);"), "{misspelt}");
    for wrong in
        ["emit(1);", "emit(1, 2, 3);", "put(0, 1, 2);", "emit(t.name[0], 1.0);", "t.id[0] = 1;"]
    {
        let error = told(wrong).unwrap_err();
        assert!(error.contains("function f(1): error"), "{wrong}: {error}");
    }
}

fn device() -> Arc<CudaDevice> {
    CudaDevice::open(0, CudaOptions::default()).unwrap()
}

/// The answer of a call, or why it is none.
fn on_gpu(
    device: &CudaDevice,
    case: &Case,
    batches: &[RecordBatch],
    blocks: Option<u32>,
) -> Result<Answer, String> {
    let shape = TableLaunch { rows_max: case.rows_max, blocks };
    let called =
        call_table(device, &case.function, batches, &case.parameters, shape, &CancelToken::new());
    let called = called.map_err(|error| error.to_string())?;
    if let Some(why) = called.why_incomplete() {
        return Err(why.into());
    }
    let parts = std::sync::Mutex::new(Vec::new());
    called
        .batches(&|batch| {
            parts.lock().unwrap().push(batch);
            true
        })
        .unwrap();
    let parts = parts.into_inner().unwrap();
    let counted = if case.function.emits { called.rows() } else { 0 };
    assert_eq!(called.rows(), parts.iter().map(|batch| batch.num_rows() as u64).sum::<u64>());
    let columns = (0..case.function.outputs.len()).map(|at| match parts.as_slice() {
        [] => arrow_array::new_empty_array(&headrace_columns::column::arrow_type(
            &case.function.outputs[at].1,
        )),
        [only] => Arc::clone(only.column(at)),
        _ => panic!("more rows than a batch has"),
    });
    Ok(Answer { columns: columns.collect(), counted })
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_functions_of_tables_write_what_they_say() {
    let device = device();
    for (case, check) in cases() {
        for blocks in [None, Some(1), Some(200)] {
            check(&on_gpu(&device, &case, &batches(), blocks).unwrap());
        }
        let nothing = on_gpu(&device, &case, &[], None).unwrap();
        assert!(nothing.columns.iter().all(|column| column.is_empty()));
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_rows_beyond_a_bound_are_an_error_that_names_it() {
    let device = device();
    let mut case = emitting();
    case.rows_max = 10;
    let error = on_gpu(&device, &case, &batches(), None).err().unwrap();
    assert!(error.contains("f() emits 399 rows, more than its bound of 10"), "{error}");
    case.rows_max = 399;
    assert_eq!(on_gpu(&device, &case, &batches(), None).unwrap().counted, 399);
    let mut case = of_all_types();
    case.function.body = "if (thread == 0) put(t.rows, 1, null, null, null, null);".into();
    let error = on_gpu(&device, &case, &batches(), None).err().unwrap();
    assert!(error.contains("behind the 1000 rows"), "{error}");
    // More than the device has is refused before anything runs.
    let mut case = emitting();
    case.rows_max = 1 << 45;
    let error = on_gpu(&device, &case, &batches(), None).err().unwrap();
    assert!(error.contains("out of device memory"), "{error}");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_millions_of_rows_are_emitted_once_each() {
    let device = device();
    let rows = 5_000_000;
    let mut case = emitting();
    case.function.columns = named(&[("id", DataType::Int64)]);
    case.function.body = "for (uint64_t i = thread; i < t.rows; i += threads)\n    \
                          for (int n = 0; n < t.id[i] % 3; ++n) emit(t.id[i], double(n));"
        .into();
    case.rows_max = rows;
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
    let batch = RecordBatch::try_from_iter([("id", id)]).unwrap();
    let shape = TableLaunch { rows_max: case.rows_max, blocks: None };
    let batches = [batch];
    let called =
        call_table(&device, &case.function, &batches, &case.parameters, shape, &CancelToken::new())
            .unwrap();
    let seen = std::sync::Mutex::new(vec![0u8; rows as usize]);
    called
        .batches(&|batch| {
            let mut seen = seen.lock().unwrap();
            batch
                .column(0)
                .as_primitive::<Int64Type>()
                .values()
                .iter()
                .for_each(|id| seen[*id as usize] += 1);
            true
        })
        .unwrap();
    let seen = seen.into_inner().unwrap();
    assert!(seen.iter().enumerate().all(|(id, times)| usize::from(*times) == id % 3));
}
