//! Loading source columns when a step first needs them.

use arrow_array::Array;
use headrace_ir::Encoding;

use super::text::c_type;
use super::{Generator, Held, Result, refuse};
use crate::bound::{BoundExpr, Repr};
use crate::cuda::program::{Place, SegmentField};

impl Generator<'_> {
    /// Makes every register that `expr` reads available at this point of the tile loop.
    pub(super) fn require(&mut self, expr: &BoundExpr) -> Result<()> {
        super::expr::registers(expr).into_iter().try_for_each(|r| self.require_register(r))
    }

    /// Makes one register available.
    pub(super) fn require_register(&mut self, register: usize) -> Result<()> {
        if matches!(self.held[register], Held::NotLoaded) {
            self.load(register)?;
        }
        Ok(())
    }

    fn load(&mut self, register: usize) -> Result<()> {
        if register >= self.bound.source_registers {
            return refuse(format!(
                "register {} is read before a step sets it",
                self.bound.registers[register].name
            ));
        }
        self.leave_if_dead();
        let layout = self.layout.columns[register].clone();
        let info = &self.bound.registers[register];
        let repr = info.repr.clone();
        let name = self.names.unique(&info.name);
        let values = self.segment_field(SegmentField::Values(register), &name);
        match (&layout.encoding, &repr) {
            (_, Repr::Str) | (Encoding::Offsets { .. }, _) => {
                return refuse(format!("column {} is plain text", info.name));
            }
            (Encoding::Plain, Repr::Bool | Repr::Code(_)) => {
                return refuse(format!("column {} lies in an unexpected way", info.name));
            }
            (Encoding::Plain, _) => {
                let kind = c_type(&repr)?;
                self.body.line(format!("{kind} {name}[HR_ROWS];"));
                self.body.line(format!("hr::load4({name}, {values}, row, rows);"));
            }
            (Encoding::Bits, Repr::Bool) => {
                let bits = self.names.unique(&format!("{name}_bits"));
                self.body.line(format!("const u32 {bits} = hr::load_bits4({values}, row);"));
                self.body.line(format!("bool {name}[HR_ROWS];"));
                self.body.line(format!("HR_EACH_ROW(r) {name}[r] = {bits} >> r & 1u;"));
            }
            (Encoding::Dictionary { code_bytes }, Repr::Code(dictionary)) => {
                let entries = dictionary.values.len();
                return self.load_codes(register, name, values, *code_bytes, entries);
            }
            _ => return refuse(format!("column {} lies in an unexpected way", info.name)),
        }
        let valid = self.load_validity(register, &name)?;
        self.held[register] = Held::Array { name, valid };
        Ok(())
    }

    /// The validity nibble of a column. A NULL in a column that was declared without is
    /// corrupt data.
    fn load_validity(&mut self, register: usize, name: &str) -> Result<Option<String>> {
        if !self.layout.columns[register].validity {
            return Ok(None);
        }
        let valid = self.names.unique(&format!("{name}_valid"));
        let field = self.segment_field(SegmentField::Validity(register), &valid);
        let info = &self.bound.registers[register];
        if info.nullable {
            self.body.line(format!("u32 {valid} = hr::load_validity4({field}, row);"));
            return Ok(Some(valid));
        }
        let place = self.place(Place::Corrupt {
            column: info.name.clone(),
            cause: "a NULL where the table declares none".into(),
        });
        self.body.open(format!("if (alive & ~hr::load_validity4({field}, row))"));
        self.body.line(format!("hr::raise(p.error, {place});"));
        self.body.line("continue;");
        self.body.close();
        Ok(None)
    }

    /// Loads dictionary codes, translates them, and makes sure that each lies within the
    /// dictionary: 0 stands where there is no row or no value.
    fn load_codes(
        &mut self,
        register: usize,
        name: String,
        values: String,
        code_bytes: u8,
        entries: usize,
    ) -> Result<()> {
        let raw_type = match code_bytes {
            1 => "i8",
            2 => "i16",
            4 => "i32",
            8 => "i64",
            other => return refuse(format!("dictionary codes of {other} bytes")),
        };
        let info = &self.bound.registers[register];
        let (column, nullable) = (info.name.clone(), info.nullable);
        let remap = self.layout.columns[register].remap;
        let raw = self.names.unique(&format!("{name}_raw"));
        self.body.line(format!("{raw_type} {raw}[HR_ROWS];"));
        self.body.line(format!("hr::load4({raw}, {values}, row, rows);"));
        let from_bitmap = self.load_validity(register, &name)?;
        let valid = match from_bitmap {
            None if remap && nullable => {
                let valid = self.names.unique(&format!("{name}_valid"));
                self.body.line(format!("u32 {valid} = 15u;"));
                Some(valid)
            }
            valid => valid,
        };
        let outside = self.place(Place::Corrupt {
            column: column.clone(),
            cause: "a code outside its dictionary".into(),
        });
        let length = if remap {
            self.segment_field(SegmentField::RemapLength(register), &format!("{name}_remap_length"))
        } else {
            format!("{entries}u")
        };
        self.body.line(format!("i32 {name}[HR_ROWS];"));
        self.body.open("HR_EACH_ROW(r)");
        self.body.line(format!("{name}[r] = 0;"));
        let guard = match &valid {
            Some(valid) => format!("if ((alive & {valid}) >> r & 1u)"),
            None => "if (alive >> r & 1u)".to_string(),
        };
        self.body.open(guard);
        self.body.open(format!("if (u64(i64({raw}[r])) < {length})"));
        if remap {
            let table = self.segment_field(SegmentField::Remap(register), &format!("{name}_remap"));
            self.body.line(format!(
                "{name}[r] = {table} == nullptr ? i32({raw}[r]) : {table}[{raw}[r]];"
            ));
            self.body.open(format!("if (u32({name}[r]) >= {entries}u)"));
            match &valid {
                Some(valid) => {
                    self.body.open(format!("if ({name}[r] != -1)"));
                    self.body.line(format!("hr::raise(p.error, {outside});"));
                    self.body.close();
                    self.body.line(format!("{valid} &= ~(1u << r);"));
                }
                None => self.body.line(format!("hr::raise(p.error, {outside});")),
            }
            self.body.line(format!("{name}[r] = 0;"));
            self.body.close();
        } else {
            self.body.line(format!("{name}[r] = i32({raw}[r]);"));
        }
        self.body.otherwise();
        self.body.line(format!("hr::raise(p.error, {outside});"));
        self.body.close();
        self.body.close();
        self.body.close();
        self.held[register] = Held::Array { name, valid };
        Ok(())
    }
}
