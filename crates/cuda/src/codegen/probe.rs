//! Probes; those that loop over the matches of a key are in [`super::chain`].

use headrace_columns::repr::Repr;
use headrace_ir::ProbeKind;
use headrace_pipeline::WhyNot;
use headrace_pipeline::bound::{BoundExpr, BoundProbe, BoundStep};
use headrace_pipeline::build::{BuildIndex, Presence};

use crate::codegen::generator::Generator;
use crate::codegen::payload::Appended;
use crate::codegen::plan::probes::{can_be_read_again, marked_payload, walks};
use crate::codegen::refusal::{Result, refuse};
use crate::codegen::text::key_bits;
use crate::codegen::value::{Held, Value};
use crate::hash_tables::HashLayout;
use crate::tables::{BuildPiece, payload_shape, slots_of};

impl Generator<'_> {
    pub(super) fn probe(&mut self, step: usize, probe: &BoundProbe) -> Result<()> {
        for key in &probe.keys {
            self.require(key)?;
        }
        if walks(probe) {
            return self.walk(step, probe);
        }
        self.leave_if_dead();
        let mark = (probe.kind == ProbeKind::Mark).then(|| self.names.unique("mark"));
        if let Some(mark) = &mark {
            self.body.line(format!("u32 {mark} = 0;"));
        }
        let judged = probe.residual.as_ref().filter(|_| judges_matches(probe.kind));
        if judged.is_some() {
            self.body.line("u32 matched = 0;");
        }
        if let Some(table) = self.table_without_branches(step, probe) {
            return self.probe_without_branches(step, probe, table);
        }
        let late = self.is_late(step, probe);
        let appended = if late { Vec::new() } else { self.declare_payload(probe)? };
        self.body.open("EACH_ROW(r)");
        for a in &appended {
            self.body.line(format!("{}[r] = {};", a.name, a.zero));
        }
        self.body.line("bool found = false;");
        let null_key = probe.kind == ProbeKind::NullAwareAnti
            && probe.keys.iter().any(|k| self.may_be_null(k));
        if null_key {
            self.body.line("bool null_key = false;");
        }
        self.body.open("if (alive >> r & 1u)");
        match &probe.build.index {
            BuildIndex::Direct(Presence { base, domain, .. }) => {
                self.find_direct(step, probe, (*base, *domain), &appended, null_key)?;
            }
            BuildIndex::Chains(_) => self.find_hashed(step, probe, &appended, null_key, None)?,
        }
        self.body.close();
        if judged.is_some() {
            self.body.line("if (found) matched |= 1u << r;");
        } else {
            self.apply(probe, null_key, mark.as_deref());
        }
        self.body.close();
        self.hold(probe, &appended);
        if late {
            let own = probe.first_register..probe.first_register + probe.payload.len();
            own.for_each(|register| self.held[register] = Held::Late { step });
        }
        if let Some(residual) = judged {
            self.judge(probe, residual, &appended, mark.as_deref())?;
        } else {
            self.check_pending |= !matches!(probe.kind, ProbeKind::Left | ProbeKind::Mark);
            if let Some(residual) = &probe.residual {
                self.filter(residual)?;
            }
        }
        if let Some(name) = mark {
            let register = probe.first_register + probe.payload.len();
            self.held[register] = Held::Bits { name };
        }
        self.fold_keys(&appended.iter().map(|a| a.register).collect::<Vec<_>>())
    }

    /// Whether a probe only asks a bitmap in shared memory, its payload being read when a later
    /// step needs it: of fewer rows, and together with that of other probes.
    fn is_late(&self, step: usize, probe: &BoundProbe) -> bool {
        !probe.payload.is_empty()
            && self.shared.has(step, BuildPiece::Present)
            && can_be_read_again(probe)
    }

    /// The table that alone tells whether a key is there, for a probe that can look every row up
    /// whether it is alive or not: the bitmap, or the narrow payload with absent marks.
    fn table_without_branches(&self, step: usize, probe: &BoundProbe) -> Option<BuildPiece> {
        let [key] = probe.keys.as_slice() else { return None };
        let simple = matches!(probe.kind, ProbeKind::Inner | ProbeKind::Semi)
            && matches!(probe.build.index, BuildIndex::Direct(_))
            && !self.may_be_null(key)
            && !key.can_fail();
        if !simple {
            return None;
        }
        let late = probe.payload.is_empty() || self.is_late(step, probe);
        if late && (self.shared.has(step, BuildPiece::Present) || probe.payload.is_empty()) {
            return Some(BuildPiece::Present);
        }
        let column = marked_payload(probe)?;
        let only = probe.payload == [column] && probe.build.payload[column].validity.is_none();
        let raw = payload_shape(&probe.build.payload[column].data).base.is_some();
        (only && raw && !self.shared.has(step, BuildPiece::Present))
            .then_some(BuildPiece::Payload(column))
    }

    /// Looks all rows up: rows that are gone, and keys outside, find the absent entry behind the
    /// last one.
    fn probe_without_branches(
        &mut self,
        step: usize,
        probe: &BoundProbe,
        piece: BuildPiece,
    ) -> Result<()> {
        let (BuildIndex::Direct(Presence { base, domain, .. }), [key]) =
            (&probe.build.index, probe.keys.as_slice())
        else {
            return refuse("a look-up by hash without branches");
        };
        self.leave_if_dead();
        let payload = matches!(piece, BuildPiece::Payload(_));
        let appended = if payload { self.declare_payload(probe)? } else { Vec::new() };
        let hits = self.names.unique("hits");
        self.body.line(format!("u32 {hits} = 0;"));
        self.body.open("EACH_ROW(r)");
        let value = self.value(key)?;
        let range = (*base, *domain);
        let offset = self.offset_of(&value.code, &key.repr, range, "build_base")?;
        let domain = self.constant(*domain, offset.c_type, "build_domain");
        let mut slot = format!("hr::least({}({}), {domain})", offset.c_type, offset.code);
        if !self.shared.has(step, piece) {
            slot = format!("alive >> r & 1u ? {slot} : {domain}");
        }
        self.body.line(format!("const {} slot = {slot};", offset.c_type));
        let word = match (piece, appended.first()) {
            (BuildPiece::Payload(column), Some(to)) => {
                let shape = payload_shape(&probe.build.payload[column].data);
                let table = self.piece(step, piece, shape.c_type);
                let absent = shape.absent.unwrap_or(u32::MAX);
                self.body.line(format!("{}[r] = hr::entry({table}, slot);", to.name));
                format!("u32({}[r] != {absent}u)", to.name)
            }
            _ => {
                let table = self.piece(step, BuildPiece::Present, "u32");
                format!("hr::bit_first({table}, slot)")
            }
        };
        self.body.line(format!("{hits} = hr::push_bit({hits}, {word});"));
        self.body.close();
        self.body.line(format!("alive &= {hits} >> (32u - ROWS);"));
        self.hold(probe, &appended);
        if !payload {
            let own = probe.first_register..probe.first_register + probe.payload.len();
            own.for_each(|register| self.held[register] = Held::Late { step });
        }
        self.check_pending = true;
        if let Some(residual) = &probe.residual {
            self.filter(residual)?;
        }
        self.fold_keys(&appended.iter().map(|a| a.register).collect::<Vec<_>>())
    }

    /// Reads the payload of a late probe for the rows that are still there.
    pub(super) fn read_late(&mut self, step: usize) -> Result<()> {
        let bound = self.bound;
        let Some(BoundStep::Probe(probe)) = bound.steps.get(step) else {
            return refuse("payload of a step that is no probe");
        };
        let (BuildIndex::Direct(Presence { base, domain, .. }), [key]) =
            (&probe.build.index, probe.keys.as_slice())
        else {
            return refuse("late payload of a build by hash");
        };
        self.require(key)?;
        self.leave_if_dead();
        let appended = self.declare_payload(probe)?;
        self.body.open("EACH_ROW(r)");
        for a in &appended {
            self.body.line(format!("{}[r] = {};", a.name, a.zero));
        }
        self.body.open("if (alive >> r & 1u)");
        let value = self.value(key)?;
        let range = (*base, *domain);
        let offset = self.offset_of(&value.code, &key.repr, range, "build_base")?;
        self.body.line(format!("const {} slot = {};", offset.c_type, offset.code));
        self.read_payload(step, probe, &appended, None, "slot");
        self.body.close();
        self.body.close();
        self.hold(probe, &appended);
        Ok(())
    }

    /// The residual condition of the `matched` rows of a join that keeps, drops or marks a row by
    /// whether it has a match: one that does not satisfy the condition is none.
    fn judge(
        &mut self,
        probe: &BoundProbe,
        residual: &BoundExpr,
        appended: &[Appended],
        mark: Option<&str>,
    ) -> Result<()> {
        self.require(residual)?;
        self.body.open("EACH_ROW(r)");
        self.body.open("if (matched >> r & 1u)");
        let truth = self.truth(residual)?;
        let truth = self.named("bool", "satisfied", truth);
        if probe.kind == ProbeKind::Anti {
            self.body.line(format!("if ({truth}) alive &= ~(1u << r);"));
            self.check_pending = true;
        } else if let Some(mark) = mark {
            self.body.line(format!("if ({truth}) {mark} |= 1u << r;"));
        } else {
            for valid in appended.iter().filter_map(|a| a.valid.as_ref()) {
                self.body.line(format!("if (!{truth}) {valid} &= ~(1u << r);"));
            }
        }
        self.body.close();
        self.body.close();
        Ok(())
    }

    fn find_direct(
        &mut self,
        step: usize,
        probe: &BoundProbe,
        (base, domain): (i64, u64),
        appended: &[Appended],
        null_key: bool,
    ) -> Result<()> {
        let [key] = probe.keys.as_slice() else {
            return refuse(format!("build {} is direct over several keys", probe.build.name));
        };
        let value = self.value(key)?;
        let range = (base, domain);
        let offset = self.offset_of(&value.code, &key.repr, range, "build_base")?;
        self.note_null_key(&value.null, null_key);
        self.body.line(format!("const {} slot = {};", offset.c_type, offset.code));
        let domain = self.constant(domain, offset.c_type, "build_domain");
        let mut condition = format!("slot < {domain}");
        if let Some(null) = &value.null {
            condition = format!("{condition} && !({null})");
        }
        let bitmap_first = self.shared.has(step, BuildPiece::Present);
        let marked = marked_payload(probe).filter(|_| !bitmap_first);
        match marked {
            Some(column) => {
                self.body.open(format!("if ({condition})"));
                let (position, first) = appended
                    .iter()
                    .enumerate()
                    .find(|(_, a)| a.column == column)
                    .map(|(i, a)| (i, a.name.clone()))
                    .ok_or_else(|| WhyNot::new("a marked payload that is not read"))?;
                let shape = payload_shape(&probe.build.payload[column].data);
                let table = self.piece(step, BuildPiece::Payload(column), shape.c_type);
                let absent = shape.absent.unwrap_or(u32::MAX);
                self.body.line(format!("const u32 hit = hr::entry({table}, slot);"));
                self.body.line(format!("found = hit != {absent}u;"));
                self.body.open("if (found)");
                self.body.line(format!("{first}[r] = hit;"));
                self.read_payload(step, probe, appended, Some(position), "slot");
                self.body.close();
                self.body.close();
            }
            None => {
                let present = self.piece(step, BuildPiece::Present, "u32");
                self.body.line(format!("found = {condition} && hr::bit({present}, slot);"));
                if !appended.is_empty() {
                    self.body.open("if (found)");
                    self.read_payload(step, probe, appended, None, "slot");
                    self.body.close();
                }
            }
        }
        Ok(())
    }

    /// Finds the first row of the row's key: for `chain`, if that is given, else to read its
    /// payload.
    pub(super) fn find_hashed(
        &mut self,
        step: usize,
        probe: &BoundProbe,
        appended: &[Appended],
        null_key: bool,
        chain: Option<&str>,
    ) -> Result<()> {
        let layout = HashLayout::of(&probe.build)?;
        let values = probe.keys.iter().map(|key| self.value(key)).collect::<Result<Vec<_>>>()?;
        // A key with a NULL is looked up where NULL equals NULL, if the build has such keys.
        let finds_nulls = probe.null_equal && probe.build.nulls_equal;
        let null = if finds_nulls { None } else { self.any_null(&values) };
        self.note_null_key(&null, null_key);
        let rows = self.piece(step, BuildPiece::HashRows, "u32");
        let keys = self.piece(step, BuildPiece::HashKeys, "u64");
        let mask = slots_of(probe.build.rows) - 1;
        let mask = self.constant(mask, "u32", "slot_mask");
        let guard = null.map_or_else(|| "true".to_string(), |null| format!("!({null})"));
        self.body.open(format!("if ({guard})"));
        let call = if layout.is_wide {
            let texts = match layout.keys.texts {
                0 => "nullptr".to_string(),
                _ => self.piece(step, BuildPiece::HashTexts, "u8"),
            };
            let known = |value: Value| if finds_nulls { value } else { Value::known(value.code) };
            let values = values.into_iter().map(known).collect();
            self.set_key_words(&layout.keys, &probe.build.key_reprs, values);
            format!("hr::find<{}>({rows}, {keys}, {texts}, {mask}, key_words)", layout.keys.texts)
        } else {
            let word = if layout.keys.words == 1 { "u64" } else { "u128" };
            let bits = values.iter().zip(&probe.build.key_reprs).zip(&layout.keys.parts);
            let bits = bits.filter_map(|((value, repr), part)| {
                let bits = format!("{word}({})", key_bits(repr, &value.code)?);
                Some(if part.at == 0 { bits } else { format!("{bits} << {}", part.at * 8) })
            });
            let joined = bits.collect::<Vec<_>>().join(" | ");
            self.body.line(format!("const {word} key = {joined};"));
            let key = if layout.keys.words == 1 { "key" } else { "u64(key), u64(key >> 64)" };
            format!("hr::find({rows}, {keys}, {mask}, {key})")
        };
        if let Some(chain) = chain {
            self.body.line(format!("{chain}[r] = {call};"));
            self.body.close();
            return Ok(());
        }
        self.body.line(format!("const u32 slot = {call};"));
        self.body.line("found = slot != hr::EMPTY;");
        if !appended.is_empty() {
            self.body.open("if (found)");
            self.read_payload(step, probe, appended, None, "slot");
            self.body.close();
        }
        self.body.close();
        Ok(())
    }

    fn note_null_key(&mut self, null: &Option<String>, wanted: bool) {
        if let (true, Some(null)) = (wanted, null) {
            self.body.line(format!("null_key = {null};"));
        }
    }

    /// What a match or its absence does to the row.
    fn apply(&mut self, probe: &BoundProbe, null_key: bool, mark: Option<&str>) {
        let build = &probe.build;
        if let Some(mark) = mark {
            self.body.line(format!("if (found) {mark} |= 1u << r;"));
        }
        let drop_if = match probe.kind {
            ProbeKind::Inner | ProbeKind::Semi => "!found".to_string(),
            ProbeKind::Anti => "found".to_string(),
            ProbeKind::NullAwareAnti => {
                let has_null_key = u64::from(build.has_null_key);
                let none = self.constant(has_null_key, "u32", "has_null_key");
                let any = self.constant(u64::from(build.rows > 0), "u32", "has_rows");
                let null_key =
                    if null_key { format!(" || (null_key && {any})") } else { String::new() };
                format!("found || {none}{null_key}")
            }
            _ => {
                return;
            }
        };
        self.body.line(format!("if ({drop_if}) alive &= ~(1u << r);"));
    }
}

