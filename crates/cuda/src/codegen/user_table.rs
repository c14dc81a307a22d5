//! Functions of whole tables that users wrote in CUDA: the text of their kernels.
//!
//! ```text
//! parameters in words:  rows, rows_max, emitted | of a column: values, valid, offsets | of a value: bits, or address and
//!                       bytes | of an output: values, valid
//! ```
//!
//! The user's statements are the body of a device function that has them by their names. Its kernel makes these of the words.

use headrace_columns::repr::Repr;
use headrace_gpu::{Compiler, GpuError, Source};
use headrace_ir::{CudaTableFunction, DataType};

use crate::codegen::refusal::{Result, refuse};
use crate::codegen::text::{Writer, c_type};
use crate::codegen::user::{SOME_ARCH, place_of};
use crate::headers::{COMPILE_OPTIONS, HEADERS};

/// Name of the kernels.
pub const TABLE_KERNEL_NAME: &str = "headrace_table";

/// The header that they alone have.
pub const TABLE_HEADER: (&str, &str) =
    ("headrace/user_table.cuh", include_str!("../../kernels/user_table.cuh"));

/// A kernel as it is compiled.
#[derive(Clone, Debug)]
pub struct TableKernel {
    place: String,
    body: String,
    /// The whole text.
    pub text: String,
}

impl TableKernel {
    /// That of a function.
    ///
    /// # Errors
    /// A type that no kernel has.
    pub fn of(function: &CudaTableFunction) -> Result<Self> {
        if let Some(cause) = function.error() {
            return refuse(format!("{}(): {cause}", function.name));
        }
        let (place, body) = (place_of(&function.name), function.body.clone());
        Ok(Self { text: text_of(function, &place)?, place, body })
    }

    /// Does something with its source.
    pub fn with_source<T>(&self, then: impl FnOnce(&Source<'_>) -> T) -> T {
        let mut headers = HEADERS.to_vec();
        headers.push(TABLE_HEADER);
        // Nothing includes it: the compiler's words are shown beside its lines.
        headers.push((&self.place, &self.body));
        then(&Source { name: "kernel", text: &self.text, headers: &headers })
    }
}

/// Compiles a function, to tell what is wrong with it before it is called.
///
/// # Errors
/// Those of [`check_function`](super::check_function).
pub fn check_table_function(function: &CudaTableFunction) -> std::result::Result<(), GpuError> {
    let kernel = TableKernel::of(function).map_err(|why| GpuError::InvalidArgument {
        operation: "CREATE FUNCTION",
        reason: why.to_string(),
    })?;
    let compiler = Compiler::load(None)?;
    kernel.with_source(|source| compiler.compile(source, SOME_ARCH, &COMPILE_OPTIONS)).map(drop)
}

/// What a column is in C++, and a value that is written of it.
fn types_of(data_type: &DataType) -> Result<(String, String)> {
    Ok(match data_type {
        DataType::Utf8 => ("hr::BytesColumn".into(), String::new()),
        DataType::FixedBinary(bytes) => {
            ("hr::BytesColumn".into(), format!("hr::BytesCell<{bytes}u>"))
        }
        DataType::FloatList { item_bytes, items } => {
            let float = if *item_bytes == 4 { "f32" } else { "f64" };
            (format!("hr::FloatsColumn<{float}>"), format!("hr::FloatsCell<{float}, {items}u>"))
        }
        other => {
            let value = value_type(other)?;
            (format!("hr::Column<{value}>"), format!("hr::Cell<{value}>"))
        }
    })
}

/// The C++ type of a number, date or moment.
fn value_type(data_type: &DataType) -> Result<&'static str> {
    match Repr::of(data_type) {
        Some(repr) => c_type(&repr),
        None => refuse(format!("a function of {data_type}")),
    }
}

/// What a column's members are made of, behind its values and its validity.
fn rest_of_column(at: usize, data_type: &DataType) -> String {
    match data_type {
        DataType::Utf8 => format!(", word<const u64*>(p.columns[{at}].offsets), 0u"),
        DataType::FixedBinary(bytes) => format!(", nullptr, {bytes}u"),
        DataType::FloatList { item_bytes, items } => {
            format!(", {}u", u64::from(*item_bytes) * u64::from(*items))
        }
        _ => String::new(),
    }
}

/// The type of a parameter, and what it is made of.
fn parameter_of(at: usize, data_type: &DataType) -> Result<(String, String)> {
    let bytes = format!(
        "hr::Text(word<const u8*>(p.parameters[{at}].bits), u32(p.parameters[{at}].bytes))"
    );
    Ok(match data_type {
        DataType::Utf8 | DataType::FixedBinary(_) => {
            ("hr::Bytes".into(), format!("hr::Bytes({bytes})"))
        }
        DataType::FloatList { item_bytes, .. } => {
            let floats = if *item_bytes == 4 { "hr::Floats<f32>" } else { "hr::Floats<f64>" };
            (floats.into(), format!("{floats}({bytes})"))
        }
        other => {
            let value = value_type(other)?;
            (value.into(), format!("word<{value}>(p.parameters[{at}].bits)"))
        }
    })
}

