//! Parts of builds, and the payload registers that probes read from them.

use headrace_ir::ProbeKind;
use headrace_pipeline::bound::BoundProbe;
use headrace_pipeline::build::PayloadData;

use crate::codegen::describe;
use crate::codegen::generator::Generator;
use crate::codegen::plan::shared::SharedItem;
use crate::codegen::refusal::Result;
use crate::codegen::text::c_type;
use crate::codegen::value::Held;
use crate::fields::Param;
use crate::tables::{BuildPiece, payload_shape};

/// A payload register of a probe.
pub(super) struct Appended {
    pub(super) register: usize,
    pub(super) column: usize,
    pub(super) name: String,
    pub(super) valid: Option<String>,
    /// What stands for no value.
    pub(super) zero: &'static str,
}

impl Generator<'_> {
    /// The payload registers are there from now on.
    pub(super) fn hold(&mut self, probe: &BoundProbe, appended: &[Appended]) {
        for a in appended {
            let data = &probe.build.payload[a.column].data;
            let (name, valid) = (a.name.clone(), a.valid.clone());
            self.held[a.register] = match payload_shape(data).base {
                Some(base) => {
                    let base = self.constant(base as u64, "i64", &format!("{name}_base"));
                    Held::Raw { name, base, valid }
                }
                None => Held::Array { name, valid },
            };
        }
    }

    /// Declares the arrays of the payload registers that something reads.
    pub(super) fn declare_payload(&mut self, probe: &BoundProbe) -> Result<Vec<Appended>> {
        let mut appended = Vec::new();
        for (i, &column) in probe.payload.iter().enumerate() {
            let register = probe.first_register + i;
            let payload = &probe.build.payload[column];
            let info = &self.bound.registers[register];
            let name = self.names.unique(&describe::register_name(self.bound, register));
            let kind = match payload_shape(&payload.data) {
                shape if shape.base.is_some() => shape.c_type,
                _ => c_type(&info.repr)?,
            };
            self.body.line(format!("{kind} {name}[ROWS];"));
            let nullable = payload.validity.is_some() || probe.kind == ProbeKind::Left;
            let valid = nullable.then(|| self.names.unique(&format!("{name}_valid")));
            if let Some(valid) = &valid {
                self.body.line(format!("u32 {valid} = 0;"));
            }
            let zero = if kind == "hr::Text" { "hr::Text(0)" } else { "0" };
            appended.push(Appended { register, column, name, valid, zero });
        }
        Ok(appended)
    }

    /// Reads the payload columns (except one) of the found entry.
    pub(super) fn read_payload(
        &mut self,
        step: usize,
        probe: &BoundProbe,
        appended: &[Appended],
        except: Option<usize>,
        at: &str,
    ) {
        for (i, a) in appended.iter().enumerate() {
            let payload = &probe.build.payload[a.column];
            let shape = payload_shape(&payload.data);
            if Some(i) != except {
                let piece = BuildPiece::Payload(a.column);
                let table = self.piece(step, piece, shape.c_type);
                let entry = format!("hr::entry({table}, {at})");
                let entry = match (&payload.data, shape.base) {
                    (PayloadData::Bool(_), _) => format!("{entry} != 0"),
                    (PayloadData::Bytes { width, .. }, _) => {
                        format!("hr::Text({table} + u64({at}) * {width}u, {width}u)")
                    }
                    (_, Some(_)) => entry,
                    _ => {
                        let repr = &self.bound.registers[a.register].repr;
                        format!("{}({entry})", c_type(repr).unwrap_or("i64"))
                    }
                };
                self.body.line(format!("{}[r] = {entry};", a.name));
            }
            if let Some(valid) = &a.valid {
                if payload.validity.is_some() {
                    let piece = BuildPiece::Validity(a.column);
                    let table = self.piece(step, piece, "u32");
                    self.body.line(format!("if (hr::bit({table}, {at})) {valid} |= 1u << r;"));
                } else {
                    self.body.line(format!("{valid} |= 1u << r;"));
                }
            }
        }
    }

    /// The expression of a part of a build: a shared copy if there is one, else the parameter.
    pub(super) fn piece(&mut self, step: usize, piece: BuildPiece, c_type: &str) -> String {
        let wish = match piece {
            BuildPiece::Present => "present",
            BuildPiece::Payload(_) => "payload",
            BuildPiece::Validity(_) => "payload_valid",
            BuildPiece::HashRows => "hash_rows",
            BuildPiece::HashKeys => "hash_keys",
            BuildPiece::HashTexts => "hash_texts",
            BuildPiece::HashNext => "hash_next",
        };
        let item = SharedItem::Build { step, piece };
        let at = self.shared.entries.iter().position(|e| e.item == item);
        let param = self.param(Param::Build { step, piece }, &format!("const {c_type}*"), wish);
        match at {
            None => param,
            Some(at) => {
                if self.shared.entries[at].name.is_none() {
                    let name = self.names.unique(&format!("shared_{wish}"));
                    self.shared.entries[at].name = Some(name);
                }
                self.shared.entries[at].name.clone().unwrap_or(param)
            }
        }
    }
}
