//! A run over heaps: blocks from their files, and through shared buffers.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use headrace_format::batches::{batch_channel, channel};
use headrace_format::heap::{
    Derived, HeapBlocks, HeapTable, HeapType, JsonbQuery, Relation as Description,
};
use headrace_ir::{DataType, Field};
use headrace_runner::StreamTable;
use headrace_service::client::RowSender;
use pgrx::pg_sys::{self, CustomScanState, Oid, Relation, Snapshot};

use super::description::{description, files, stamps};
use super::job::{Answered, Failure, ForService, Job, Table, over, serve, watched};
use super::row_way::{PageWay, RowWay};
use super::run::{Given, Ran, Read};
use super::service;
use crate::blocks::{Counts, Map, Owner, Part, Reader, list};
use crate::nodes::{WhyNot, why_not};
use crate::plan::{self, Plan};
use crate::settings::{self, Fallback};
use crate::version;

/// Batches of the server's rows that wait for the pipeline.
const QUEUED_BATCHES: usize = 8;

/// Chunks of the server's pages that do.
const QUEUED_PAGES: usize = 8;

/// Blocks that a run read.
pub struct Blocks {
    /// How they were to be read.
    pub listed: Counts,
    /// Those that were to be read from the files, and found unfit after they were.
    pub rerouted: u64,
    /// Why the first of them was.
    pub rerouted_why: Option<String>,
    /// Why no block of a table was read from its files.
    pub why_not_direct: Option<String>,
}

impl Blocks {
    /// Those whose rows were read from the files.
    pub fn direct(&self) -> u64 {
        self.listed.direct - self.rerouted
    }

    /// Those whose rows were read through shared buffers.
    pub fn server(&self) -> u64 {
        self.listed.server + self.rerouted
    }
}

/// Runs a plan over heaps.
pub(super) unsafe fn stream(
    node: *mut CustomScanState,
    plan: &Plan,
    given: &Given,
    ran: &mut Option<Ran>,
) -> Result<Vec<RecordBatch>, WhyNot> {
    let lock = pg_sys::AccessShareLock as i32;
    let relations = plan.parts.iter().map(|part| pg_sys::table_open(Oid::from(part.table), lock));
    let relations: Vec<Relation> = relations.collect();
    let snapshot = (*(*node).ss.ps.state).es_snapshot;
    let batches = somewhere(plan, &relations, snapshot, given, ran);
    relations.into_iter().for_each(|relation| pg_sys::table_close(relation, lock));
    batches
}

/// In the process that owns the GPUs if that is wanted, and here if it is not, or fails.
unsafe fn somewhere(
    plan: &Plan,
    relations: &[Relation],
    snapshot: Snapshot,
    given: &Given,
    ran: &mut Option<Ran>,
) -> Result<Vec<RecordBatch>, WhyNot> {
    let mut why_not = service::why_not(false, || service::bytes_of(relations));
    let service_failed = why_not.is_none();
    if service_failed {
        match stream_blocks(plan, relations, snapshot, given, true, ran) {
            Err(failure)
                if failure.is_of_the_place && settings::FALLBACK.get() == Fallback::allow =>
            {
                pgrx::debug1!("Headrace's service failed: {}", failure.reason);
                why_not = Some(failure.reason);
            }
            other => return other.map_err(|failure| WhyNot(failure.reason)),
        }
    }
    let outcome = stream_blocks(plan, relations, snapshot, given, false, ran);
    if let Some(ran) = ran {
        (ran.why_not_service, ran.service_failed) = (why_not, service_failed);
    }
    outcome.map_err(|failure| WhyNot(failure.reason))
}

