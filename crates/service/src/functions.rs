//! Runs that call functions of users, and what becomes of the service if one of these does not end or faults.
//!
//! A kernel that never ends cannot be stopped, and one that faults takes the context of its GPU with it: with this, all
//! that the process has there. So the client that asked is told, and the process begins anew, by `exec`. Other
//! clients lose their connections, and run their programs themselves.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headrace_flow::CancelToken;
use headrace_ir::Program;
use headrace_runner::{ErrorClass, Runner};

use crate::SOCKET_NAME;
use crate::options::CudaFunctions;
use crate::outbox::{Body, Outbox};
use crate::process::say;
use crate::protocol::Reply;

/// How long a run that nobody wants any more may go on.
const CANCEL_PATIENCE: Duration = Duration::from_secs(2);

/// How long the last word of a run may take to its client.
const WORD_PATIENCE: Duration = Duration::from_secs(1);

/// How often a run is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The names of the functions that a program calls; `None` if it calls none.
pub fn named(program: &Program) -> Option<String> {
    let mut names: Vec<_> =
        program.cuda_functions().map(|(function, _)| format!("{}()", function.name)).collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Why functions are not run; `None` if they may. Who asks is the service's owner: others were sent away when they connected.
pub fn refusal(names: &str, allowed: CudaFunctions) -> Option<String> {
    (allowed == CudaFunctions::Off).then(|| {
        format!(
            "{names}: the GPU service runs no CUDA code of users; it was started with --cuda-functions off, and not owner\n\
             hint: a function with a TWIN has an answer without the service"
        )
    })
}

/// What is around work on a GPU that functions of users may cost the process.
pub struct Guard<'a> {
    /// The functions that the work itself calls.
    pub names: Option<&'a str>,
    pub runner: &'a Runner,
    pub token: &'a CancelToken,
    pub outbox: &'a Outbox<Reply>,
}

impl Guard<'_> {
    /// Does it, watched if it calls functions. Where it costs the process its GPUs, the client is told, and nothing returns.
    pub fn watched<T>(&self, limit: Duration, run: impl FnOnce() -> T) -> T {
        let ran = match self.names {
            None => run(),
            Some(names) => watched(names, limit, self.token, self.outbox, run),
        };
        self.begin_anew_if_lost();
        ran
    }

    /// Puts a new process in this one's place if the GPUs are lost to it.
    pub fn begin_anew_if_lost(&self) {
        let Some(why) = self.runner.lost_gpus() else { return };
        if let Some(names) = self.names {
            let message = format!(
                "{names}, or a function of another session, faulted on the GPU: {why}\n\
                 hint: the GPU service begins anew; compute-sanitizer finds the access"
            );
            fail(message, self.outbox);
        }
        begin_anew(&why);
    }
}

/// Runs something that calls functions, on this thread, while another watches it.
fn watched<T>(
    names: &str,
    limit: Duration,
    token: &CancelToken,
    outbox: &Outbox<Reply>,
    run: impl FnOnce() -> T,
) -> T {
    let (is_over, changed) = (Mutex::new(false), Condvar::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let why = why_it_goes_on_too_long(&is_over, &changed, limit, token);
            if let Some(why) = why {
                fail(format!("{names}: {why}; the GPU service begins anew"), outbox);
                begin_anew(&format!("{names}: {why}"));
            }
        });
        let _over = Over(&is_over, &changed);
        run()
    })
}

/// Ends the watch when the run ends, also by a panic.
struct Over<'a>(&'a Mutex<bool>, &'a Condvar);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.1.notify_all();
    }
}

/// Waits for the end of a run: `None` if it came in time.
fn why_it_goes_on_too_long(
    is_over: &Mutex<bool>,
    changed: &Condvar,
    limit: Duration,
    token: &CancelToken,
) -> Option<String> {
    let began = Instant::now();
    let mut cancelled = None;
    let mut over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
    while !*over {
        if token.is_cancelled() {
            let since = *cancelled.get_or_insert_with(Instant::now);
            if since.elapsed() > CANCEL_PATIENCE {
                return Some("the run did not end when it was cancelled".into());
            }
        }
        if began.elapsed() > limit {
            let seconds = limit.as_secs_f64();
            return Some(format!(
                "the run did not end within {seconds} s (headrace.function_timeout)"
            ));
        }
        over = changed.wait_timeout(over, LOOK_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
    }
    None
}

/// Tells a client that its run failed, and waits until that is on its way. From now on nobody finds this process: who asks
/// next is to wait for the new one.
fn fail(message: String, outbox: &Outbox<Reply>) {
    let _ = std::fs::remove_file(SOCKET_NAME);
    let failed = Reply::Failed { class: ErrorClass::Function, message, overflow: None };
    outbox.push(failed, Body::NONE);
    outbox.wait_until_written(WORD_PATIENCE);
}

/// Puts a new process of the same program and options in this one's place. Its threads end, its files close, and what it
/// had of GPUs is let go.
fn begin_anew(why: &str) -> ! {
    say(&format!("begins anew: {why}"));
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let cause = match std::env::current_exe() {
        Ok(program) => Command::new(program).arg0(name).args(arguments).exec(),
        Err(cause) => cause,
    };
    say(&format!("cannot begin anew: {cause}"));
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(is_over: bool, limit: Duration, token: &CancelToken) -> Option<String> {
        why_it_goes_on_too_long(&Mutex::new(is_over), &Condvar::new(), limit, token)
    }

    #[test]
    fn a_run_has_its_time_and_less_when_nobody_wants_it() {
        let (token, cancelled) = (CancelToken::new(), CancelToken::new());
        cancelled.cancel();
        assert_eq!(why(true, Duration::ZERO, &cancelled), None);
        let late = why(false, Duration::from_millis(50), &token);
        assert!(late.is_some_and(|why| why.contains("within 0.05 s")));
        let began = Instant::now();
        let unwanted = why(false, Duration::from_secs(60), &cancelled);
        assert!(unwanted.is_some_and(|why| why.contains("cancelled")));
        assert!(began.elapsed() >= CANCEL_PATIENCE);
    }

    #[test]
    fn what_ends_is_left_alone() {
        let (token, outbox) = (CancelToken::new(), Outbox::default());
        assert_eq!(watched("f()", Duration::from_secs(60), &token, &outbox, || 7), 7);
        let panics =
            || watched("f()", Duration::from_secs(60), &token, &outbox, || panic!("as planned"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    }
}
