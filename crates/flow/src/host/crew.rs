//! The consumers' threads: as many run as are allowed.

use std::slice::IterMut;

use headrace_io::{IoError, Scope};

use super::consume;
use super::shared::Shared;
use crate::{HostProducer, RaceError};

/// Starts consumers when they are first allowed to work, and makes the others wait.
pub(super) struct Crew<'scope, 'env, P, C> {
    scope: &'scope Scope<'scope, 'env>,
    shared: &'scope Shared<'scope, P>,
    /// Those that were not started.
    idle: IterMut<'scope, C>,
    consumers: usize,
    /// Those allowed to work now, and the minimum and maximum so far.
    admitted: usize,
    counts: (usize, usize),
}

impl<'scope, 'env, P: Send, C: HostProducer<P> + 'scope> Crew<'scope, 'env, P, C> {
    pub fn new(
        scope: &'scope Scope<'scope, 'env>,
        shared: &'scope Shared<'scope, P>,
        consumers: &'scope mut [C],
    ) -> Self {
        let all = consumers.len();
        let counts = (all, 0);
        Crew { scope, shared, consumers: all, idle: consumers.iter_mut(), admitted: 0, counts }
    }

    /// Allows as many as the limit says now.
    pub fn call(&mut self) -> Result<(), RaceError> {
        let limit = &self.shared.race.options.limit;
        let wanted = limit.as_ref().map_or(self.consumers, |limit| limit.consumers());
        let wanted = wanted.clamp(1, self.consumers);
        if wanted == self.admitted {
            return Ok(());
        }
        self.admitted = wanted;
        self.counts = (self.counts.0.min(wanted), self.counts.1.max(wanted));
        self.shared.queue.admit(wanted);
        while self.consumers - self.idle.len() < wanted {
            self.start()?;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), RaceError> {
        let (shared, number) = (self.shared, self.consumers - self.idle.len());
        let Some(consumer) = self.idle.next() else { return Ok(()) };
        let started = self.scope.spawn(move || consume::work(shared, number, consumer));
        let failed = |cause| RaceError::StartUp(IoError::Thread { cause });
        started.map(drop).map_err(failed)
    }

    /// The minimum and maximum allowed at a time.
    pub fn counts(&self) -> (usize, usize) {
        self.counts
    }
}
