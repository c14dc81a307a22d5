//! Probes: which streamed rows have a match, and where in the build.

use std::rc::Rc;

use headrace_columns::convert::{from_i64, integers};
use headrace_columns::key;
use headrace_columns::select::positions_not;
use headrace_columns::simd::positions;
use headrace_columns::vector::{Data, Shared, Vector};
use headrace_ir::ProbeKind;

use crate::ExecError;
use crate::bound::BoundProbe;
use crate::build::fetch::NO_MATCH;
use crate::build::fetch::bit;
use crate::build::{BuildIndex, BuildTable, Chains, PayloadData, Presence};
use crate::cpu::any_match::any_match;
use crate::cpu::context::Context;
use crate::cpu::eval::eval;
use crate::cpu::pairs::{PairStream, set_payload};

/// What a probe leaves to do.
pub enum Probed<'a> {
    /// A frame with the remaining rows was pushed.
    Framed,
    /// Rows may match several times: pairs come in portions.
    Pairs(PairStream<'a>),
}

/// Rows with a match, at most one each.
struct Matches<'a> {
    /// Rows with a match, ascending.
    rows: Vec<u32>,
    /// Their entries in the build; empty if nobody asked.
    entries: Vec<u32>,
    /// The first payload column with an absent mark, read on the way: its position in the
    /// probe's payload list, and its values.
    payload: Option<(usize, Vector<'a>)>,
}

/// Probes the current rows.
pub fn probe<'a>(
    context: &mut Context<'a>,
    probe: &'a BoundProbe,
) -> Result<Probed<'a>, ExecError> {
    let keys: Vec<Shared<'a>> =
        probe.keys.iter().map(|key| eval(context, key)).collect::<Result<_, _>>()?;
    let key_nulls = key_nulls(&keys, context.rows());
    let found = match &probe.build.index {
        BuildIndex::Direct(_) if probe.residual.is_none() => {
            let matches = direct_matches(probe, &keys[0], context.rows())?;
            return frame_matches(context, probe, matches, key_nulls).map(|()| Probed::Framed);
        }
        BuildIndex::Direct(_) => {
            let matches = direct_matches(probe, &keys[0], context.rows())?;
            let mut heads = vec![NO_MATCH; context.rows()];
            for (&row, &entry) in matches.rows.iter().zip(&matches.entries) {
                heads[row as usize] = entry;
            }
            heads
        }
        BuildIndex::Chains(chains) => {
            let mut heads = chain_heads(chains, &keys, context.rows())?;
            if let (Some(nulls), false) = (&key_nulls, probe.null_equal) {
                let nulls = nulls.iter().zip(&mut heads).filter(|(null, _)| **null != 0);
                nulls.for_each(|(_, head)| *head = NO_MATCH);
            }
            heads
        }
    };
    let multiplies = matches!(probe.kind, ProbeKind::Inner | ProbeKind::Left);
    // The first row of a chain tells whether there is a match; with a residual any row may.
    if probe.residual.is_none() && (probe.build.unique || !multiplies) {
        let matched: Vec<u8> = found.iter().map(|&e| u8::from(e != NO_MATCH)).collect();
        let rows = positions(&matched);
        let entries = rows.iter().map(|&row| found[row as usize]).collect();
        let matches = Matches { rows, entries, payload: None };
        return frame_matches(context, probe, matches, key_nulls).map(|()| Probed::Framed);
    }
    if multiplies {
        return Ok(Probed::Pairs(PairStream::new(probe, found)));
    }
    let matched = any_match(context, probe, &found)?;
    let matches = Matches { rows: positions(&matched), entries: Vec::new(), payload: None };
    frame_matches(context, probe, matches, key_nulls).map(|()| Probed::Framed)
}

