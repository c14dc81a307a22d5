//! Notes of a running race: how long a condition held, and why.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Maximum of reasons per race; more would repeat themselves for other files.
const REASONS_MAX: usize = 64;

/// Time during which a condition holds.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    since: Option<Instant>,
    total: Duration,
}

impl Stopwatch {
    pub fn set(&mut self, on: bool) {
        match (on, self.since) {
            (true, None) => self.since = Some(Instant::now()),
            (false, Some(since)) => {
                self.total += since.elapsed();
                self.since = None;
            }
            _ => {}
        }
    }

    pub fn total_ns(&self) -> u64 {
        (self.total + self.since.map_or(Duration::ZERO, |since| since.elapsed())).as_nanos() as u64
    }
}

/// Reasons without repetitions.
#[derive(Debug, Default)]
pub(crate) struct Reasons {
    texts: BTreeSet<String>,
    left_out: u64,
}

impl Reasons {
    pub fn add(&mut self, reason: String) {
        if self.texts.len() < REASONS_MAX {
            self.texts.insert(reason);
        } else if !self.texts.contains(&reason) {
            self.left_out += 1;
        }
    }

    pub fn into_texts(self) -> Vec<String> {
        let mut texts: Vec<String> = self.texts.into_iter().collect();
        if self.left_out > 0 {
            texts.push(format!("and {} reasons more", self.left_out));
        }
        texts
    }
}
