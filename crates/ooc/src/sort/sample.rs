//! A sample of the keys, by small reads all over the input.

use std::sync::Arc;

use headrace_flow::{
    BoxError, ChunkSpec, FedChunk, HostConsumer, Race, RaceOptions, ReadSpec, Verdict,
};
use headrace_io::ReadAt;
use headrace_io::random::drawn_at;

use super::records::Records;
use super::work::Work;
use crate::Result;

/// Maximum of sampled places.
const PLACES_MAX: u64 = 1024;

/// Bytes read at a place, unless a record is longer.
const PLACE_BYTES: u64 = 4096;

/// Keys kept per place: more would say little if neighbours are alike.
const PLACE_KEYS: usize = 64;

/// Places read concurrently.
const CHUNK_PLACES: usize = 16;

/// Slots of the sampling race.
const SLOTS: usize = 4;

/// Sampled keys of extents of files, evenly from all parts.
pub(super) fn sample(
    work: &Work<'_>,
    files: &[Arc<dyn ReadAt>],
    extents: &[ReadSpec],
) -> Result<Vec<u64>> {
    let memory_bytes = work.room.memory.limit_bytes() / 32;
    let places_max = memory_bytes / (8 * PLACE_KEYS as u64);
    let reads =
        places(extents, work.records.record_bytes() as u64, places_max.clamp(8, PLACES_MAX));
    let chunks = reads.chunks(CHUNK_PLACES).map(|reads| ChunkSpec { reads: reads.to_vec() });
    let options = RaceOptions { slots: SLOTS, ..work.race() };
    let race = Race::new(files.to_vec(), chunks.collect(), options, work.options.token.clone())?;
    let taker = Taker { records: work.records, of_place: Vec::new(), keys: Vec::new() };
    let takers = work.look(&race, vec![taker])?;
    Ok(takers.into_iter().flat_map(|taker| taker.keys).collect())
}

/// Extents of whole records, one in each of `places_max` equal parts; all of them, if that is not more.
fn places(extents: &[ReadSpec], record_bytes: u64, places_max: u64) -> Vec<ReadSpec> {
    let place_bytes = (PLACE_BYTES / record_bytes).max(1) * record_bytes;
    let all_bytes: u64 = extents.iter().map(|extent| extent.bytes).sum();
    let part_bytes =
        (all_bytes.div_ceil(places_max)).max(place_bytes).next_multiple_of(record_bytes);
    let mut places = Vec::new();
    // Where the next part begins, from the beginning of the extent.
    let mut ahead = 0;
    for extent in extents {
        let mut at = ahead;
        while at < extent.bytes {
            let slack = (part_bytes - place_bytes) / record_bytes + 1;
            let skip = drawn_at(0, places.len() as u64) % slack * record_bytes;
            // An extent that ends inside of the place, or before it, gives what it has at its end.
            let start = (at + skip).min(extent.bytes - place_bytes.min(extent.bytes));
            let bytes = place_bytes.min(extent.bytes - start);
            places.push(ReadSpec { offset: extent.offset + start, bytes, ..*extent });
            at += part_bytes;
        }
        ahead = at - extent.bytes;
    }
    places
}

struct Taker<'a> {
    records: &'a dyn Records,
    of_place: Vec<u64>,
    keys: Vec<u64>,
}

impl HostConsumer for Taker<'_> {
    fn consume(
        &mut self,
        _chunk: &FedChunk,
        places: &[&[u8]],
    ) -> std::result::Result<Verdict, BoxError> {
        for place in places {
            self.of_place.clear();
            self.records.add_keys(place, &mut self.of_place);
            let step = self.of_place.len().div_ceil(PLACE_KEYS).max(1);
            // Not always the same ones of keys that alternate.
            let first = drawn_at(0, self.keys.len() as u64) as usize % step;
            self.keys.extend(self.of_place.iter().skip(first).step_by(step));
        }
        Ok(Verdict::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_whole_records_inside_of_the_extents() {
        let extent = |offset, bytes| ReadSpec { file: 0, offset, bytes };
        for record_bytes in [4, 8, 12, 100, 4096, 5000] {
            for (count, bytes) in [(1, 1), (1, 1000), (1, 100_000), (50, 3), (7, 2000), (3, 0)] {
                let bytes = bytes * record_bytes;
                let extents: Vec<_> = (0..count).map(|n| extent(n * 2 * bytes, bytes)).collect();
                for places_max in [8, 1024] {
                    let found = places(&extents, record_bytes, places_max);
                    assert_eq!(found.is_empty(), bytes == 0);
                    assert!(found.len() as u64 <= places_max + 1, "{}", found.len());
                    for place in found {
                        assert!(place.bytes > 0 && place.bytes % record_bytes == 0);
                        let start = place.offset % (2 * bytes);
                        assert!(start % record_bytes == 0 && start + place.bytes <= bytes);
                    }
                }
            }
        }
    }
}
