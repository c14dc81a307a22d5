//! Functions that users wrote in CUDA: their text, and calls of them.

use std::sync::Arc;

use headrace_columns::repr::Repr;
use headrace_gpu::{Compiler, GpuError, Source};
use headrace_ir::{CudaFunction, DataType};
use headrace_pipeline::bound::BoundExpr;

use crate::codegen::generator::Generator;
use crate::codegen::refusal::{Result, refuse};
use crate::codegen::text::{Writer, c_type, operand};
use crate::codegen::value::Value;
use crate::headers::{COMPILE_OPTIONS, HEADERS};

/// For which a function is compiled where there is no GPU yet: what it is in C++ does not depend on it.
pub(super) const SOME_ARCH: &str = "sm_90";

/// Compiles a function alone, to tell what is wrong with it before a kernel has it.
///
/// # Errors
/// [`GpuError::Compile`] with the compiler's words and the lines of the user that they are about;
/// [`GpuError::NvrtcNotPresent`] where nothing compiles CUDA.
pub fn check_function(function: &CudaFunction) -> std::result::Result<(), GpuError> {
    let place = place_of(&function.name);
    let invalid =
        |reason: String| GpuError::InvalidArgument { operation: "CREATE FUNCTION", reason };
    if let Some(cause) = function.error() {
        return Err(invalid(cause));
    }
    let mut text = Writer::default();
    text.line("#define BLOCK_THREADS 128");
    text.line("#define HR_ROWS 4u");
    text.line("#include \"headrace/pipeline.cuh\"");
    define(&mut text, function).map_err(|why| invalid(why.to_string()))?;
    let text = text.into_text();
    let mut headers = HEADERS.to_vec();
    // Nothing includes it: the compiler's words are shown beside its lines.
    headers.push((&place, &function.body));
    let source = Source { name: "kernel", text: &text, headers: &headers };
    Compiler::load(None)?.compile(&source, SOME_ARCH, &COMPILE_OPTIONS).map(drop)
}

/// What a compiler calls the place of a user's lines.
pub(super) fn place_of(name: &str) -> String {
    format!("function {name}")
}

/// The C++ type of a parameter or result.
fn type_of(data_type: &DataType) -> Result<&'static str> {
    match data_type {
        DataType::Utf8 | DataType::FixedBinary(_) => Ok("hr::Bytes"),
        DataType::FloatList { item_bytes: 4, .. } => Ok("hr::Floats<f32>"),
        DataType::FloatList { .. } => Ok("hr::Floats<f64>"),
        other => match Repr::of(other) {
            Some(repr) => c_type(&repr),
            None => refuse(format!("a function of {other}")),
        },
    }
}

/// Its definition. The compiler counts the lines of its body as the user does.
pub(super) fn define(text: &mut Writer, function: &CudaFunction) -> Result<()> {
    let parameter = |(name, data_type): &(String, DataType)| {
        type_of(data_type).map(|c_type| format!("{c_type} {name}"))
    };
    let parameters = function.parameters.iter().map(parameter).collect::<Result<Vec<_>>>()?;
    let (result, name) = (type_of(&function.result)?, &function.name);
    text.line("namespace user {");
    text.line(format!("HR_DEVICE {result} {name}({})", parameters.join(", ")));
    text.line("{");
    text.line(format!("#line 1 \"{}\"", place_of(&function.name)));
    function.body.lines().for_each(|line| text.line(line));
    text.line("#line 1 \"kernel\"");
    text.line("}");
    text.line("}");
    Ok(())
}

impl Generator<'_> {
    /// A call, for a row that is there and has all arguments alone: what the function does with others is unknown.
    pub(super) fn user_call(
        &mut self,
        expr: &BoundExpr,
        function: &Arc<CudaFunction>,
        arguments: &[BoundExpr],
    ) -> Result<Value> {
        let values = arguments.iter().map(|a| self.value(a)).collect::<Result<Vec<_>>>()?;
        let null = self.any_null(&values);
        let passed = values
            .iter()
            .zip(&function.parameters)
            .map(|(value, (_, data_type))| Ok(format!("{}({})", type_of(data_type)?, value.code)));
        let passed = passed.collect::<Result<Vec<_>>>()?.join(", ");
        match self.functions.iter().find(|known| known.name == function.name) {
            Some(known) if known.as_ref() != function.as_ref() => {
                return refuse(format!("two functions are called {function}"));
            }
            Some(_) => {}
            None => self.functions.push(Arc::clone(function)),
        }
        let (kind, result) = (c_type(&expr.repr)?, self.names.unique("called"));
        self.body.line(format!("{kind} {result} = {kind}(0);"));
        let not_null =
            null.as_ref().map(|null| format!(" && !{}", operand(null))).unwrap_or_default();
        let call = format!("{result} = {kind}(user::{}({passed}));", function.name);
        self.body.line(format!("if ((alive >> r & 1u){not_null}) {call}"));
        Ok(Value { code: result, null })
    }
}
