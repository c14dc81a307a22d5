//! Blocks whose owner is at the other end of a connection.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headrace_flow::CancelToken;
use headrace_format::heap::{Block, BlockOwner, HoldAnswer, Reroute};

use crate::outbox::{Body, Outbox};
use crate::protocol::Reply;

/// How often a thread that waits for an answer checks whether it is still wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// How long a client may take to answer; it only looks at memory. A slower one was stopped, and others
/// wait for their turn.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client's blocks.
pub struct RemoteOwner(Arc<Line>);

/// The shared state of questions and their waiters.
struct Line {
    outbox: Arc<Outbox<Reply>>,
    token: CancelToken,
    questions: Mutex<Questions>,
    answered: Condvar,
}

#[derive(Default)]
struct Questions {
    next: u64,
    /// The blocks in question, or the answer.
    open: HashMap<u64, Question>,
}

enum Question {
    Asked { blocks: usize },
    Answered(Vec<u8>),
}

impl RemoteOwner {
    pub fn new(outbox: Arc<Outbox<Reply>>, token: CancelToken) -> Self {
        let (questions, answered) = (Mutex::default(), Condvar::new());
        Self(Arc::new(Line { outbox, token, questions, answered }))
    }

    /// The client's answer to a question, a byte per block; returns the problem if it is invalid.
    pub fn answer(&self, number: u64, answer: Vec<u8>) -> Result<(), String> {
        self.0.answer(number, answer)
    }
}

impl Line {
    fn questions(&self) -> MutexGuard<'_, Questions> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, number: u64, answer: Vec<u8>) -> Result<(), String> {
        let mut questions = self.questions();
        match questions.open.get_mut(&number) {
            Some(question @ Question::Asked { .. }) => {
                if !matches!(question, Question::Asked { blocks } if *blocks == answer.len()) {
                    return Err(format!("an answer about {} blocks", answer.len()));
                }
                *question = Question::Answered(answer);
            }
            // Whoever asked has left.
            _ if self.token.is_cancelled() => return Ok(()),
            _ => return Err(format!("an answer to question {number}, which is not open")),
        }
        drop(questions);
        self.answered.notify_all();
        Ok(())
    }

    /// Asks; returns the question's number.
    fn ask(&self, first: Block, blocks: usize) -> u64 {
        let mut questions = self.questions();
        let question = questions.next;
        questions.next += 1;
        questions.open.insert(question, Question::Asked { blocks });
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        self.outbox.push(Reply::Holds { question, first, blocks }, Body::NONE);
        question
    }

    /// The answer. If the run is no longer wanted, no block holds.
    fn wait(&self, question: u64, blocks: usize) -> Vec<bool> {
        let (mut questions, began) = (self.questions(), Instant::now());
        while matches!(questions.open.get(&question), Some(Question::Asked { .. })) {
            if self.token.is_cancelled() || began.elapsed() > PATIENCE {
                self.token.cancel();
                break;
            }
            let waited = self.answered.wait_timeout(questions, LOOK_INTERVAL);
            questions = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        match questions.open.remove(&question) {
            Some(Question::Answered(answer)) => answer.into_iter().map(|byte| byte == 1).collect(),
            _ => vec![false; blocks],
        }
    }
}

impl BlockOwner for RemoteOwner {
    fn holds(&self, block: Block) -> bool {
        self.ask(block, 1)() == [true]
    }

    fn ask(&self, first: Block, blocks: usize) -> HoldAnswer {
        let (line, question) = (Arc::clone(&self.0), self.0.ask(first, blocks));
        Box::new(move || line.wait(question, blocks))
    }

    fn reroute(&self, block: Block, why: Reroute) {
        self.0.outbox.push(Reply::Reroute { block, why: why.to_string() }, Body::NONE);
    }

    fn done(&self, blocks: u32) {
        self.0.outbox.push(Reply::Done(blocks), Body::NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_nobody_asked_for_are_refused_and_nobody_waits_for_a_cancelled_run() {
        let (outbox, token) = (Arc::new(Outbox::default()), CancelToken::new());
        let owner = RemoteOwner::new(outbox, token.clone());
        assert!(owner.answer(0, vec![1]).is_err());
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| owner.ask(Block { part: 2, number: 3 }, 3)());
            while owner.0.questions().next == 0 {
                std::thread::yield_now();
            }
            assert!(owner.answer(0, vec![1, 1]).is_err(), "about fewer blocks");
            owner.answer(0, vec![1, 0, 1]).expect("an answer");
            assert_eq!(asks.join().ok(), Some(vec![true, false, true]));
            let asks = scope.spawn(|| owner.holds(Block { part: 0, number: 7 }));
            token.cancel();
            assert_eq!(asks.join().ok(), Some(false));
        });
        owner.answer(1, vec![1]).expect("an answer that comes too late");
    }
}
