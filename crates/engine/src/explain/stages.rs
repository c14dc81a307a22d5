//! The stages of a pipeline as EXPLAIN shows them, before they are text or JSON.

use std::borrow::Cow;

use headrace_io::decimal_bytes;
use headrace_ir::{Input, Pipeline, Program, Sink};
use headrace_runner::{Place, RunReport, StageReport};
use serde::Serialize;

use crate::exec::PipelineExec;
use crate::rule::Planned;

/// The program of a node, or as it ran, and what its stages did.
pub struct Shown<'a> {
    node: &'a PipelineExec,
    program: Cow<'a, Program>,
    report: Option<&'a RunReport>,
}

/// What becomes of the rows of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// They are probed by others.
    Build,
    /// Another stage reads them.
    Stage,
    /// They are the answer.
    Answer,
}

/// A stage.
#[derive(Debug, Serialize)]
pub struct ShownStage<'a> {
    /// Its number in the program.
    pub stage: usize,
    /// What becomes of its rows.
    pub kind: Kind,
    /// The build as probes call it, or the table.
    pub name: String,
    /// What it reads: columns, rows, bytes.
    pub source: String,
    /// Steps, in the order in which they ran.
    pub steps: Vec<ShownStep>,
    /// The sink.
    pub sink: String,
    /// Where it runs or ran; `None`: nothing is chosen.
    pub processor: Option<ShownProcessor>,
    /// What it did.
    pub report: Option<&'a StageReport>,
}

/// A step.
#[derive(Debug, Serialize)]
pub struct ShownStep {
    /// In words.
    pub step: String,
    /// Rows that it left, where it ran and they were counted.
    pub rows: Option<u64>,
}

/// The processor of a stage.
#[derive(Debug, Serialize)]
pub struct ShownProcessor {
    /// Its name.
    pub processor: String,
    /// How its input is read.
    pub access: Access,
    /// Why it is not a GPU.
    pub why_not_cuda: Option<String>,
}

/// How a stage reads its input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub enum Access {
    /// A table, by this access path.
    Table(String),
    /// Rows in host memory.
    Host,
    /// Groups in the memory of a GPU.
    Device,
    /// The groups of these stages, where they are left.
    Stages(Vec<usize>),
}

impl From<Access> for String {
    fn from(access: Access) -> Self {
        match access {
            Access::Table(path) => path,
            Access::Host => "host memory".into(),
            Access::Device => "device memory".into(),
            Access::Stages(numbers) => format!("groups of {}", stages_text(&numbers)),
        }
    }
}

impl<'a> Shown<'a> {
    /// Of a node that has not run, or whose last run left a report.
    pub fn new(node: &'a PipelineExec, report: Option<&'a RunReport>) -> Self {
        let planned = node.planned();
        let program = match report.and_then(|report| report.program.as_ref()) {
            Some(ran) => Cow::Borrowed(ran),
            // A program that cannot be lowered is refused when it runs.
            None => planned.program.lowered().unwrap_or(Cow::Borrowed(&planned.program)),
        };
        Self { node, program, report }
    }

    /// The stages in the order in which they run; the answer's is the last.
    pub fn stages(&self) -> Vec<ShownStage<'_>> {
        self.program.all().enumerate().map(|(number, stage)| self.stage(number, stage)).collect()
    }

    fn stage<'s>(&'s self, number: usize, stage: &Pipeline) -> ShownStage<'s> {
        let (kind, name) = match stage.sink {
            _ if number == self.program.stages.len() => (Kind::Answer, stage.source.table.clone()),
            Sink::Build { .. } => (Kind::Build, self.program.build_name(number).to_string()),
            _ => (Kind::Stage, stage.source.table.clone()),
        };
        let report = self.report(number);
        ShownStage {
            stage: number,
            kind,
            name,
            source: source_text(stage, self.node.planned()),
            steps: self.steps(report, stage),
            sink: Program::sink_line(&stage.sink),
            processor: self.processor(number, stage),
            report,
        }
    }

    fn report(&self, number: usize) -> Option<&StageReport> {
        self.report?.stages.get(number)?.as_ref()
    }

    fn steps(&self, report: Option<&StageReport>, stage: &Pipeline) -> Vec<ShownStep> {
        let shown = |step, rows| ShownStep { step: self.program.step_line(step), rows };
        match report.map(|report| &report.steps).filter(|steps| !steps.is_empty()) {
            None => stage.steps.iter().map(|step| shown(step, None)).collect(),
            Some(steps) => steps
                .iter()
                .filter_map(|ran| Some(shown(stage.steps.get(ran.step)?, ran.rows)))
                .collect(),
        }
    }

    fn processor(&self, number: usize, stage: &Pipeline) -> Option<ShownProcessor> {
        let report = self.report(number);
        if let Input::Stage(_) | Input::Union(_) = stage.source.input {
            return self.over_stages(stage, report);
        }
        if matches!(stage.sink, Sink::Build { .. }) {
            return None;
        }
        if stage.source.input.table().is_none() {
            let processor = report.map_or("cpu", |report| &report.processor).to_string();
            return Some(ShownProcessor { processor, access: Access::Host, why_not_cuda: None });
        }
        let planned = || {
            let (processor, reason) = self.node.processor_of(&self.program, number);
            (processor.to_string(), reason.map(|reason| reason.to_string()))
        };
        let (processor, why_not_cuda) = match report {
            None => planned(),
            Some(ran) if ran.processor == "cuda" || ran.processor_why_not.is_some() => {
                (ran.processor.clone(), ran.processor_why_not.clone())
            }
            // The run had no choice: the settings say why.
            Some(ran) => (ran.processor.clone(), planned().1),
        };
        let access = Access::Table(self.node.settings().access.to_string());
        Some(ShownProcessor { processor, access, why_not_cuda })
    }

    /// The processor of a stage that reads others. Before the run it is open where these leave their groups.
    fn over_stages(
        &self,
        stage: &Pipeline,
        report: Option<&StageReport>,
    ) -> Option<ShownProcessor> {
        let is_build = matches!(stage.sink, Sink::Build { .. });
        let Some(report) = report else {
            let is_cuda = |&read: &usize| {
                let of_read = self.program.stage(read).and_then(|it| self.processor(read, it));
                of_read.is_some_and(|read| read.processor.starts_with("cuda"))
            };
            let read = stage.source.input.stages();
            let is_open = read.iter().all(is_cuda) && !matches!(stage.sink, Sink::Windows(_));
            let (processor, access) = match is_open {
                true => ("cuda or cpu", Access::Stages(read.to_vec())),
                false => ("cpu", Access::Host),
            };
            let shown = ShownProcessor { processor: processor.into(), access, why_not_cuda: None };
            return Some(shown).filter(|_| is_open || !is_build);
        };
        let (processor, why_not_cuda) =
            (report.processor.clone(), report.processor_why_not.clone());
        let on_device = processor == "cuda";
        let access = if on_device { Access::Device } else { Access::Host };
        let shown = ShownProcessor { processor, access, why_not_cuda };
        Some(shown).filter(|shown| on_device || shown.why_not_cuda.is_some() || !is_build)
    }
}

