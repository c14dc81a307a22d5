//! Offers paths for what a pipeline can do every part of: the grouping of a query, the scan of a table.
//!
//! ```text
//! base relations ──► the largest table, or all its parts, is streamed, the others are child plans
//! clauses        ──► filters of the stream | keys of a probe | filters after a probe
//! target list    ──► keys and aggregates of the sink; what is computed of them stays PostgreSQL's
//! ```
//!
//! With inner joins alone a row of the answer is a combination of rows for which all clauses are true, in
//! whatever order they are looked at. An outer, semi or anti join brings one relation, after all that
//! stand on its outer side; its own clauses decide which pairs match, those of WHERE come after it. The
//! child plans apply the clauses on their relation alone. What is itself a join on the inner side of one is
//! PostgreSQL's to make: one child plan.

mod alternative;
mod cursor;
mod groups;
mod inner;
mod joins;
mod numbers;
mod offers;
mod parts;
mod path;
mod scan;
mod streamed;
mod target;
mod top;

use std::collections::HashMap;

use headrace_format::heap::JsonbQuery;
use headrace_ir::{
    DataType, Expr, Field, Input, Pipeline, Probe, ProbeKind, Program, Scalar, Sink, Source, Step,
};
use pgrx::pg_sys::{self, Node, PlannerInfo, RelOptInfo, UpperRelationKind};

use crate::nodes::{self, WhyNot, why_not};
use crate::plan::{Child, ChildColumn, Part, Plan, Read};
use crate::settings;
use crate::translate::{Columns, Digits, Translator, document, ir_type, stored};
use joins::Join;
use numbers::Numbers;
use streamed::Streamed;
use target::Target;

pub use joins::vars;
pub use numbers::meet;
pub use path::{Methods, NAME, SCAN_METHODS};

static mut PREVIOUS: pg_sys::create_upper_paths_hook_type = None;

