//! Loading source columns when a step first needs them.

use headrace_columns::repr::Repr;
use headrace_pipeline::bound::{BoundExpr, BoundStep};

use crate::codegen::describe;
use crate::codegen::generator::Generator;
use crate::codegen::plan::eager::step_expressions;
use crate::codegen::refusal::{Result, refuse};
use crate::codegen::text::c_type;
use crate::codegen::value::Held;
use crate::fields::SegmentField;
use crate::layout::ColumnForm;
use crate::place::Place;

impl Generator<'_> {
    /// Makes every register that `expr` reads available at this point of the tile loop.
    pub(super) fn require(&mut self, expr: &BoundExpr) -> Result<()> {
        expr.registers().into_iter().try_for_each(|r| self.require_register(r))
    }

    /// Makes one register available.
    pub(super) fn require_register(&mut self, register: usize) -> Result<()> {
        match self.held[register] {
            Held::NotLoaded => {
                self.leave_if_dead();
                self.load(register)
            }
            Held::Late { step } => self.read_late(step),
            _ => Ok(()),
        }
    }

    /// Loads a source column.
    pub(super) fn load(&mut self, register: usize) -> Result<()> {
        let info = &self.bound.registers[register];
        if register >= self.bound.source_registers {
            return refuse(format!("register {} is read before a step sets it", info.name));
        }
        let form = self.layout.columns[register].form;
        if form == ColumnForm::Constant {
            return refuse(format!("column {} is told by the names of folders", info.name));
        }
        let repr = info.repr.clone();
        let name = self.names.unique(&describe::register_name(self.bound, register));
        if matches!(repr, Repr::Code(_)) {
            return self.load_codes(register, name, form);
        }
        if matches!(repr, Repr::Str) {
            return self.load_texts(register, name, form);
        }
        if let Repr::Bytes(width) = repr {
            return self.load_bytes(register, name, (form, width));
        }
        let values = self.segment_field(SegmentField::Values(register), &name);
        match (form, &repr) {
            (ColumnForm::Plain, repr) if !matches!(repr, Repr::Bool) => {
                let kind = c_type(repr)?;
                self.body.line(format!("{kind} {name}[ROWS];"));
                self.body.line(format!("hr::load_rows({name}, {values}, row, rows);"));
            }
            (ColumnForm::Narrow(bytes @ (4 | 8)), Repr::I128)
            | (ColumnForm::Narrow(bytes @ (1 | 2 | 4)), Repr::I16 | Repr::I32 | Repr::I64) => {
                let (kind, bits) = (c_type(&repr)?, u32::from(bytes) * 8);
                self.body.line(format!("{kind} {name}[ROWS];"));
                self.body.line(format!("hr::spread_values<i{bits}>({name}, {values}, row, rows);"));
            }
            (ColumnForm::Bits, Repr::Bool) => {
                let bits = self.names.unique(&format!("{name}_bits"));
                self.body.line(format!("const u32 {bits} = hr::load_bits<ROWS>({values}, row);"));
                self.body.line(format!("bool {name}[ROWS];"));
                self.body.line(format!("EACH_ROW(r) {name}[r] = {bits} >> r & 1u;"));
            }
            (ColumnForm::Deltas(bytes) | ColumnForm::Packed(bytes), repr)
                if !matches!(repr, Repr::Bool) =>
            {
                let load = match form {
                    ColumnForm::Packed(_) => "load_packed",
                    _ => "load_deltas",
                };
                self.load_deltas(load, &name, &values, bytes);
                let base = self.base(register, &name);
                let valid = self.load_validity(register, &name)?;
                self.held[register] = Held::Deltas { name, base, valid };
                return Ok(());
            }
            (ColumnForm::Varying, repr) if !matches!(repr, Repr::Bool) => {
                self.load_varying(register, &name, c_type(repr)?);
            }
            _ => return refuse(format!("column {} lies in an unexpected way", info.name)),
        }
        let valid = self.load_validity(register, &name)?;
        self.held[register] = Held::Array { name, valid };
        Ok(())
    }

    fn load_deltas(&mut self, load: &str, name: &str, values: &str, bytes: u8) {
        self.body.line(format!("hr::Deltas<{bytes}, ROWS> {name};"));
        self.body.line(format!("hr::{load}({name}, {values}, row, rows);"));
    }

    /// A local copy of a column's base.
    fn base(&mut self, register: usize, name: &str) -> String {
        let field = self.segment_field(SegmentField::Base(register), &format!("{name}_base"));
        let base = self.names.unique(&format!("{name}_base"));
        self.body.line(format!("const u64 {base} = {field};"));
        base
    }

    fn load_varying(&mut self, register: usize, name: &str, kind: &str) {
        let values = self.segment_field(SegmentField::Values(register), name);
        let form = self.segment_field(SegmentField::Form(register), &format!("{name}_form"));
        let base = self.segment_field(SegmentField::Base(register), &format!("{name}_base"));
        self.body.line(format!("{kind} {name}[ROWS];"));
        self.body.line(format!("hr::load_varying({name}, {values}, {form}, {base}, row, rows);"));
    }

    /// The validity bits of a column that may have NULLs; a segment without a bitmap has none. A
    /// NULL in a column that was declared without is corrupt data.
    pub(super) fn load_validity(&mut self, register: usize, name: &str) -> Result<Option<String>> {
        let info = &self.bound.registers[register];
        if !info.nullable && !self.layout.columns[register].validity {
            return Ok(None);
        }
        let valid = self.names.unique(&format!("{name}_valid"));
        let field = self.segment_field(SegmentField::Validity(register), &valid);
        if info.nullable {
            self.body.line(format!("u32 {valid} = hr::load_validity<ROWS>({field}, row);"));
            return Ok(Some(valid));
        }
        let place = self.place(Place::Corrupt {
            column: info.name.clone(),
            cause: "a NULL where the table declares none".into(),
        });
        self.body.open(format!("if (alive & ~hr::load_validity<ROWS>({field}, row))"));
        self.raise(&place);
        self.body.line("continue;");
        self.body.close();
        Ok(None)
    }

    /// Loads dictionary codes, translates those of segments that need it, and makes sure that
    /// each lies within the dictionary: 0 stands where there is no row or no value.
    fn load_codes(&mut self, register: usize, name: String, form: ColumnForm) -> Result<()> {
        let info = &self.bound.registers[register];
        let raw = self.names.unique(&format!("{name}_raw"));
        let values = self.segment_field(SegmentField::Values(register), &name);
        let code = match form {
            ColumnForm::Codes(bytes @ (1 | 2 | 4 | 8)) => {
                self.body.line(format!("i{} {raw}[ROWS];", u32::from(bytes) * 8));
                self.body.line(format!("hr::load_rows({raw}, {values}, row, rows);"));
                format!("u64(i64({raw}[r]))")
            }
            ColumnForm::Deltas(bytes) => {
                self.load_deltas("load_deltas", &raw, &values, bytes);
                let base = self.base(register, &name);
                format!("hr::based<u64>({base}, {raw}, r)")
            }
            ColumnForm::Varying => {
                self.load_varying(register, &raw, "i64");
                format!("u64({raw}[r])")
            }
            _ => return refuse(format!("column {} lies in an unexpected way", info.name)),
        };
        let valid = self.load_validity(register, &name)?;
        self.check_codes(register, &name, &code, valid.as_deref());
        self.held[register] = Held::Array { name, valid };
        Ok(())
    }

    /// `name[r]` becomes the table's code for the segment's code `code`.
    fn check_codes(&mut self, register: usize, name: &str, code: &str, valid: Option<&str>) {
        let column = self.bound.registers[register].name.clone();
        let entries = self.dictionary_entries(register);
        let entries = self.constant(entries, "u32", &format!("{name}_entries"));
        let cause = "a code outside its dictionary".into();
        let outside = self.place(Place::Corrupt { column, cause });
        let length = self
            .segment_field(SegmentField::RemapLength(register), &format!("{name}_remap_length"));
        let table = self.segment_field(SegmentField::Remap(register), &format!("{name}_remap"));
        self.body.line(format!("i32 {name}[ROWS];"));
        self.body.open("EACH_ROW(r)");
        self.body.line(format!("{name}[r] = 0;"));
        self.body.open(match valid {
            Some(valid) => format!("if ((alive & {valid}) >> r & 1u)"),
            None => "if (alive >> r & 1u)".to_string(),
        });
        self.body.line(format!("const u64 code = {code};"));
        self.body.open(format!("if (code < {length})"));
        self.body.line(format!("{name}[r] = {table} == nullptr ? i32(code) : {table}[code];"));
        self.body.open(format!("if (u32({name}[r]) >= {entries})"));
        match valid {
            Some(valid) => {
                self.body.open(format!("if ({name}[r] != -1)"));
                self.raise(&outside);
                self.body.close();
                self.body.line(format!("{valid} &= ~(1u << r);"));
            }
            None => self.raise(&outside),
        }
        self.body.line(format!("{name}[r] = 0;"));
        self.body.close();
        self.body.otherwise();
        self.raise(&outside);
        self.body.close();
        self.body.close();
        self.body.close();
    }

    fn dictionary_entries(&self, register: usize) -> u64 {
        match &self.bound.registers[register].repr {
            Repr::Code(dictionary) => arrow_array::Array::len(&dictionary.values) as u64,
            _ => 0,
        }
    }
}

impl Generator<'_> {
    /// Loads a step's columns and those that are loaded with them.
    pub(super) fn load_ahead(&mut self, index: usize, step: &BoundStep) -> Result<()> {
        let ahead = self.eager.with_step(index).to_vec();
        if ahead.is_empty() {
            return Ok(());
        }
        for expr in step_expressions(step) {
            self.require(expr)?;
        }
        for column in ahead {
            if matches!(self.held[column], Held::NotLoaded) {
                self.load(column)?;
            }
        }
        Ok(())
    }
}
