//! Functions, and operators that are functions.

use headrace_ir::{ArithmeticOp, CudaFunction, DataType, Expr, Function, OnOverflow};
use pgrx::pg_sys::{self, Node, Oid};

use super::expr::{Translated, Translator, operands, widened};
use super::number::remainder;
use super::shown::Shown;
use super::types::ir_type;
use crate::cuda_function;
use crate::nodes::{WhyNot, why_not};

impl Translator {
    pub(super) unsafe fn call(
        &mut self,
        node: *mut Node,
        function: Oid,
        arguments: *mut pg_sys::List,
        result: Oid,
    ) -> Result<Shown, WhyNot> {
        let arguments = operands(arguments);
        match (function.to_u32(), &arguments[..]) {
            (f, &[left, right]) if let Some(op) = decimal_arithmetic(f) => {
                let (left, right) = (self.shown(left)?, self.shown(right)?);
                Shown::combined(op, left, right, |left, right| decimal_operation(op, left, right))
            }
            (pg_sys::F_NUMERIC_UMINUS, &[value]) => self.shown(value)?.shows(negated),
            (pg_sys::F_ABS_NUMERIC | pg_sys::F_NUMERIC_ABS, &[value]) => {
                self.shown(value)?.shows(|value| call(Function::Abs, value))
            }
            (pg_sys::F_NUMERIC_MOD | pg_sys::F_MOD_NUMERIC_NUMERIC, &[left, right]) => {
                let (left, right) = (self.shown(left)?, self.shown(right)?);
                Shown::combined(ArithmeticOp::Modulo, left, right, remainder)
            }
            _ => Ok(self.plain_call(node, function, &arguments, result)?.into()),
        }
    }

    /// A call whose values are all shown alike.
    unsafe fn plain_call(
        &mut self,
        node: *mut Node,
        function: Oid,
        arguments: &[*mut Node],
        result: Oid,
    ) -> Translated {
        match (function.to_u32(), arguments) {
            (f, &[left, right]) if let Some(op) = integer_arithmetic(f) => {
                let to = ir_type(result, -1)?;
                let (left, right) = (self.expr(left)?, self.expr(right)?);
                Ok(Expr::arithmetic(op, widened(left, &to), widened(right, &to)))
            }
            (f, &[left, right]) if let Some(op) = float_arithmetic(f) => {
                let to = ir_type(result, -1)?;
                let (left, right) = (self.expr(left)?, self.expr(right)?);
                let mut expr = Expr::arithmetic(op, widened(left, &to), widened(right, &to));
                if let Expr::Arithmetic { on_overflow, .. } = &mut expr {
                    *on_overflow = OnOverflow::Strict;
                }
                Ok(expr)
            }
            (
                pg_sys::F_INT2UM
                | pg_sys::F_INT4UM
                | pg_sys::F_INT8UM
                | pg_sys::F_FLOAT4UM
                | pg_sys::F_FLOAT8UM,
                &[value],
            ) => negated(self.expr(value)?),
            (
                pg_sys::F_ABS_INT2
                | pg_sys::F_ABS_INT4
                | pg_sys::F_ABS_INT8
                | pg_sys::F_INT2ABS
                | pg_sys::F_INT4ABS
                | pg_sys::F_INT8ABS
                | pg_sys::F_ABS_FLOAT4
                | pg_sys::F_ABS_FLOAT8
                | pg_sys::F_FLOAT4ABS
                | pg_sys::F_FLOAT8ABS,
                &[value],
            ) => call(Function::Abs, self.expr(value)?),
            (
                pg_sys::F_INT4_INT2
                | pg_sys::F_INT8_INT2
                | pg_sys::F_INT8_INT4
                | pg_sys::F_INT2_INT4
                | pg_sys::F_INT2_INT8
                | pg_sys::F_INT4_INT8
                | pg_sys::F_FLOAT8_FLOAT4
                | pg_sys::F_FLOAT8_INT2
                | pg_sys::F_FLOAT8_INT4
                | pg_sys::F_FLOAT8_INT8
                | pg_sys::F_FLOAT4_INT2
                | pg_sys::F_FLOAT4_INT4
                | pg_sys::F_FLOAT4_INT8,
                &[value],
            ) => Ok(self.expr(value)?.cast(ir_type(result, -1)?)),
            (pg_sys::F_FLOAT8_NUMERIC, &[value]) => {
                let value = self.value(value)?;
                match value.data_type() {
                    // A quotient of two numbers that a float has is rounded once, as the text is there.
                    DataType::Decimal128 { precision: 0..=15, scale: 0..=22 } => {
                        Ok(value.cast(DataType::Float64))
                    }
                    of => why_not(format!("a cast of {of} to a float")),
                }
            }
            (pg_sys::F_NUMERIC_INT2, &[value]) => Ok(self.expr(value)?.cast(whole(5))),
            (pg_sys::F_NUMERIC_INT4, &[value]) => Ok(self.expr(value)?.cast(whole(10))),
            (pg_sys::F_NUMERIC_INT8, &[value]) => Ok(self.expr(value)?.cast(whole(19))),
            _ => self.other_call(node, function, arguments),
        }
    }

