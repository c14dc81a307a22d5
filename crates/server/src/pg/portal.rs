//! Answers that a client takes in pieces.

use std::collections::VecDeque;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use futures::StreamExt;
use headrace_engine::failure::Failure;

use super::words::Command;
use crate::statement::{Planned, Running};

/// A statement with the values of its parameters, and its rows as far as they were asked for.
pub struct Portal {
    pub sql: String,
    pub command: Command,
    pub result_formats: Vec<i16>,
    pub state: State,
    /// Made by DECLARE; `Some(true)` stays behind its transaction.
    pub cursor: Option<bool>,
}

pub enum State {
    Bound,
    Planned(Box<Planned>),
    Rows(Source),
    /// It was answered with a tag.
    Done(String),
}

/// Where rows come from.
pub struct Source {
    pub schema: SchemaRef,
    running: Option<Box<Running>>,
    waiting: VecDeque<RecordBatch>,
}

impl Portal {
    pub fn new(sql: String, result_formats: Vec<i16>) -> Self {
        let command = Command::of(&sql);
        Self { sql, command, result_formats, state: State::Bound, cursor: None }
    }

    /// Its columns, as far as they are known.
    pub fn schema(&self) -> Option<SchemaRef> {
        match &self.state {
            State::Planned(planned) => Some(planned.schema()),
            State::Rows(source) => Some(source.schema.clone()),
            State::Bound | State::Done(_) => None,
        }
    }
}

impl Source {
    pub fn running(running: Running) -> Self {
        Self {
            schema: running.schema(),
            running: Some(Box::new(running)),
            waiting: VecDeque::new(),
        }
    }

    pub fn of(batch: RecordBatch) -> Self {
        Self::of_batches(batch.schema(), vec![batch])
    }

    pub fn of_batches(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, running: None, waiting: batches.into() }
    }

    /// The next rows, so many at most; `None` at the end. It may be dropped while it waits.
    pub async fn next(&mut self, rows_max: usize) -> Option<Result<RecordBatch, Failure>> {
        while self.waiting.is_empty() {
            match self.running.as_mut()?.next().await {
                Some(Ok(batch)) if batch.num_rows() == 0 => {}
                Some(Ok(batch)) => self.waiting.push_back(batch),
                Some(Err(failure)) => {
                    self.running = None;
                    return Some(Err(failure));
                }
                None => self.running = None,
            }
        }
        let batch = self.waiting.pop_front()?;
        if batch.num_rows() <= rows_max {
            return Some(Ok(batch));
        }
        self.waiting.push_front(batch.slice(rows_max, batch.num_rows() - rows_max));
        Some(Ok(batch.slice(0, rows_max)))
    }

    /// Lets others run while nobody asks for rows.
    pub fn pause(&mut self) {
        if let Some(running) = &mut self.running {
            running.pause();
        }
    }

    /// Waits for a turn again.
    ///
    /// # Errors
    /// It did not come in time.
    pub async fn resume(&mut self) -> Result<(), Failure> {
        match &mut self.running {
            Some(running) => running.resume().await,
            None => Ok(()),
        }
    }
}