/// One byte a row, 1 where any key is NULL; `None`: nowhere.
fn key_nulls(keys: &[Shared<'_>], rows: usize) -> Option<Vec<u8>> {
    let mut nulls: Option<Vec<u8>> = None;
    for valid in keys.iter().filter_map(|key| key.validity_bytes(rows)) {
        let nulls = nulls.get_or_insert_with(|| vec![0; rows]);
        nulls.iter_mut().zip(valid.iter()).for_each(|(n, &v)| *n |= v ^ 1);
    }
    nulls
}

/// Pushes the frame of rows that a probe without duplicates and residual keeps.
fn frame_matches<'a>(
    context: &mut Context<'a>,
    probe: &'a BoundProbe,
    matches: Matches<'a>,
    key_nulls: Option<Vec<u8>>,
) -> Result<(), ExecError> {
    let rows = context.rows();
    match probe.kind {
        ProbeKind::Inner | ProbeKind::Semi => {
            if matches.rows.len() == rows {
                context.push_same();
            } else {
                context.push(matches.rows);
            }
            if probe.kind == ProbeKind::Inner {
                set_payload(context, probe, matches.entries, matches.payload);
            }
        }
        ProbeKind::Left => {
            let mut entries = vec![NO_MATCH; rows];
            for (&row, &entry) in matches.rows.iter().zip(&matches.entries) {
                entries[row as usize] = entry;
            }
            context.push_same();
            set_payload(context, probe, entries, None);
        }
        ProbeKind::Anti => context.push(positions_not(&matched_bytes(&matches.rows, rows))),
        ProbeKind::NullAwareAnti => {
            context.push(null_aware_rows(probe, &matches.rows, rows, key_nulls));
        }
        ProbeKind::Mark => {
            let mark = Vector::bools(matched_bytes(&matches.rows, rows), None);
            context.push_same();
            context.set(probe.first_register + probe.payload.len(), Rc::new(mark));
        }
    }
    Ok(())
}

fn matched_bytes(rows: &[u32], count: usize) -> Vec<u8> {
    let mut matched = vec![0u8; count];
    rows.iter().for_each(|&row| matched[row as usize] = 1);
    matched
}

/// `NOT IN`: nothing is kept if the build has a NULL, everything if it has no row at all.
fn null_aware_rows(
    probe: &BoundProbe,
    matched_rows: &[u32],
    rows: usize,
    key_nulls: Option<Vec<u8>>,
) -> Vec<u32> {
    let build = &probe.build;
    if build.has_null_key {
        return Vec::new();
    }
    let mut dropped = matched_bytes(matched_rows, rows);
    if let (Some(nulls), true) = (key_nulls, build.rows > 0) {
        dropped.iter_mut().zip(&nulls).for_each(|(d, &n)| *d |= n);
    }
    positions_not(&dropped)
}

/// Sets the payload of a direct-address build in which all current rows are known to have a match.
pub fn set_direct_payload<'a>(
    context: &mut Context<'a>,
    probe: &'a BoundProbe,
) -> Result<(), ExecError> {
    let internal = || ExecError::Internal("a scan of no direct-address probe by integers".into());
    let BuildIndex::Direct(Presence { base, .. }) = &probe.build.index else {
        return Err(internal());
    };
    let keys = eval(context, &probe.keys[0])?;
    let keys = integers(&keys.data).ok_or_else(internal)?;
    let entries = keys.iter().map(|key| key.wrapping_sub(*base) as u32).collect();
    set_payload(context, probe, entries, None);
    Ok(())
}

/// What the lookup in a direct-address build has to bring back.
#[derive(Clone, Copy)]
struct Wanted {
    entries: bool,
    payload: Option<usize>,
}

fn wanted(probe: &BoundProbe) -> Wanted {
    let payload = match probe.kind {
        ProbeKind::Inner if probe.residual.is_none() => probe.payload.iter().position(|&column| {
            let column = &probe.build.payload[column];
            column.validity.is_none()
                && matches!(
                    column.data,
                    PayloadData::U8 { .. } | PayloadData::U16 { .. } | PayloadData::U32 { .. }
                )
        }),
        _ => None,
    };
    let others = probe.payload.len() > usize::from(payload.is_some());
    Wanted { entries: others || probe.residual.is_some(), payload }
}

fn direct_matches<'a>(
    probe: &'a BoundProbe,
    key: &Vector<'a>,
    rows: usize,
) -> Result<Matches<'a>, ExecError> {
    let key = key.spelled(rows);
    let valid = key.validity.as_deref();
    macro_rules! with_keys {
        ($($variant:ident),*) => {
            match &key.data {
                $(Data::$variant(keys) => direct_lookup(probe, keys, valid, wanted(probe)),)*
                _ => Err(ExecError::Internal("a direct-address probe of no integer".into())),
            }
        };
    }
    with_keys!(Bool, I8, I16, I32, I64, U8, U16, U32)
}

