//! The join graph of a fragment.
//!
//! Inner joins commute, so a tree of them is only a set of *leaves* (scans and opaque child
//! plans), *edges* (equalities between expressions) and *conjuncts* (all other conditions).
//! Semi, anti and outer joins keep their place: their second side *hangs* from the rows that
//! they preserve.
//!
//! Edges, conjuncts and side joins are numbered in the order of the plan, what stands below
//! first: an expression that can fail must not see rows that something below it removes.
//!
//! Expressions here read *graph registers*: leaf `l` owns `first..first + columns.len()`.

use std::ops::Range;
use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use headrace_ir::{DataType, Expr, Field, ProbeKind, Register};
use headrace_pipeline::WhyNot;
use headrace_runner::StreamTable;

use super::translate::{InputColumn, Subqueries};

/// A source of rows.
#[derive(Clone)]
pub struct Leaf {
    /// The plan that yields its rows: a scan, or anything at all.
    pub plan: Arc<dyn ExecutionPlan>,
    /// The table that it scans, or why it is opaque.
    pub rows: Result<LeafTable, WhyNot>,
    /// First graph register.
    pub first: Register,
    /// Its columns, or why they cannot be read.
    pub columns: Vec<Result<Field, WhyNot>>,
    /// Conditions that stand directly above it.
    pub filters: Vec<Expr>,
    /// The plan of the rows that they leave.
    pub filtered: Option<Filtered>,
    /// Whether it is the side of a [`SideJoin`].
    pub is_side: bool,
    /// Whether its rows are paired with all rows of the others.
    pub paired: Option<Paired>,
    /// The graph register of whether a row has a match in it, if that is asked for.
    pub mark: Option<Register>,
}

/// Of a leaf whose rows are paired with all rows of the others. Where it has none, it removes all.
#[derive(Clone, Copy, Debug)]
pub struct Paired {
    /// Its number as a part.
    pub part: usize,
    /// Whether it has one row at most, whatever is in the tables.
    pub is_one_row: bool,
}

/// The table of a leaf.
#[derive(Clone, Debug)]
pub struct LeafTable {
    /// The table.
    pub table: Arc<StreamTable>,
    /// For each column of the leaf its number in the table.
    pub projection: Vec<usize>,
}

/// A leaf's plan with its filters.
#[derive(Clone)]
pub struct Filtered {
    /// The plan.
    pub plan: Arc<dyn ExecutionPlan>,
    /// Its columns over graph registers.
    pub columns: Vec<InputColumn>,
}

impl Leaf {
    /// The table, unless it is opaque.
    pub fn table(&self) -> Option<&LeafTable> {
        self.rows.as_ref().ok()
    }

    /// Rows of the table, if they are known.
    pub fn table_rows(&self) -> Option<u64> {
        self.table()?.table.source().rows()
    }

    /// Whether a graph register is one of its columns.
    pub fn owns(&self, register: Register) -> bool {
        (self.first..self.first + self.columns.len()).contains(&register)
    }

    /// Name for EXPLAIN.
    pub fn name(&self) -> String {
        self.table().map_or_else(|| self.plan.name().to_string(), |it| it.table.name().to_string())
    }
}

/// Numbers of edges, conjuncts and side joins.
pub type Parts = Range<usize>;

/// An equality between two sides of inner joins.
#[derive(Clone, Debug)]
pub struct Edge {
    /// One side.
    pub left: Expr,
    /// The other.
    pub right: Expr,
    /// Whether NULL equals NULL.
    pub null_equal: bool,
    /// Its number.
    pub part: usize,
    /// What stands below the left side.
    pub left_below: Parts,
    /// What stands below the right side.
    pub right_below: Parts,
}

impl Edge {
    /// The same with its sides exchanged.
    pub fn swapped(self) -> Self {
        Self {
            left: self.right,
            right: self.left,
            left_below: self.right_below,
            right_below: self.left_below,
            ..self
        }
    }
}