    unsafe fn other_call(
        &mut self,
        node: *mut Node,
        function: Oid,
        arguments: &[*mut Node],
    ) -> Translated {
        // What reads no row is better known before all rows than computed for each batch of them.
        if let Ok(parameter) = self.parameter(node) {
            return Ok(parameter);
        }
        if let Some(function) = cuda_function::called(function) {
            return self.cuda_call(function?, arguments);
        }
        let function = function.to_u32();
        if let Some(expr) = self.moment_call(function, arguments)? {
            return Ok(expr);
        }
        if let Some(expr) = self.text_call(node, function, arguments)? {
            return Ok(expr);
        }
        if let Some(expr) = self.number_call(function, arguments)? {
            return Ok(expr);
        }
        self.parameter(node)
    }

    unsafe fn cuda_call(&mut self, function: CudaFunction, arguments: &[*mut Node]) -> Translated {
        let arguments = arguments.iter().map(|argument| self.expr(*argument));
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        let types: Vec<DataType> = arguments.iter().map(Expr::data_type).collect();
        match cuda_function::takes(&function, &types) {
            true => Ok(Expr::Cuda { function: Box::new(function), arguments, twin: None }),
            false => why_not(format!("{function}() of other types than it takes")),
        }
    }
}

fn negated(value: Expr) -> Translated {
    Ok(Expr::Negate { value: Box::new(value), on_overflow: OnOverflow::Error })
}

/// What a function of two numbers computes, as it stands for an operator.
pub fn arithmetic(function: u32) -> Option<ArithmeticOp> {
    let of_numeric = decimal_arithmetic(function).or(match function {
        pg_sys::F_NUMERIC_DIV => Some(ArithmeticOp::Divide),
        pg_sys::F_NUMERIC_MOD | pg_sys::F_MOD_NUMERIC_NUMERIC => Some(ArithmeticOp::Modulo),
        _ => None,
    });
    of_numeric.or(integer_arithmetic(function)).or(float_arithmetic(function))
}

fn integer_arithmetic(function: u32) -> Option<ArithmeticOp> {
    Some(match function {
        pg_sys::F_INT2PL | pg_sys::F_INT4PL | pg_sys::F_INT8PL => ArithmeticOp::Add,
        pg_sys::F_INT24PL | pg_sys::F_INT42PL | pg_sys::F_INT48PL => ArithmeticOp::Add,
        pg_sys::F_INT84PL | pg_sys::F_INT28PL | pg_sys::F_INT82PL => ArithmeticOp::Add,
        pg_sys::F_INT2MI | pg_sys::F_INT4MI | pg_sys::F_INT8MI => ArithmeticOp::Subtract,
        pg_sys::F_INT24MI | pg_sys::F_INT42MI | pg_sys::F_INT48MI => ArithmeticOp::Subtract,
        pg_sys::F_INT84MI | pg_sys::F_INT28MI | pg_sys::F_INT82MI => ArithmeticOp::Subtract,
        pg_sys::F_INT2MUL | pg_sys::F_INT4MUL | pg_sys::F_INT8MUL => ArithmeticOp::Multiply,
        pg_sys::F_INT24MUL | pg_sys::F_INT42MUL | pg_sys::F_INT48MUL => ArithmeticOp::Multiply,
        pg_sys::F_INT84MUL | pg_sys::F_INT28MUL | pg_sys::F_INT82MUL => ArithmeticOp::Multiply,
        pg_sys::F_INT2DIV | pg_sys::F_INT4DIV | pg_sys::F_INT8DIV => ArithmeticOp::Divide,
        pg_sys::F_INT24DIV | pg_sys::F_INT42DIV | pg_sys::F_INT48DIV => ArithmeticOp::Divide,
        pg_sys::F_INT84DIV | pg_sys::F_INT28DIV | pg_sys::F_INT82DIV => ArithmeticOp::Divide,
        pg_sys::F_INT2MOD | pg_sys::F_INT4MOD | pg_sys::F_INT8MOD => ArithmeticOp::Modulo,
        pg_sys::F_MOD_INT2_INT2 | pg_sys::F_MOD_INT4_INT4 | pg_sys::F_MOD_INT8_INT8 => {
            ArithmeticOp::Modulo
        }
        _ => return None,
    })
}