impl ShownStage<'_> {
    /// The stage as indented lines, the source first.
    pub fn lines(&self) -> Vec<String> {
        let verb = match self.kind {
            Kind::Build => format!("build {}", self.name),
            Kind::Stage => format!("stage {}: {}", self.stage, self.name),
            Kind::Answer => format!("stream {}", self.name),
        };
        let steps = self.steps.iter().map(|ShownStep { step, rows }| match rows {
            Some(rows) => format!("{step} ({})", rows_text(*rows)),
            None => step.clone(),
        });
        let sink = match self.report {
            Some(report) => format!("{} ({})", self.sink, result_text(report, self.kind)),
            None => self.sink.clone(),
        };
        let below = steps.chain([sink]).chain(self.processor.as_ref().map(ShownProcessor::text));
        let lines = std::iter::once(format!("{verb} {}", self.source));
        lines.chain(below.map(|line| format!("  {line}"))).collect()
    }
}

impl ShownProcessor {
    fn text(&self) -> String {
        let Self { processor, access, why_not_cuda } = self;
        let why_not = why_not_cuda.as_ref().map(|reason| format!("; why_not cuda: {reason}"));
        let read = match access {
            Access::Table(path) => format!(", access {path}"),
            Access::Host => ": what it reads is in host memory".into(),
            Access::Device => ": what it reads is in device memory".into(),
            Access::Stages(read) => match read.as_slice() {
                [number] => format!(": where stage {number} leaves its groups"),
                read => format!(": where {} leave their groups", stages_text(read)),
            },
        };
        format!("processor {processor}{read}{}", why_not.unwrap_or_default())
    }
}

/// Stages by their numbers.
fn stages_text(numbers: &[usize]) -> String {
    match numbers {
        [number] => format!("stage {number}"),
        [first @ .., last] => {
            let first: Vec<_> = first.iter().map(usize::to_string).collect();
            format!("stages {} and {last}", first.join(", "))
        }
        [] => "no stage".to_string(),
    }
}

fn rows_text(rows: u64) -> String {
    if rows == 1 { "1 row".to_string() } else { format!("{rows} rows") }
}

/// The result of a stage: rows, index, size, place and time, and what came from a GPU to make it.
fn result_text(report: &StageReport, kind: Kind) -> String {
    let brought = match report.groups_brought {
        0 => String::new(),
        groups => format!(", {groups} groups came from a GPU"),
    };
    let kept = match report.result.as_str() {
        "" => format!("{}{brought}", rows_text(report.rows_out)),
        result => format!("{result}{brought}"),
    };
    if kind == Kind::Answer || report.is_cached {
        return kept;
    }
    let place = match report.place {
        Place::Streamed => String::new(),
        place => format!(", {place}"),
    };
    format!("{kept}{place}, {:.2} ms", report.wall_ms)
}

fn source_text(pipeline: &Pipeline, planned: &Planned) -> String {
    let names: Vec<_> = pipeline.source.columns.iter().map(|c| c.name.as_str()).collect();
    let Some(table) = planned.table(&pipeline.source) else {
        let from = match &pipeline.source.input {
            Input::Values(rows) => format!("of {} rows of constants", rows.len()),
            Input::Stage(stage) => format!("from stage {stage}"),
            Input::Union(stages) => format!("from {}", stages_text(stages)),
            Input::Partitions(stage) => format!("from partitions of stage {stage}"),
            Input::Table(_) | Input::Batches(_) => "from a child plan".to_string(),
        };
        return format!("{from} [{}]", names.join(", "));
    };
    let bytes = table.columns_bytes(&pipeline.source.ordinals);
    let rows = table.source().rows().map_or("unknown".to_string(), |rows| rows.to_string());
    let mut text = format!("[{}] {rows} rows, {}", names.join(", "), decimal_bytes(bytes));
    for remark in table.remarks().iter() {
        text += &format!(", {remark}");
    }
    text
}