/// A condition that is no equality of two sides.
#[derive(Clone, Debug)]
pub struct Conjunct {
    /// The condition.
    pub expr: Expr,
    /// Its number.
    pub part: usize,
    /// What stands below it.
    pub below: Parts,
}

/// A leaf that is looked up without being part of the inner joins.
#[derive(Clone, Debug)]
pub struct SideJoin {
    /// The leaf.
    pub leaf: usize,
    /// Semi, anti or left.
    pub kind: ProbeKind,
    /// `(expression over preserved rows, expression over the leaf)`.
    pub keys: Vec<(Expr, Expr)>,
    /// Whether NULL equals NULL.
    pub null_equal: bool,
    /// Further condition on a pair.
    pub residual: Option<Expr>,
    /// Its number.
    pub part: usize,
    /// What stands below the rows that it preserves.
    pub below: Parts,
}

/// Leaves, edges, conjuncts.
#[derive(Clone)]
pub struct Graph {
    /// Leaves.
    pub leaves: Vec<Leaf>,
    /// Equalities.
    pub edges: Vec<Edge>,
    /// Other conditions.
    pub conjuncts: Vec<Conjunct>,
    /// Semi, anti and outer joins in the order of the plan, inner ones first.
    pub side_joins: Vec<SideJoin>,
    /// Subqueries of one value that expressions read.
    pub subqueries: Subqueries,
    /// Why all of it had better stay the planner's.
    pub for_planner: Option<WhyNot>,
    /// Memory for what is read of tables.
    pub slots_bytes: u64,
    next_register: Register,
    next_part: usize,
}

/// A state of a [`Graph`] to return to.
pub struct Mark {
    leaves: usize,
    edges: usize,
    conjuncts: usize,
    side_joins: usize,
    next_register: Register,
    next_part: usize,
}

impl Mark {
    /// The number of the first part after it.
    pub fn next_part(&self) -> usize {
        self.next_part
    }
}

/// Refuses a list among rows that come once (`why`): only a second read can tell beforehand whether an item is NULL.
fn not_list(field: Field, why: &WhyNot) -> Result<Field, WhyNot> {
    match field.data_type {
        DataType::FloatList { .. } => {
            let name = &field.name;
            Err(WhyNot::new(format!("column {name}: lists are read in place alone ({})", why.0)))
        }
        _ => Ok(field),
    }
}

impl Graph {
    /// Without any leaf.
    pub fn new(slots_bytes: u64) -> Self {
        Self {
            leaves: vec![],
            edges: vec![],
            conjuncts: vec![],
            side_joins: vec![],
            subqueries: Subqueries::default(),
            for_planner: None,
            slots_bytes,
            next_register: 0,
            next_part: 0,
        }
    }

    /// Appends a leaf and returns its columns as expressions.
    pub fn add_leaf(
        &mut self,
        plan: Arc<dyn ExecutionPlan>,
        rows: Result<LeafTable, WhyNot>,
        columns: Vec<Result<Field, WhyNot>>,
    ) -> Vec<InputColumn> {
        let first = self.next_register;
        self.next_register += columns.len();
        let columns: Vec<_> = match &rows {
            Ok(_) => columns,
            Err(why) => columns.into_iter().map(|column| not_list(column?, why)).collect(),
        };
        let exprs = columns
            .iter()
            .enumerate()
            .map(|(i, column)| column.clone().map(|field| register(first + i, &field)))
            .collect();
        self.leaves.push(Leaf {
            plan,
            rows,
            first,
            columns,
            filters: vec![],
            filtered: None,
            is_side: false,
            paired: None,
            mark: None,
        });
        exprs
    }

    /// Gives a leaf other rows, which are all of a plan's; answers the first of its registers, which are new.
    pub fn replace_leaf(
        &mut self,
        leaf: usize,
        plan: Arc<dyn ExecutionPlan>,
        opaque: WhyNot,
        fields: Vec<Field>,
    ) -> Register {
        let first = self.next_register;
        self.next_register += fields.len();
        let leaf = &mut self.leaves[leaf];
        let columns = fields.into_iter().map(|field| not_list(field, &opaque)).collect();
        let (filters, filtered) = (Vec::new(), None);
        let Leaf { is_side, paired, mark, .. } = *leaf;
        let rows = Err(opaque);
        *leaf = Leaf { plan, rows, first, columns, filters, filtered, is_side, paired, mark };
        first
    }

