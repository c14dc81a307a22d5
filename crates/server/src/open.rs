//! Answers that are open: so many at a time, and none that its reader has left.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use datafusion::execution::SendableRecordBatchStream;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::admission::Place;

/// Answers that are open at a time: each may hold a thread.
pub const OPEN_MAX: usize = 1024;

/// How long the rows of an answer may wait for their reader; and those of a cursor.
pub const READ_PATIENCE: Duration = Duration::from_secs(60);
pub const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// How often they are looked at.
const SWEEP: Duration = Duration::from_secs(5);

/// What a statement holds while it runs. Who takes nothing of an answer for long loses it.
pub struct Open {
    pub stream: Option<SendableRecordBatchStream>,
    pub place: Option<Place>,
    /// One of the answers that may be open.
    _permit: Option<OwnedSemaphorePermit>,
    /// When rows were asked for the last time.
    pub asked: Instant,
    pub is_paused: bool,
    /// Rows were asked for and are not there yet: it is not its reader who is late.
    pub is_busy: bool,
}

impl Open {
    /// Ends it if nobody wants its rows any more.
    fn end_if_left(&mut self) {
        let patience = if self.is_paused { PAUSE_MAX } else { READ_PATIENCE };
        if self.asked.elapsed() > patience && !self.is_busy {
            self.stream = None;
            self.place = None;
        }
    }
}

type List = Arc<Mutex<Vec<Weak<Mutex<Open>>>>>;

/// Those that may be open, and those that are.
pub struct OpenAnswers {
    permits: Arc<Semaphore>,
    opened: List,
}

impl OpenAnswers {
    /// None. A task of this runtime looks at them from now on.
    pub fn new() -> Self {
        Self { permits: Arc::new(Semaphore::new(OPEN_MAX)), opened: swept() }
    }

    /// Leave to open one; `None`: too many are.
    pub fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Opens one.
    pub fn begin(
        &self,
        stream: SendableRecordBatchStream,
        place: Place,
        permit: OwnedSemaphorePermit,
    ) -> Arc<Mutex<Open>> {
        let open = Arc::new(Mutex::new(Open {
            stream: Some(stream),
            place: Some(place),
            _permit: Some(permit),
            asked: Instant::now(),
            is_paused: false,
            is_busy: false,
        }));
        self.opened.lock().push(Arc::downgrade(&open));
        open
    }
}

/// A list of open answers, and a task that looks at them until the list has gone.
fn swept() -> List {
    let opened = Arc::default();
    let weak: Weak<Mutex<Vec<Weak<Mutex<Open>>>>> = Arc::downgrade(&opened);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(SWEEP).await;
            let Some(opened) = weak.upgrade() else { return };
            let all: Vec<_> = opened.lock().iter().filter_map(Weak::upgrade).collect();
            // One that is locked is asked for rows right now.
            for open in &all {
                if let Some(mut open) = open.try_lock() {
                    open.end_if_left();
                }
            }
            opened.lock().retain(|open| open.strong_count() > 0);
        }
    });
    opened
}