fn direct_lookup<'a, K: Copy + Into<i64>>(
    probe: &'a BoundProbe,
    keys: &[K],
    valid: Option<&[u8]>,
    wanted: Wanted,
) -> Result<Matches<'a>, ExecError> {
    let build: &BuildTable = &probe.build;
    let BuildIndex::Direct(Presence { base, domain, words: present }) = &build.index else {
        return Err(ExecError::Internal("a direct-address probe of a build by chains".into()));
    };
    let scan = Scan { keys, valid, base: *base, domain: *domain };
    let Some(position) = wanted.payload else {
        let test = |entry: usize| bit(present, entry);
        let (rows, entries) =
            if wanted.entries { scan.entries(test) } else { (scan.rows(test), Vec::new()) };
        return Ok(Matches { rows, entries, payload: None });
    };
    let column = &build.payload[probe.payload[position]];
    macro_rules! with_raw {
        ($raw:expr, $payload_base:expr) => {{
            let (rows, entries, raw) = scan.payload($raw, wanted.entries);
            let values = raw.iter().map(|&r| $payload_base.wrapping_add(i64::from(r)));
            let vector = Vector::new(from_i64(&column.repr, values)?);
            Ok(Matches { rows, entries, payload: Some((position, vector)) })
        }};
    }
    match &column.data {
        PayloadData::U8 { base, raw } => with_raw!(raw, base),
        PayloadData::U16 { base, raw } => with_raw!(raw, base),
        PayloadData::U32 { base, raw } => with_raw!(raw, base),
        _ => Err(ExecError::Internal("payload without an absent mark".into())),
    }
}

/// A raw payload type whose largest value marks an absent key.
trait Raw: Copy + PartialEq + Default {
    const ABSENT: Self;
}

impl Raw for u8 {
    const ABSENT: Self = u8::MAX;
}

impl Raw for u16 {
    const ABSENT: Self = u16::MAX;
}

impl Raw for u32 {
    const ABSENT: Self = u32::MAX;
}

/// Keys on their way through a direct-address build. The loops have no branch on whether a
/// row matches: they write first and then count or do not count.
struct Scan<'k, K> {
    keys: &'k [K],
    valid: Option<&'k [u8]>,
    base: i64,
    domain: u64,
}

impl<K: Copy + Into<i64>> Scan<'_, K> {
    /// Entry of a key, or anything at or above `domain`.
    #[inline(always)]
    fn entry(&self, row: usize) -> u64 {
        let key: i64 = self.keys[row].into();
        key.wrapping_sub(self.base) as u64
    }

    #[inline(always)]
    fn for_each(&self, mut f: impl FnMut(usize, u64)) {
        match self.valid {
            None => (0..self.keys.len()).for_each(|row| f(row, self.entry(row))),
            Some(valid) => (0..self.keys.len()).for_each(|row| {
                f(row, if valid[row] != 0 { self.entry(row) } else { u64::MAX });
            }),
        }
    }

    fn rows(&self, test: impl Fn(usize) -> bool) -> Vec<u32> {
        let mut rows = vec![0u32; self.keys.len() + 1];
        let mut count = 0;
        self.for_each(|row, entry| {
            rows[count] = row as u32;
            count += usize::from(entry < self.domain && test(entry as usize));
        });
        rows.truncate(count);
        rows
    }

    fn entries(&self, test: impl Fn(usize) -> bool) -> (Vec<u32>, Vec<u32>) {
        let mut rows = vec![0u32; self.keys.len() + 1];
        let mut entries = vec![0u32; self.keys.len() + 1];
        let mut count = 0;
        self.for_each(|row, entry| {
            rows[count] = row as u32;
            entries[count] = entry as u32;
            count += usize::from(entry < self.domain && test(entry as usize));
        });
        rows.truncate(count);
        entries.truncate(count);
        (rows, entries)
    }

    fn payload<R: Raw>(&self, raw: &[R], want_entries: bool) -> (Vec<u32>, Vec<u32>, Vec<R>) {
        let mut rows = vec![0u32; self.keys.len() + 1];
        let mut values = vec![R::default(); self.keys.len() + 1];
        let mut count = 0;
        self.for_each(|row, entry| {
            let value = if entry < self.domain { raw[entry as usize] } else { R::ABSENT };
            rows[count] = row as u32;
            values[count] = value;
            count += usize::from(value != R::ABSENT);
        });
        rows.truncate(count);
        values.truncate(count);
        let entries = if want_entries {
            rows.iter().map(|&row| self.entry(row as usize) as u32).collect()
        } else {
            Vec::new()
        };
        (rows, entries, values)
    }
}

/// First build row of each streamed row's key, or [`NO_MATCH`]; for a NULL anything, unless NULLs are equal.
fn chain_heads(chains: &Chains, keys: &[Shared<'_>], rows: usize) -> Result<Vec<u32>, ExecError> {
    let heads = match keys {
        [key] if chains.is_of_integers() => {
            integers(&key.spelled(rows).data).and_then(|keys| chains.find_integers(&keys, NO_MATCH))
        }
        _ => chains.find_encoded(&key::encode(keys.iter().map(|key| &**key), rows), NO_MATCH),
    };
    heads.ok_or_else(|| ExecError::Internal("a key that the build has no rows by".into()))
}