fn float_arithmetic(function: u32) -> Option<ArithmeticOp> {
    Some(match function {
        pg_sys::F_FLOAT4PL | pg_sys::F_FLOAT8PL => ArithmeticOp::Add,
        pg_sys::F_FLOAT48PL | pg_sys::F_FLOAT84PL => ArithmeticOp::Add,
        pg_sys::F_FLOAT4MI | pg_sys::F_FLOAT8MI => ArithmeticOp::Subtract,
        pg_sys::F_FLOAT48MI | pg_sys::F_FLOAT84MI => ArithmeticOp::Subtract,
        pg_sys::F_FLOAT4MUL | pg_sys::F_FLOAT8MUL => ArithmeticOp::Multiply,
        pg_sys::F_FLOAT48MUL | pg_sys::F_FLOAT84MUL => ArithmeticOp::Multiply,
        pg_sys::F_FLOAT4DIV | pg_sys::F_FLOAT8DIV => ArithmeticOp::Divide,
        pg_sys::F_FLOAT48DIV | pg_sys::F_FLOAT84DIV => ArithmeticOp::Divide,
        _ => return None,
    })
}

fn decimal_arithmetic(function: u32) -> Option<ArithmeticOp> {
    match function {
        pg_sys::F_NUMERIC_ADD => Some(ArithmeticOp::Add),
        pg_sys::F_NUMERIC_SUB => Some(ArithmeticOp::Subtract),
        pg_sys::F_NUMERIC_MUL => Some(ArithmeticOp::Multiply),
        _ => None,
    }
}

/// Sums, differences and products of numbers show the digits behind the point that those of decimals
/// have; what has more than 38 digits in all fails.
pub(super) fn decimal_operation(op: ArithmeticOp, left: Expr, right: Expr) -> Translated {
    let (l, r) = (left.data_type(), right.data_type());
    let (
        DataType::Decimal128 { precision: p, scale: s },
        DataType::Decimal128 { precision: q, scale: t },
    ) = (&l, &r)
    else {
        return why_not(format!("{l} {op} {r}"));
    };
    let (precision, scale) = match op {
        ArithmeticOp::Multiply => (p + q, s + t),
        _ => {
            let whole = (*p as i8 - s).max(*q as i8 - t);
            let scale = *s.max(t);
            ((whole + scale + 1).max(1) as u8, scale)
        }
    };
    if scale > 38 {
        return why_not("a product with more than 38 digits behind the point");
    }
    let data_type = DataType::Decimal128 { precision: precision.min(38), scale };
    let (left, right) = (Box::new(left), Box::new(right));
    Ok(Expr::Arithmetic { op, left, right, data_type, on_overflow: OnOverflow::Error })
}

pub(super) fn whole(precision: u8) -> DataType {
    DataType::Decimal128 { precision, scale: 0 }
}

pub(super) fn call(function: Function, argument: Expr) -> Translated {
    call_of(function, vec![argument])
}

pub(super) fn call_of(function: Function, arguments: Vec<Expr>) -> Translated {
    let types: Vec<DataType> = arguments.iter().map(Expr::data_type).collect();
    match function.signature(&types) {
        Some(signature) => Ok(Expr::Call { function, arguments, data_type: signature.result }),
        None => {
            let types: Vec<String> = types.iter().map(ToString::to_string).collect();
            why_not(format!("{} of {}", function.name(), types.join(", ")))
        }
    }
}
