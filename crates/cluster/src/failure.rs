//! Errors on their way from an executor to whoever asks.
//!
//! Ballista hands on the text of an error within texts of its own. So ours stand between signs, with their class, in letters that
//! no writer of texts changes. What is to be run again is an error of input and output by its type; nothing else is.

use std::io;

use datafusion::common::{DataFusionError, exec_datafusion_err};
use headrace_format::FormatError;
use headrace_io::IoError;
use headrace_runner::{ErrorClass, RunError};

const BEGIN: &str = "<headrace ";
const END: &str = "</headrace>";

/// What ended a run, as an executor tells it.
pub fn told(error: RunError) -> DataFusionError {
    let text = signed(error.class(), &error.to_string());
    match is_passing(&error) {
        true => DataFusionError::IoError(io::Error::other(text)),
        false => exec_datafusion_err!("{text}"),
    }
}

/// The same of another error; its class is told by its type.
pub fn told_of(error: DataFusionError) -> DataFusionError {
    let DataFusionError::External(cause) = error else {
        return exec_datafusion_err!("{}", signed(ErrorClass::Io, &error.to_string()));
    };
    let cause = match cause.downcast::<RunError>() {
        Ok(error) => return told(*error),
        Err(cause) => cause,
    };
    match cause.downcast::<FormatError>() {
        Ok(error) => told(RunError::Format(*error)),
        Err(cause) => exec_datafusion_err!("{}", signed(ErrorClass::Internal, &cause.to_string())),
    }
}

/// Whether it may be another time, or in another place, what it is not now: reading failed. A file that changed is another file
/// for good, and one that is not there is missed by everybody who is asked.
fn is_passing(error: &RunError) -> bool {
    let is_missing = |error: &IoError| match error {
        IoError::Open { cause, .. } => cause.kind() == io::ErrorKind::NotFound,
        _ => false,
    };
    match error {
        RunError::Format(FormatError::Io(cause)) if is_missing(cause) => false,
        error => error.class() == ErrorClass::Io,
    }
}

fn signed(class: ErrorClass, text: &str) -> String {
    let class = serde_json::to_string(&class).unwrap_or_default();
    let mut signed = format!("{BEGIN}{}>", class.trim_matches('"'));
    for letter in text.chars() {
        match letter {
            '\n' | '"' | '\\' | '%' | '<' | '>' => {
                signed.push_str(&format!("%{:02x}", letter as u32));
            }
            letter => signed.push(letter),
        }
    }
    signed + END
}

/// An error as the cluster told it: ours, if one stands in its text. One that was heard stays as it is.
pub fn heard(error: DataFusionError) -> DataFusionError {
    let text = match error {
        DataFusionError::External(cause) if cause.is::<RunError>() => {
            return DataFusionError::External(cause);
        }
        DataFusionError::Execution(text) => text,
        other => other.to_string(),
    };
    match found(&text) {
        Some((class, message)) => {
            DataFusionError::External(Box::new(RunError::Elsewhere { class, message }))
        }
        None => exec_datafusion_err!("the cluster failed: {text}"),
    }
}

fn found(text: &str) -> Option<(ErrorClass, String)> {
    let (_, rest) = text.split_once(BEGIN)?;
    let (class, rest) = rest.split_once('>')?;
    let (message, _) = rest.split_once(END)?;
    let class = serde_json::from_str(&format!("\"{class}\"")).ok()?;
    let mut parts = message.split('%');
    let mut plain = parts.next()?.to_string();
    for part in parts {
        let code = u8::from_str_radix(part.get(..2)?, 16).ok()?;
        plain.push(code as char);
        plain.push_str(part.get(2..)?);
    }
    Some((class, plain))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn errors_are_heard_as_they_were_told() {
        let message = "/data/\"a\".arrow: 100% gone <\\>\nhint: bring it back é";
        let error = RunError::Elsewhere { class: ErrorClass::FileChanged, message: message.into() };
        let told = told(error);
        // As they pass through several hands.
        let passed = format!("Job x failed: stage 1: {:?}", format!("{told:?}"));
        let heard = heard(exec_datafusion_err!("{passed}"));
        let DataFusionError::External(cause) = heard else { panic!("{heard}") };
        let cause = cause.downcast::<RunError>().unwrap();
        assert_eq!(cause.class(), ErrorClass::FileChanged);
        assert_eq!(cause.to_string(), message);
    }

    #[test]
    fn only_reading_is_tried_again() {
        let open = |kind: io::ErrorKind| {
            let (path, action) = ("/a".into(), "open the file".into());
            RunError::Format(IoError::Open { path, action, cause: kind.into() }.into())
        };
        let is_retried = |error| matches!(told(error), DataFusionError::IoError(_));
        assert!(is_retried(open(io::ErrorKind::TimedOut)));
        assert!(!is_retried(open(io::ErrorKind::NotFound)));
        let changed = IoError::Changed { path: "/a".into(), what: "longer".into() };
        assert!(!is_retried(RunError::Format(changed.into())));
        assert!(!is_retried(RunError::Thread("panicked".into())));
    }

    #[test]
    fn what_is_not_ours_is_told_as_it_is() {
        for text in [
            "no executor", "<headrace Io>", "<headrace Io>%</headrace>", "<headrace x>y</headrace>",
        ] {
            let heard = heard(exec_datafusion_err!("{text}")).to_string();
            assert!(heard.contains("the cluster failed") && heard.contains(text), "{heard}");
        }
    }
}