/// The program over the tables, their blocks listed now.
unsafe fn stream_blocks(
    plan: &Plan,
    relations: &[Relation],
    snapshot: Snapshot,
    given: &Given,
    by_service: bool,
    ran: &mut Option<Ran>,
) -> Result<Vec<RecordBatch>, Failure> {
    if (*snapshot).snapshot_type != pg_sys::SnapshotType::SNAPSHOT_MVCC {
        return Ok(why_not("a snapshot that is not of a transaction")?);
    }
    let (parts, maps) = parts(plan, relations, snapshot)?;
    let checks_sums = parts.iter().all(|part| part.description.checksums);
    let heaps = parts.iter().zip(&maps).map(|(part, map)| HeapBlocks {
        files: files(part.relation, &part.listing),
        blocks_per_file: pg_sys::RELSEG_SIZE,
        direct: part.listing.direct.clone(),
        relation: part.description.clone(),
        stamps: if by_service { stamps(part.relation, map) } else { None },
    });
    let heaps: Vec<HeapBlocks> = heaps.collect();
    let maps = Arc::new(maps);
    let owner = Arc::new(Owner::new(Arc::clone(&maps)));
    let counts = parts.iter().fold(Counts::default(), |sum, part| sum.and(part.listing.counts));
    // The server's own idea of how much of a table the page cache holds.
    let cached_blocks = u64::try_from(pg_sys::effective_cache_size).unwrap_or(0);
    let fills_page_cache = counts.direct <= cached_blocks;
    let mut program = plan.program.clone();
    program.answer.source.ordinals = ordinals(plan, &parts)?;
    program.answer.sink.set_limit(given.limit);
    let (table, way) = match by_service {
        true => {
            let (rows, owner) = (Arc::new(RowSender::default()), Arc::clone(&owner));
            let way = RowWay::Service(Arc::clone(&rows));
            (Table::Service(ForService { heaps, fills_page_cache, rows, owner }), way)
        }
        false => {
            let (sender, receiver) = batch_channel(QUEUED_BATCHES);
            let name = &plan.program.answer.source.table;
            let table = HeapTable::new(name, heaps, Arc::clone(&owner) as _, receiver);
            let table = table.map_err(|error| WhyNot(error.to_string()))?;
            let (pages, handed_over) = channel(QUEUED_PAGES);
            let table = table.with_pages(handed_over, counts.server);
            let table = Arc::new(table.filling_page_cache(fills_page_cache));
            let way = RowWay::Own(Some(sender), Some(PageWay::new(pages)));
            (Table::Own(StreamTable::new(name, table)), way)
        }
    };
    let Given { values, children, .. } = given;
    let job = Job { program, values: values.clone(), children: children.clone(), table };
    let outcome =
        watched(job, over(&owner), || serve(&owner, way, &parts, Reader::new(&parts, snapshot)));
    let (rerouted_blocks, rerouted_why) = owner.rerouted();
    let answered = outcome.as_ref().ok();
    let report = answered.map(|answered| answered.report.clone());
    let served = answered.and_then(|answered| answered.served.clone());
    let why_not_direct = parts.iter().find_map(|part| part.listing.why_not_direct.clone());
    let read = Blocks { listed: counts, rerouted: rerouted_blocks, rerouted_why, why_not_direct };
    *ran = Some(Ran {
        report,
        read: Read::Blocks(read),
        served,
        why_not_service: None,
        service_failed: false,
        wall: Duration::ZERO,
    });
    let is_unchanged = checks_sums || maps.iter().all(|map| map.is_unchanged());
    drop(owner);
    match Arc::try_unwrap(maps) {
        Ok(maps) => maps.into_iter().for_each(|mut map| map.release()),
        // Whoever holds them was joined, so that nobody does; at worst the transaction's end releases them.
        Err(_) => return Ok(why_not("a thread that outlived its run")?),
    }
    if !is_unchanged {
        return Ok(why_not(
            "a vacuum changed the visibility map meanwhile, and pages have no checksums",
        )?);
    }
    let Answered { report, batches, .. } = outcome?;
    count_scans(&parts, report.streamed.rows_in);
    let bytes = report.streamed.race.bytes_by_path;
    let read_blocks = (bytes.total() - bytes.resident_device) / u64::from(pg_sys::BLCKSZ);
    version::count_read(read_blocks.min(counts.direct));
    Ok(batches)
}

