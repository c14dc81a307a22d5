//! Whose statement is next.
//!
//! So many statements run at a time, and so many of one user. The others wait, and the users take turns, however many each has
//! waiting. Statements that read little have places of their own: they do not wait until large ones are done.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Rows below which a statement is small.
pub const SMALL_ROWS: u64 = 1_000_000;

/// Statements that run or wait.
#[derive(Debug)]
pub struct Admission {
    places: Arc<Mutex<Places>>,
    max_wait: Duration,
}

#[derive(Debug)]
struct Places {
    running_max: usize,
    running_of_user_max: usize,
    running: usize,
    of_user: HashMap<String, usize>,
    /// Those that wait, by user; the user whose turn is next is the first.
    waiting: VecDeque<(String, VecDeque<oneshot::Sender<Place>>)>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub struct Place {
    /// `None`: it was never anybody's.
    places: Option<Arc<Mutex<Places>>>,
    user: String,
}

impl Admission {
    pub fn new(running_max: usize, running_of_user_max: usize, max_wait: Duration) -> Self {
        let places = Places {
            running_max,
            running_of_user_max,
            running: 0,
            of_user: HashMap::new(),
            waiting: VecDeque::new(),
        };
        Self { places: Arc::new(Mutex::new(places)), max_wait }
    }

    /// Waits for a place; `None`: it took too long.
    pub async fn enter(&self, user: &str) -> Option<Place> {
        let turn = {
            let mut places = self.places.lock();
            if places.may_begin(user) && !places.waits(user) {
                return Some(places.begin(user, &self.places));
            }
            places.wait(user)
        };
        // Whoever gives up here is passed over later: nobody listens to its turn. Who gives up when it has come leaves it.
        tokio::time::timeout(self.max_wait, turn).await.ok()?.ok()
    }

    /// How many run, and how many wait.
    pub fn counts(&self) -> (usize, usize) {
        let places = self.places.lock();
        let waiting = places.waiting.iter().flat_map(|(_, turns)| turns);
        (places.running, waiting.filter(|turn| !turn.is_closed()).count())
    }
}

impl Places {
    fn may_begin(&self, user: &str) -> bool {
        let own = self.of_user.get(user).copied().unwrap_or(0);
        self.running < self.running_max && own < self.running_of_user_max
    }

    fn waits(&self, user: &str) -> bool {
        self.waiting.iter().any(|(name, turns)| name == user && !turns.is_empty())
    }

    fn begin(&mut self, user: &str, places: &Arc<Mutex<Self>>) -> Place {
        self.running += 1;
        *self.of_user.entry(user.to_string()).or_default() += 1;
        Place { places: Some(Arc::clone(places)), user: user.to_string() }
    }

    fn end(&mut self, user: &str) {
        self.running -= 1;
        if let Some(own) = self.of_user.get_mut(user) {
            *own -= 1;
            if *own == 0 {
                self.of_user.remove(user);
            }
        }
    }

    fn wait(&mut self, user: &str) -> oneshot::Receiver<Place> {
        let (turn, waits) = oneshot::channel();
        match self.waiting.iter_mut().find(|(name, _)| name == user) {
            Some((_, turns)) => turns.push_back(turn),
            None => self.waiting.push_back((user.to_string(), VecDeque::from([turn]))),
        }
        waits
    }

    /// Gives free places to those that wait, a user after the other.
    fn give(&mut self, places: &Arc<Mutex<Self>>) {
        let mut passed_over = 0;
        while self.running < self.running_max && passed_over < self.waiting.len() {
            let Some((user, mut turns)) = self.waiting.pop_front() else { return };
            if !self.may_begin(&user) {
                self.waiting.push_back((user, turns));
                passed_over += 1;
                continue;
            }
            // Those who gave up are not there any more.
            while let Some(turn) = turns.pop_front() {
                let Err(mut place) = turn.send(self.begin(&user, places)) else {
                    passed_over = 0;
                    break;
                };
                // It is given back here, where the others are held.
                place.places = None;
                self.end(&user);
            }
            if !turns.is_empty() {
                self.waiting.push_back((user, turns));
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(shared) = &self.places {
            let mut places = shared.lock();
            places.end(&self.user);
            places.give(shared);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Lets all that can go on do so.
    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn users_take_turns() {
        let admission = Arc::new(Admission::new(1, 1, LONG));
        let first = admission.enter("ada").await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for user in ["ada", "ada", "ada", "bob", "eve", "bob"] {
            let (admission, order) = (Arc::clone(&admission), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let place = admission.enter(user).await.unwrap();
                order.lock().push(user);
                drop(place);
            }));
            settle().await;
        }
        assert_eq!(admission.counts(), (1, 6));
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock(), ["ada", "bob", "eve", "ada", "bob", "ada"]);
        assert_eq!(admission.counts(), (0, 0));
    }

    #[tokio::test]
    async fn one_user_does_not_take_all_places() {
        let admission = Admission::new(3, 2, Duration::from_millis(20));
        let places = [admission.enter("ada").await, admission.enter("ada").await];
        assert!(places.iter().all(Option::is_some));
        assert!(admission.enter("ada").await.is_none(), "a third one of hers");
        assert!(admission.enter("bob").await.is_some());
        drop(places);
        assert!(admission.enter("ada").await.is_some());
        assert_eq!(admission.counts(), (0, 0));
    }

    #[tokio::test]
    async fn who_gives_up_is_passed_over() {
        let admission = Arc::new(Admission::new(1, 1, LONG));
        let first = admission.enter("ada").await.unwrap();
        let waits = |user: &'static str| {
            let admission = Arc::clone(&admission);
            tokio::spawn(async move { admission.enter(user).await.map(drop) })
        };
        let (gone, stays) = (waits("bob"), waits("eve"));
        settle().await;
        gone.abort();
        settle().await;
        assert_eq!(admission.counts(), (1, 1));
        drop(first);
        assert!(stays.await.unwrap().is_some());
        assert_eq!(admission.counts(), (0, 0));
    }

    #[tokio::test]
    async fn who_gives_up_when_the_turn_has_come_leaves_it() {
        let admission = Admission::new(1, 1, LONG);
        let first = admission.enter("ada").await.unwrap();
        let mut waits = Box::pin(admission.enter("bob"));
        assert!(futures::poll!(&mut waits).is_pending());
        drop(first);
        assert_eq!(admission.counts(), (1, 0), "it is bob's, who has not looked");
        drop(waits);
        assert_eq!(admission.counts(), (0, 0));
        assert!(admission.enter("eve").await.is_some());
    }
}