fn text_of(function: &CudaTableFunction, place: &str) -> Result<String> {
    let CudaTableFunction { name, table, columns, parameters, outputs, .. } = function;
    let mut text = Writer::default();
    text.line("#ifndef BLOCK_THREADS");
    text.line(format!("#define BLOCK_THREADS {}u", function.block_threads));
    text.line("#endif");
    text.line("#define BLOCKS_PER_SM 1");
    text.line("#include \"headrace/pipeline.cuh\"");
    text.line("#include \"headrace/user_table.cuh\"");
    text.line("");
    text.line("struct Params {");
    text.line("    u64 rows, rows_max;");
    text.line("    u64* emitted;");
    text.line(format!("    struct {{ u64 values, valid, offsets; }} columns[{}];", columns.len()));
    // Arrays of C++ have an element.
    let values = parameters.len().max(1);
    text.line(format!("    struct {{ u64 bits, bytes; }} parameters[{values}];"));
    text.line(format!("    struct {{ u64 values, valid; }} outputs[{}];", outputs.len()));
    text.line("};");
    text.line("");
    text.line("template <typename T> HR_DEVICE T word(u64 bits)");
    text.line("{");
    text.line("    T value;");
    text.line("    memcpy(&value, &bits, sizeof(T));");
    text.line("    return value;");
    text.line("}");
    text.line("");
    text.line("namespace user {");
    text.open("struct HeadraceTable");
    text.line("uint64_t rows;");
    for (column, data_type) in columns {
        text.line(format!("{} {column};", types_of(data_type)?.0));
    }
    text.close_struct();
    write_rows(&mut text, function)?;
    let writes = if function.emits { "emit" } else { "put" };
    let mut passed = vec![format!("const HeadraceTable& {table}")];
    for (at, (parameter, data_type)) in parameters.iter().enumerate() {
        passed.push(format!("{} {parameter}", parameter_of(at, data_type)?.0));
    }
    passed.push(format!("const HeadraceRows& {writes}"));
    passed.extend(["hr::Null null", "uint64_t thread", "uint64_t threads"].map(String::from));
    text.line(format!("HR_DEVICE void {name}({})", passed.join(", ")));
    text.line("{");
    text.line(format!("#line 1 \"{place}\""));
    function.body.lines().for_each(|line| text.line(line));
    text.line("#line 1 \"kernel\"");
    text.line("}");
    text.line("}");
    text.line("");
    text.open(format!("HR_KERNEL {TABLE_KERNEL_NAME}(HR_CONSTANT Params p)"));
    text.open("const user::HeadraceTable table =");
    text.line("p.rows,");
    for (at, (_, data_type)) in columns.iter().enumerate() {
        let rest = rest_of_column(at, data_type);
        text.line(format!(
            "{{word<decltype(user::HeadraceTable::{0}.values)>(p.columns[{at}].values), \
             word<const u8*>(p.columns[{at}].valid){rest}}},",
            columns[at].0
        ));
    }
    text.close_with(";");
    let mut given = vec!["table".to_string()];
    for (at, (_, data_type)) in parameters.iter().enumerate() {
        given.push(parameter_of(at, data_type)?.1);
    }
    given.push("user::HeadraceRows{p}".into());
    given.push("hr::Null()".into());
    given.push("u64(blockIdx.x) * BLOCK_THREADS + threadIdx.x".into());
    given.push("u64(gridDim.x) * BLOCK_THREADS".into());
    text.line(format!("user::{name}({});", given.join(", ")));
    text.close();
    Ok(text.into_text())
}

/// What writes a row.
fn write_rows(text: &mut Writer, function: &CudaTableFunction) -> Result<()> {
    let cells = function.outputs.iter().enumerate();
    let cells =
        cells.map(|(at, (_, data_type))| Ok(format!("{} cell_{at}", types_of(data_type)?.1)));
    let cells = cells.collect::<Result<Vec<_>>>()?.join(", ");
    text.open("struct HeadraceRows");
    text.line("const Params& p;");
    if function.emits {
        text.open(format!("HR_DEVICE void operator()({cells}) const"));
        text.line("const u64 row = hr::next_place(p.emitted);");
        text.line("if (row >= p.rows_max) return;");
    } else {
        text.open(format!("HR_DEVICE void operator()(u64 row, {cells}) const"));
        text.open("if (row >= p.rows_max)");
        text.line("atomicMax(p.emitted, u64(1));");
        text.line("return;");
        text.close();
    }
    for at in 0..function.outputs.len() {
        text.line(format!(
            "cell_{at}.write({{word<u8*>(p.outputs[{at}].values), word<u8*>(p.outputs[{at}].valid)}}, row);"
        ));
    }
    text.close();
    text.close_struct();
    Ok(())
}
