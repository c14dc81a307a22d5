//! Answers: formats, and failures.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream::unfold;
use headrace_cli::ResultWriter;
use headrace_engine::failure::{Class, Failure};

use super::begun::begun;
use super::lines;
use crate::statement::Running;

/// In what an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    name: &'static str,
    content_type: &'static str,
}

const fn format(name: &'static str, content_type: &'static str) -> Format {
    Format { name, content_type }
}

/// Lines for the page.
const LINES: Format = format("lines", "application/x-headrace+ndjson");

const JSON: Format = format("json", "application/json");

/// By the name of the command line, and by the type of HTTP.
const FORMATS: &[Format] = &[
    JSON,
    format("csv", "text/csv; charset=utf-8"),
    format("tsv", "text/tab-separated-values; charset=utf-8"),
    format("ndjson", "application/x-ndjson"),
    format("markdown", "text/markdown; charset=utf-8"),
    format("table", "text/plain; charset=utf-8"),
    format("arrow", "application/vnd.apache.arrow.stream"),
    format("parquet", "application/vnd.apache.parquet"),
    LINES,
];

impl Format {
    /// What is asked for; JSON where nothing is said.
    pub fn asked(name: Option<&str>, accept: Option<&str>) -> Result<Self, Failure> {
        let names = || FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", ");
        if let Some(name) = name {
            let known = FORMATS.iter().find(|format| format.name == name);
            return known.copied().ok_or_else(|| {
                let failure = Failure::new(Class::Setting, format!("there is no format {name}"));
                failure.hint(format!("formats: {}", names()))
            });
        }
        let kinds = accept.unwrap_or("*/*").split(',');
        let mut kinds = kinds.map(|kind| kind.split(';').next().unwrap_or_default().trim());
        let found = kinds.find_map(|kind| match kind {
            "*/*" | "application/*" => Some(JSON),
            kind => FORMATS.iter().find(|format| format.plain_type() == kind).copied(),
        });
        found.ok_or_else(|| {
            let cause = format!("no answer is of the types {}", accept.unwrap_or_default());
            Failure::new(Class::Setting, cause).hint(format!("?format= takes {}", names()))
        })
    }

    fn plain_type(self) -> &'static str {
        self.content_type.split(';').next().unwrap_or_default()
    }

    pub fn content_type(self) -> &'static str {
        self.content_type
    }

    /// The body of an answer. What fails before the first rows is a failure of the request; what fails later breaks the
    /// body off, which the receiver notices, but for the page's lines, which tell it.
    pub async fn body(self, running: Running) -> Result<Body, Failure> {
        if self == LINES {
            return Ok(Body::from_stream(lines::of(begun(running).await?)));
        }
        let running = begun(running).await?;
        let writer = ResultWriter::new(self.name, running.running.schema());
        let writer = writer.map_err(|error| Failure::new(Class::Internal, error.to_string()))?;
        let chunks = unfold(Some((running, writer)), |state| async {
            let (mut running, mut writer) = state?;
            let mut chunk = Vec::new();
            let written = match running.next().await {
                Some(Ok(batch)) => {
                    writer.write(&mut chunk, &batch).map(|()| Some((running, writer)))
                }
                Some(Err(failure)) => Err(std::io::Error::other(failure.cause)),
                None => writer.finish(&mut chunk).map(|()| None),
            };
            Some(match written {
                Ok(next) => (Ok(Bytes::from(chunk)), next),
                Err(error) => (Err(error), None),
            })
        });
        Ok(Body::from_stream(chunks))
    }
}

/// The status of a failure.
fn status(class: Class) -> StatusCode {
    match class {
        Class::Forbidden => StatusCode::FORBIDDEN,
        Class::Busy => StatusCode::SERVICE_UNAVAILABLE,
        Class::TimedOut => StatusCode::REQUEST_TIMEOUT,
        Class::OutOfMemory => StatusCode::PAYLOAD_TOO_LARGE,
        Class::Io | Class::Corrupt | Class::FileChanged | Class::Device | Class::Internal => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        _ => StatusCode::BAD_REQUEST,
    }
}

/// The answer that a failure is.
pub fn failed(failure: &Failure) -> Response {
    let body = Body::from(lines::failure(failure).to_string() + "\n");
    (status(failure.class), [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_asked_for_by_type_or_name() {
        let of = |name, accept| Format::asked(name, accept).map(|format| format.name).ok();
        assert_eq!(of(None, None), Some("json"));
        assert_eq!(of(None, Some("*/*")), Some("json"));
        assert_eq!(of(None, Some("text/html, text/csv;q=0.9, */*;q=0.1")), Some("csv"));
        assert_eq!(of(None, Some("application/vnd.apache.arrow.stream")), Some("arrow"));
        assert_eq!(of(None, Some("application/x-headrace+ndjson")), Some("lines"));
        assert_eq!(of(Some("parquet"), Some("text/csv")), Some("parquet"));
        assert_eq!((of(None, Some("image/png")), of(Some("xlsx"), None)), (None, None));
    }
}