/// A value less a base.
pub(super) struct Offset {
    /// `u32` or `u64`.
    pub(super) c_type: &'static str,
    pub(super) code: String,
}

impl Generator<'_> {
    /// `code - base` as an unsigned number: below `count` exactly when the value lies in
    /// `base .. base + count`. 32 bits where both sides fit.
    ///
    /// With 32 bits the difference wraps modulo 2^32; as value and `base + count - 1` lie in the
    /// same 32-bit type, no value outside can wrap into the range.
    pub(super) fn offset_of(
        &mut self,
        code: &str,
        repr: &Repr,
        (base, count): (i64, u64),
        wish: &str,
    ) -> Result<Offset> {
        let last = i128::from(base) + i128::from(count) - 1;
        let fits = |low: i64, high: i64| {
            base >= low && last <= i128::from(high) && count <= u64::from(u32::MAX)
        };
        let (c_type, value) = match repr {
            Repr::I8 | Repr::I16 | Repr::I32 | Repr::U8 | Repr::U16 | Repr::Code(_)
                if fits(i64::from(i32::MIN), i64::from(i32::MAX)) =>
            {
                ("u32", format!("u32(i32({code}))"))
            }
            Repr::U32 if fits(0, i64::from(u32::MAX)) => ("u32", format!("u32({code})")),
            Repr::U64 | Repr::Bool => ("u64", format!("u64({code})")),
            Repr::F32 | Repr::F64 | Repr::I128 | Repr::Str | Repr::Bytes(_) => {
                return refuse("an index over this type of key");
            }
            _ => ("u64", format!("u64(i64({code}))")),
        };
        let base = self.constant(base as u64, c_type, wish);
        Ok(Offset { c_type, code: format!("{value} - {base}") })
    }
}

/// Whether the residual condition decides what a match is, rather than which rows go on.
fn judges_matches(kind: ProbeKind) -> bool {
    matches!(kind, ProbeKind::Left | ProbeKind::Anti | ProbeKind::Mark)
}