/// The places of the source's columns among those of the first part.
fn ordinals(plan: &Plan, parts: &[Part]) -> Result<Vec<usize>, WhyNot> {
    let columns = &plan.program.answer.source.columns;
    let place = |name: &str| {
        let mut columns = parts.first()?.description.columns();
        columns.position(|(own, _)| own == name)
    };
    let places = columns.iter().map(|column| place(&column.name)).collect::<Option<Vec<_>>>();
    places.ok_or_else(|| WhyNot("a part without a column of the whole".into()))
}

/// The tables, of whose blocks it is known how they are read.
unsafe fn parts(
    plan: &Plan,
    relations: &[Relation],
    snapshot: Snapshot,
) -> Result<(Vec<Part>, Vec<Map>), WhyNot> {
    let mut described = Vec::new();
    for (part, &relation) in plan.parts.iter().zip(relations) {
        version::predicate_lock(relation, snapshot);
        let mut description = description(relation)?;
        let wanted = name_columns(plan, part, &mut description)?;
        described.push((relation, description, wanted));
    }
    let (listings, maps) = list(relations, snapshot);
    let parts = described.into_iter().zip(listings);
    let parts = parts.map(|((relation, description, wanted), listing)| Part {
        relation,
        description,
        wanted,
        listing,
    });
    Ok((parts.collect(), maps))
}

/// Calls a part's columns what they are called in the whole; their places among its attributes.
fn name_columns(
    plan: &Plan,
    part: &plan::Part,
    description: &mut Description,
) -> Result<Vec<usize>, WhyNot> {
    let columns = &plan.program.answer.source.columns;
    let names: Vec<&String> = columns.iter().map(|column| &column.name).collect();
    // Others of these names are other columns.
    for attribute in &mut description.attributes {
        if names.contains(&&attribute.name) {
            attribute.name.clear();
        }
    }
    let count = description.attributes.len();
    let place = |((number, column), read): ((&i16, &Field), &plan::Read)| {
        let place = usize::try_from(*number).ok()?.checked_sub(1)?;
        let attribute = description.attributes.get_mut(place).filter(|own| !own.dropped)?;
        let name = column.name.clone();
        let derived = match read {
            plan::Read::DigitsShown { most } => Some((HeapType::DigitsShown { most: *most }, None)),
            plan::Read::Document(query) => {
                let kind = match query {
                    JsonbQuery::Field { of, .. } => HeapType::JsonbField(*of),
                    JsonbQuery::Contains(_) => HeapType::JsonbContains,
                };
                Some((kind, Some(query.clone())))
            }
            _ => None,
        };
        if let Some((kind, query)) = derived {
            description.derived.push(Derived { attribute: place, name, kind, query });
            return Some(count + description.derived.len() - 1);
        }
        attribute.name = name;
        if let plan::Read::Number { is_shown } = *read {
            let DataType::Decimal128 { precision, scale } = column.data_type else { return None };
            attribute.kind = Some(match is_shown {
                true => HeapType::NumericShowing { precision, scale },
                false => HeapType::Numeric { precision, scale },
            });
        }
        Some(place)
    };
    let columns = part.attributes.iter().zip(columns).zip(&plan.reads);
    let places = columns.map(place).collect::<Option<Vec<_>>>();
    places.ok_or_else(|| WhyNot("a part without a column of the whole".into()))
}

/// Rows of all tables are known, those of each are estimated by its share of the blocks.
unsafe fn count_scans(parts: &[Part], rows: u64) {
    let blocks = |part: &Part| part.listing.counts.direct + part.listing.counts.server;
    let all: u64 = parts.iter().map(blocks).sum();
    for part in parts {
        let share = blocks(part) as f64 / all.max(1) as f64;
        let direct = u32::try_from(part.listing.counts.direct).unwrap_or(u32::MAX);
        version::count_scan(part.relation, (rows as f64 * share) as u64, direct);
    }
}
