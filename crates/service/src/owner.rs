//! Blocks whose owner is at the other end of a connection.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headrace_flow::CancelToken;
use headrace_format::heap::{Block, BlockOwner, Reroute};

use crate::outbox::{Body, Outbox};
use crate::protocol::Reply;

/// How often one who waits for an answer looks whether it is still wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// How long a client may take to answer: it looks at memory for it. One that takes longer was stopped,
/// and others wait for their turn.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client's blocks.
pub struct RemoteOwner {
    outbox: Arc<Outbox<Reply>>,
    token: CancelToken,
    questions: Mutex<Questions>,
    answered: Condvar,
}

#[derive(Default)]
struct Questions {
    next: u64,
    /// Blocks asked about, or the answer.
    open: HashMap<u64, Question>,
}

enum Question {
    Asked { blocks: usize },
    Answered(Vec<u8>),
}

impl RemoteOwner {
    pub fn new(outbox: Arc<Outbox<Reply>>, token: CancelToken) -> Self {
        Self { outbox, token, questions: Mutex::default(), answered: Condvar::new() }
    }

    fn questions(&self) -> MutexGuard<'_, Questions> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client's answer to a question, a byte a block; what is wrong with it.
    pub fn answer(&self, number: u64, answer: Vec<u8>) -> Result<(), String> {
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

    fn ask(&self, first: Block, blocks: usize) -> Option<Vec<u8>> {
        let mut questions = self.questions();
        let number = questions.next;
        questions.next += 1;
        questions.open.insert(number, Question::Asked { blocks });
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        self.outbox.push(Reply::Holds { question: number, first, blocks }, Body::NONE);
        let asked = Instant::now();
        while matches!(questions.open.get(&number), Some(Question::Asked { .. })) {
            if self.token.is_cancelled() || asked.elapsed() > PATIENCE {
                questions.open.remove(&number);
                self.token.cancel();
                return None;
            }
            let waited = self.answered.wait_timeout(questions, LOOK_INTERVAL);
            questions = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        match questions.open.remove(&number) {
            Some(Question::Answered(answer)) => Some(answer),
            _ => None,
        }
    }
}

impl BlockOwner for RemoteOwner {
    fn holds(&self, block: Block) -> bool {
        let mut holds = [false];
        self.hold(block, &mut holds);
        holds[0]
    }

    fn hold(&self, first: Block, holds: &mut [bool]) {
        // A run that nobody wants any more has blocks that do not hold.
        let answer = self.ask(first, holds.len()).unwrap_or_default();
        let answer = answer.into_iter().map(|holds| holds == 1).chain(std::iter::repeat(false));
        holds.iter_mut().zip(answer).for_each(|(holds, answer)| *holds = answer);
    }

    fn reroute(&self, block: Block, why: Reroute) {
        self.outbox.push(Reply::Reroute { block, why: why.to_string() }, Body::NONE);
    }

    fn done(&self, blocks: u32) {
        self.outbox.push(Reply::Done(blocks), Body::NONE);
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
            let asks = scope.spawn(|| {
                let mut holds = [true; 3];
                owner.hold(Block { part: 2, number: 3 }, &mut holds);
                holds
            });
            while owner.questions().next == 0 {
                std::thread::yield_now();
            }
            assert!(owner.answer(0, vec![1, 1]).is_err(), "about fewer blocks");
            owner.answer(0, vec![1, 0, 1]).expect("an answer");
            assert_eq!(asks.join().ok(), Some([true, false, true]));
            let asks = scope.spawn(|| owner.holds(Block { part: 0, number: 7 }));
            token.cancel();
            assert_eq!(asks.join().ok(), Some(false));
        });
        owner.answer(1, vec![1]).expect("an answer that comes too late");
    }
}
