//! The overlap of stages: the critical path of chunks through stations.

/// A stage from the point of view of chunks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Station {
    /// Time of the stage alone for all chunks.
    pub seconds: f64,
    /// Chunks that it serves in parallel; `None` for a cap on other stations, where chunks do not
    /// queue.
    pub parallel: Option<f64>,
}

/// The chunks, and their slots.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ring {
    /// Chunks, at least one.
    pub chunks: f64,
    /// Slots; `None` if chunks need none.
    pub slots: Option<f64>,
    /// A chunk's latency in addition to service, which does not hinder others.
    pub latency_s: f64,
}

impl Station {
    /// Time of one chunk.
    fn chunk_s(&self, chunks: f64) -> f64 {
        self.parallel.map_or(0.0, |parallel| self.seconds * parallel.min(chunks) / chunks)
    }
}

/// Time of one chunk from its submission to the release of its slot.
fn path_s(stations: &[Station], ring: &Ring) -> f64 {
    stations.iter().map(|station| station.chunk_s(ring.chunks)).sum::<f64>() + ring.latency_s
}

/// Little's law: as many chunks as slots are in flight, each for [`path_s`].
pub(super) fn ring_s(stations: &[Station], ring: &Ring) -> f64 {
    ring.slots.map_or(0.0, |slots| ring.chunks * path_s(stations, ring) / slots)
}

/// Time from the first submission to the last chunk's end: the slowest station works on all other
/// chunks, and one chunk passes the whole path. Caps and the ring are lower bounds.
pub(super) fn race_s(stations: &[Station], ring: &Ring) -> f64 {
    let chunks = ring.chunks;
    let beside = |station: &Station| match station.parallel {
        Some(_) => station.seconds - station.chunk_s(chunks),
        None => 0.0,
    };
    let streamed_s = stations.iter().map(beside).fold(0.0, f64::max) + path_s(stations, ring);
    let caps_s = stations.iter().map(|station| station.seconds).fold(0.0, f64::max);
    streamed_s.max(caps_s).max(ring_s(stations, ring))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn station(seconds: f64) -> Station {
        Station { seconds, parallel: Some(1.0) }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn a_pipeline_takes_its_slowest_station_plus_one_pass_of_the_others() {
        let stations = [station(10.0), station(20.0), station(5.0)];
        let ring = |chunks, slots| Ring { chunks, slots, latency_s: 0.0 };
        // (n - 1) x slowest + sum, the textbook pipeline: 9 x 2 + 1 + 2 + 0.5.
        assert!(close(race_s(&stations, &ring(10.0, None)), 21.5));
        // One chunk, or one slot: nothing overlaps.
        assert!(close(race_s(&stations, &ring(1.0, None)), 35.0));
        assert!(close(race_s(&stations, &ring(10.0, Some(1.0))), 35.0));
        // Two slots of a path of 3.5 s carry 10 chunks in 17.5 s: they do not hinder.
        assert!(close(ring_s(&stations, &ring(10.0, Some(2.0))), 17.5));
        assert!(close(race_s(&stations, &ring(10.0, Some(2.0))), 21.5));
    }

    #[test]
    fn devices_side_by_side_take_longer_for_one_chunk_and_not_for_all() {
        let two = Station { seconds: 10.0, parallel: Some(2.0) };
        let ring = Ring { chunks: 10.0, slots: None, latency_s: 0.0 };
        assert!(close(race_s(&[two], &ring), 10.0));
        assert!(close(race_s(&[two, station(10.0)], &ring), 9.0 + 2.0 + 1.0));
        // More devices than chunks do not help.
        let many = Station { seconds: 10.0, parallel: Some(100.0) };
        assert!(close(race_s(&[many], &ring), 10.0));
    }

    #[test]
    fn latency_and_caps_count_once() {
        let ring = Ring { chunks: 10.0, slots: Some(4.0), latency_s: 0.5 };
        assert!(close(race_s(&[station(10.0)], &ring), 10.5));
        let cap = Station { seconds: 30.0, parallel: None };
        assert!(close(race_s(&[station(10.0), cap], &ring), 30.0));
        // 10 x (0.1 + 4) s of slot time over 4 slots: latency that the slots do not hide.
        let slow = Ring { latency_s: 4.0, ..ring };
        assert!(close(race_s(&[station(1.0)], &slow), 10.25));
    }
}