/// From now on every query is looked at.
///
/// # Safety
/// The backend's thread, once a process.
pub unsafe fn install() {
    PREVIOUS = pg_sys::create_upper_paths_hook;
    pg_sys::create_upper_paths_hook = Some(create_upper_paths);
    cursor::install();
    scan::install();
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn create_upper_paths(
    root: *mut PlannerInfo,
    stage: pg_sys::UpperRelationKind::Type,
    input: *mut RelOptInfo,
    output: *mut RelOptInfo,
    extra: *mut std::ffi::c_void,
) {
    if let Some(previous) = PREVIOUS {
        previous(root, stage, input, output, extra);
    }
    if !settings::ENABLED.get() {
        return;
    }
    let proposed = match stage {
        UpperRelationKind::UPPERREL_GROUP_AGG => {
            propose_groups(root, input, output, &*extra.cast())
        }
        UpperRelationKind::UPPERREL_ORDERED | UpperRelationKind::UPPERREL_FINAL => {
            parts::propose(root, stage, input, output, extra.cast())
        }
        _ => return,
    };
    if let Err(WhyNot(reason)) = proposed {
        crate::explain::note(reason);
    }
}

/// Where a path is offered.
#[derive(Clone, Copy)]
struct Place {
    /// What its rows are of.
    output: *mut RelOptInfo,
    /// What is computed of its columns.
    pathtarget: *mut pg_sys::PathTarget,
    /// Where PostgreSQL's own paths for the same rows are.
    own: *mut RelOptInfo,
}

impl Place {
    /// Among a relation's paths.
    unsafe fn of(relation: *mut RelOptInfo) -> Self {
        Self { output: relation, pathtarget: (*relation).reltarget, own: relation }
    }
}

unsafe fn propose_groups(
    root: *mut PlannerInfo,
    input: *mut RelOptInfo,
    output: *mut RelOptInfo,
    extra: &pg_sys::GroupPathExtraData,
) -> Result<(), WhyNot> {
    let query = &*(*root).parse;
    if (*output).reloptkind != pg_sys::RelOptKind::RELOPT_UPPER_REL {
        return why_not("a part of a partitioned grouping");
    }
    if !query.groupingSets.is_null() {
        return why_not("grouping sets");
    }
    if query.hasTargetSRFs {
        return why_not("functions that return sets in the select list");
    }
    check_query(root)?;
    let members = joins::members(root, input)?;
    let target = Target::of_groups(root, input, output, extra)?;
    let (path, own) = made(root, &members, Place::of(output), &target)?;
    offers::add(output, offers::Of::Groups, path, own);
    Ok(())
}

/// A path for what is asked of a join, or of one relation, and PostgreSQL's own.
unsafe fn made(
    root: *mut PlannerInfo,
    members: &[*mut RelOptInfo],
    place: Place,
    target: &Target,
) -> Result<(*mut pg_sys::Path, *mut pg_sys::Path), WhyNot> {
    let streamed = streamed::choose(root, members)?;
    let joins = joins::joins(root, members, streamed.relation)?;
    let filters = streamed.filters()?;
    let layout = Layout::new(root, &streamed, &joins, &filters, target)?;
    let made = layout.made(root, &streamed, &joins, &filters, target)?;
    let alternative = alternative::of(root, place.own, target.top.as_ref())?;
    let offer = path::Offer { place, streamed, joins: &joins, target, made, alternative };
    Ok((path::of(offer)?, alternative))
}

/// What no pipeline does, whatever the tables.
unsafe fn check_query(root: *mut PlannerInfo) -> Result<(), WhyNot> {
    if !(*(*root).parse).rowMarks.is_null() {
        return why_not("rows that are to be locked");
    }
    if !(*root).placeholder_list.is_null() || (*root).hasLateralRTEs {
        return why_not("lateral references");
    }
    Ok(())
}

/// Where columns are: which the stream reads, which builds carry, and their registers.
struct Layout {
    source: Source,
    attributes: Vec<i16>,
    reads: Vec<Read>,
    /// For each join the columns that its build carries.
    payloads: Vec<Vec<Payload>>,
    columns: Columns,
    registers: usize,
}

/// A column that a build carries.
struct Payload {
    position: usize,
    type_oid: u32,
    field: Field,
    shows: Option<(u8, u8)>,
    query: Option<JsonbQuery>,
}

/// A program with what it is run with.
pub struct Made {
    plan: Plan,
    parameters: Vec<*mut Node>,
}

impl Layout {
    unsafe fn new(
        root: *mut PlannerInfo,
        streamed: &Streamed,
        joins: &[Join],
        filters: &[*mut Node],
        target: &Target,
    ) -> Result<Self, WhyNot> {
        let mut read: HashMap<u32, Vec<&pg_sys::Var>> = HashMap::new();
        let mut asked = joins::Asked::new();
        let of_joins = joins.iter().flat_map(|join| join.stream_side());
        for expr in filters.iter().copied().chain(of_joins).chain(target.read()) {
            joins::read_by(expr, &mut read, &mut asked);
        }
        let entry = &*nodes::entry_of(root, streamed.relation);
        let mut columns = read.remove(&(*streamed.relation).relid).unwrap_or_default();
        columns.sort_by_key(|var| var.varattno);
        let mut layout = Self {
            attributes: Vec::new(),
            reads: Vec::new(),
            source: Source {
                input: match streamed.files {
                    Some(_) => Input::Table(0),
                    None => Input::Batches(0),
                },
                table: nodes::owned((*entry.eref).aliasname),
                columns: Vec::new(),
                ordinals: Vec::new(),
            },
            payloads: Vec::new(),
            columns: Columns::default(),
            registers: 0,
        };
        for var in columns {
            layout.stream_column(entry, streamed, var)?;
        }
        for (var, query) in asked.remove(&(*streamed.relation).relid).unwrap_or_default() {
            layout.document(entry, streamed, var, query)?;
        }
        for join in joins {
            let vars = join.take(&mut read);
            match join.kind {
                ProbeKind::Inner | ProbeKind::Left => {
                    let asked =
                        nodes::numbers((*join.inner).relids).filter_map(|of| asked.remove(&of));
                    let asked: Vec<_> = asked.flatten().collect();
                    layout.payload(root, join, &vars, asked)?;
                }
                // Its columns are read by its own clauses alone, and are NULL to all others.
                _ => {
                    let mut own = HashMap::new();
                    join.residual.iter().for_each(|expr| joins::vars(*expr, &mut own));
                    layout.payload(root, join, &join.take(&mut own), Vec::new())?;
                    layout.hide(root, &vars)?;
                }
            }
        }
        layout.check_names()?;
        Ok(layout)
    }

    unsafe fn stream_column(
        &mut self,
        entry: &pg_sys::RangeTblEntry,
        streamed: &Streamed,
        var: &pg_sys::Var,
    ) -> Result<(), WhyNot> {
        let files = streamed.files.as_ref();
        if var.varattno <= 0 {
            return why_not("a system column or a whole row");
        }
        let name = column_name(entry, var);
        let known = match (ir_type(var.vartype, var.vartypmod), files) {
            (Err(_), None) if numbers::is_number(var) => {
                numbers::of(&streamed.columns(var.varattno)?)
            }
            (known, _) => known.map(Numbers::from),
        };
        let known = known.map_err(|WhyNot(reason)| format!("column {name}: {reason}"));
        let (stored, known) = match (known, files) {
            (Ok(known), Some(files)) => (files.column(var.varattno)?, Ok(known)),
            (Ok(known), None) => (known.data_type.clone(), Ok(known)),
            (Err(reason), Some(_)) => return why_not(reason),
            (Err(reason), None) => (DataType::Bool, Err(reason)),
        };
        let field = Field::new(&name, stored, true);
        let register = self.append(var, &field);
        let key = (var.varno as u32, var.varattno);
        let (mut read, mut possible) = (Read::Value, None);
        match known {
            Ok(numbers) => {
                if !numbers.is_declared {
                    read = Read::Number { is_shown: numbers.shows().is_some() };
                }
                let most = numbers.most();
                possible = numbers.possible.map(|possible| (possible, most));
                if field.data_type != numbers.data_type {
                    self.columns.scope.insert(key, register.cast(numbers.data_type));
                }
            }
            Err(reason) => {
                self.columns.scope.remove(&key);
                self.columns.presences.insert(key, (register, reason));
            }
        }
        self.source_column(var, field, read);
        if let Some((possible, most)) = possible {
            let field = Field::new(format!("digits of {name}"), DataType::Int32, true);
            let count = self.register(&field);
            self.columns.digits.insert(key, Digits { count, possible });
            self.source_column(var, field, Read::DigitsShown { most });
        }
        Ok(())
    }

    /// What is asked of the stream's documents.
    unsafe fn document(
        &mut self,
        entry: &pg_sys::RangeTblEntry,
        streamed: &Streamed,
        var: &pg_sys::Var,
        query: JsonbQuery,
    ) -> Result<(), WhyNot> {
        if streamed.files.is_some() {
            return why_not("documents of files");
        }
        let name = document::shown(&column_name(entry, var), &query);
        let field = Field::new(name, document::answer_type(&query)?, true);
        self.answer(var, &query, &field);
        self.source_column(var, field, Read::Document(query));
        Ok(())
    }

    fn answer(&mut self, var: &pg_sys::Var, query: &JsonbQuery, field: &Field) {
        let register = self.register(field);
        let key = (var.varno as u32, var.varattno);
        self.columns.documents.entry(key).or_default().push((query.clone(), register));
    }

    fn source_column(&mut self, var: &pg_sys::Var, field: Field, read: Read) {
        self.source.columns.push(field);
        self.source.ordinals.push(self.source.ordinals.len());
        self.attributes.push(var.varattno);
        self.reads.push(read);
    }

    /// Columns are found by their names.
    fn check_names(&self) -> Result<(), WhyNot> {
        let names = self.source.columns.iter().map(|column| &column.name);
        let mut known = std::collections::HashSet::new();
        match names.into_iter().all(|name| known.insert(name)) {
            true => Ok(()),
            false => why_not("a column that is called what the digits of another are"),
        }
    }

    unsafe fn payload(
        &mut self,
        root: *mut PlannerInfo,
        join: &Join,
        vars: &[&pg_sys::Var],
        asked: Vec<(&pg_sys::Var, JsonbQuery)>,
    ) -> Result<(), WhyNot> {
        let mut payloads = Vec::new();
        for var in vars {
            let type_oid = stored(var.vartype, -1).0.to_u32();
            let position = join.position_of(var)?;
            let numbers = numbers::of_var(root, var)?;
            let (shows, most) = (numbers.shows(), numbers.most());
            let name = format!("{}.{}", join.name, var.varattno);
            let field = Field::new(&name, numbers.data_type, true);
            self.append(var, &field);
            payloads.push(Payload { position, type_oid, field, shows, query: None });
            if let Some(possible) = numbers.possible {
                let field = Field::new(format!("digits of {name}"), DataType::Int32, true);
                let count = self.register(&field);
                let key = (var.varno as u32, var.varattno);
                self.columns.digits.insert(key, Digits { count, possible });
                let shows = Some((0, most));
                payloads.push(Payload { position, type_oid, field, shows, query: None });
            }
        }
        for (var, query) in asked {
            let (position, type_oid) = (join.position_of(var)?, var.vartype.to_u32());
            let name = document::shown(&format!("{}.{}", join.name, var.varattno), &query);
            let field = Field::new(name, document::answer_type(&query)?, true);
            self.answer(var, &query, &field);
            payloads.push(Payload { position, type_oid, field, shows: None, query: Some(query) });
        }
        self.payloads.push(payloads);
        Ok(())
    }

    /// Columns that nobody but `NULL` stands for.
    unsafe fn hide(&mut self, root: *mut PlannerInfo, vars: &[&pg_sys::Var]) -> Result<(), WhyNot> {
        for var in vars {
            let null = Expr::Literal(Scalar::null(numbers::of_var(root, var)?.data_type));
            self.columns.scope.entry((var.varno as u32, var.varattno)).or_insert(null);
        }
        Ok(())
    }

    fn append(&mut self, var: &pg_sys::Var, field: &Field) -> Expr {
        let register = self.register(field);
        self.columns.scope.insert((var.varno as u32, var.varattno), register.clone());
        register
    }

    fn register(&mut self, field: &Field) -> Expr {
        let Field { name, data_type, nullable } = field.clone();
        let index = self.registers;
        self.registers += 1;
        Expr::Register { index, data_type, nullable, name }
    }

    /// The program.
    unsafe fn made(
        self,
        root: *mut PlannerInfo,
        streamed: &Streamed,
        joins: &[Join],
        filters: &[*mut Node],
        target: &Target,
    ) -> Result<Made, WhyNot> {
        let mut translator = Translator::new(root, self.columns);
        let mut steps = Vec::new();
        for filter in filters {
            steps.push(Step::Filter(translator.expr(*filter)?));
        }
        let (mut builds, mut children) = (Vec::new(), Vec::new());
        for (number, (join, payload)) in joins.iter().zip(&self.payloads).enumerate() {
            let (keys, columns) = join.keys(root, &mut translator)?;
            builds.push(build(number, join, &columns, payload));
            children.push(child(join, columns, payload));
            steps.push(Step::Probe(Probe {
                build: number,
                keys,
                kind: join.kind,
                null_equal: false,
                residual: join.residual(&mut translator)?,
                payload: (0..payload.len()).collect(),
                is_optional: false,
            }));
            if matches!(join.kind, ProbeKind::Semi | ProbeKind::Anti) {
                nodes::numbers((*join.inner).relids)
                    .for_each(|relation| translator.forget(relation));
            }
            for filter in &join.filters {
                steps.push(Step::Filter(translator.expr(*filter)?));
            }
        }
        let (sink, outputs) = target.sink(&mut translator)?;
        let (parameters, fields) = (translator.parameters, translator.fields);
        let pipeline = Pipeline { source: self.source, steps, sink };
        let program = Program { parameters: fields, ..Program::new(builds, pipeline) };
        program.validate().map_err(|error| WhyNot(error.to_string()))?;
        let types =
            parameters.iter().map(|node| stored(pg_sys::exprType(*node), -1).0.to_u32()).collect();
        let of_files = streamed.files.is_some();
        let parts = streamed.leaves.iter().map(|leaf| {
            Ok(Part { table: leaf.table, attributes: leaf.attributes(&self.attributes)? })
        });
        let parts = parts.collect::<Result<_, _>>()?;
        let reads = self.reads;
        let plan = Plan { program, parts, reads, of_files, children, outputs, parameters: types };
        Ok(Made { plan, parameters })
    }
}

unsafe fn column_name(entry: &pg_sys::RangeTblEntry, var: &pg_sys::Var) -> String {
    match entry.rtekind {
        pg_sys::RTEKind::RTE_RELATION => {
            nodes::owned(pg_sys::get_attname(entry.relid, var.varattno, true))
        }
        // Its members' columns have names of their own, and these may be several times the same.
        _ => format!("{}.{}", nodes::owned((*entry.eref).aliasname), var.varattno),
    }
}

/// The build of a child plan's rows: its tables are those behind the first.
fn build(number: usize, join: &Join, keys: &[ChildColumn], payload: &[Payload]) -> Pipeline {
    let fields = keys.iter().map(|key| key.field.clone());
    let fields = fields.chain(payload.iter().map(|payload| payload.field.clone()));
    let source = Source::of_stage(Input::Batches(number + 1), &join.name, fields.collect());
    let mut columns = source.all_columns();
    let payload = columns.split_off(keys.len());
    Pipeline { source, steps: Vec::new(), sink: Sink::Build { keys: columns, payload } }
}

fn child(join: &Join, keys: Vec<ChildColumn>, payload: &[Payload]) -> Child {
    let payload = payload.iter().map(|payload| ChildColumn {
        position: payload.position,
        type_oid: payload.type_oid,
        field: payload.field.clone(),
        shows: payload.shows,
        query: payload.query.clone(),
    });
    Child { name: join.name.clone(), columns: keys.into_iter().chain(payload).collect() }
}