    /// A register for whether a row has a match in a leaf.
    pub fn add_mark(&mut self, leaf: usize) -> Expr {
        let mark = self.next_register;
        self.next_register += 1;
        self.leaves[leaf].mark = Some(mark);
        register(mark, &mark_field())
    }

    /// The present state.
    pub fn mark(&self) -> Mark {
        Mark {
            leaves: self.leaves.len(),
            edges: self.edges.len(),
            conjuncts: self.conjuncts.len(),
            side_joins: self.side_joins.len(),
            next_register: self.next_register,
            next_part: self.next_part,
        }
    }

    /// Forgets everything since `mark`.
    pub fn reset(&mut self, mark: &Mark) {
        self.leaves.truncate(mark.leaves);
        self.edges.truncate(mark.edges);
        self.conjuncts.truncate(mark.conjuncts);
        self.side_joins.truncate(mark.side_joins);
        self.next_register = mark.next_register;
        self.next_part = mark.next_part;
    }

    /// The number of the next edge, conjunct or side join.
    pub fn next_part(&self) -> usize {
        self.next_part
    }

    /// A new number.
    pub fn add_part(&mut self) -> usize {
        self.next_part += 1;
        self.next_part - 1
    }

    /// Adds the conjuncts of a condition that stands above everything from part `first` on.
    pub fn add_condition(&mut self, condition: Expr, first: usize) {
        for expr in condition.conjuncts() {
            let part = self.add_part();
            self.conjuncts.push(Conjunct { expr, part, below: first..part });
        }
    }

    /// Whether one of these parts is still there.
    pub fn holds_any(&self, parts: &Parts) -> bool {
        self.edges.iter().any(|edge| parts.contains(&edge.part))
            || self.conjuncts.iter().any(|conjunct| parts.contains(&conjunct.part))
            || self.side_joins.iter().any(|side| parts.contains(&side.part))
            || self.leaves.iter().filter_map(|leaf| leaf.paired).any(|it| parts.contains(&it.part))
    }

    /// The one leaf that was added since `mark`, if that is all that happened.
    pub fn only_leaf_since(&self, mark: &Mark) -> Option<usize> {
        let one = self.leaves.len() == mark.leaves + 1;
        let nothing_else = self.next_part == mark.next_part;
        (one && nothing_else).then_some(mark.leaves)
    }

    /// The leaf that owns a graph register.
    pub fn leaf_of(&self, register: Register) -> Option<usize> {
        self.leaves.iter().position(|leaf| leaf.owns(register) || leaf.mark == Some(register))
    }

    /// The leaves that an expression reads, each once.
    pub fn leaves_of(&self, expr: &Expr) -> Vec<usize> {
        let mut leaves: Vec<_> =
            expr.registers().into_iter().filter_map(|r| self.leaf_of(r)).collect();
        leaves.dedup();
        leaves
    }

    /// The column behind a graph register.
    pub fn field(&self, register: Register) -> Result<Field, WhyNot> {
        let leaf = self
            .leaf_of(register)
            .map(|l| &self.leaves[l])
            .ok_or_else(|| WhyNot::new(format!("register {register} has no leaf")))?;
        match leaf.mark == Some(register) {
            true => Ok(mark_field()),
            false => leaf.columns[register - leaf.first].clone(),
        }
    }
}

/// Whether a row has a match.
pub fn mark_field() -> Field {
    Field::new("mark", DataType::Bool, false)
}

/// A register as an expression.
pub fn register(index: Register, field: &Field) -> Expr {
    Expr::Register {
        index,
        data_type: field.data_type.clone(),
        nullable: field.nullable,
        name: field.name.clone(),
    }
}
