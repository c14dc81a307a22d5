//! Nodes as bytes: a sign, the versions, then JSON.
//!
//! The sign is no beginning of a message of Ballista's, whose nodes come the same way.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::{Result, exec_datafusion_err, exec_err};
use datafusion_proto::protobuf;
use headrace_format::PortableTable;
use headrace_ir::Program;
use headrace_runner::Settings;
use prost::Message as _;
use serde::{Deserialize, Serialize};

use crate::outputs::SentOutput;
use crate::version::Versions;

const SIGN: [u8; 4] = *b"HRCL";
const HEAD_BYTES: usize = 12;

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    Share(Box<ShareWork>),
    Merge(Box<MergeWork>),
}

/// A table by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamedTable {
    pub name: String,
    pub table: PortableTable,
}

/// What a task does with its shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShareWork {
    /// Its last stage reads the table after the last of `tables`: the shares.
    pub program: Program,
    /// The tables.
    pub tables: Vec<NamedTable>,
    /// Which of them the shares are of.
    pub divided: usize,
    /// How it is run, as far as that is not an executor's own.
    pub settings: Settings,
    /// The columns that are put out. Of partial states none is computed.
    pub columns: SentSchema,
}

/// How partial states become groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MergeWork {
    /// The program whose last stage the groups are of.
    pub program: Program,
    /// The plan's columns, of the program's; none: they are the same.
    pub outputs: Vec<SentOutput>,
    /// The plan's columns.
    pub columns: SentSchema,
}

/// Columns, in the form that DataFusion's plans are sent in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SentSchema(Vec<u8>);

impl SentSchema {
    /// # Errors
    /// A type that has no such form.
    pub fn of(schema: &Schema) -> Result<Self> {
        let sent = protobuf::Schema::try_from(schema)
            .map_err(|error| exec_datafusion_err!("columns cannot be sent: {error}"))?;
        Ok(Self(sent.encode_to_vec()))
    }

    /// # Errors
    /// Bytes of something else.
    pub fn schema(&self) -> Result<SchemaRef> {
        let sent = protobuf::Schema::decode(&self.0[..])
            .map_err(|error| exec_datafusion_err!("columns cannot be read: {error}"))?;
        let schema = Schema::try_from(&sent)
            .map_err(|error| exec_datafusion_err!("columns cannot be read: {error}"))?;
        Ok(Arc::new(schema))
    }
}

impl Message {
    /// # Errors
    /// A value that JSON has not.
    pub fn encode(&self, into: &mut Vec<u8>) -> Result<()> {
        let Versions { protocol, program } = Versions::OWN;
        into.extend_from_slice(&SIGN);
        into.extend_from_slice(&protocol.to_le_bytes());
        into.extend_from_slice(&program.to_le_bytes());
        serde_json::to_writer(into, self)
            .map_err(|error| exec_datafusion_err!("a node cannot be sent: {error}"))
    }

    /// `None`: it is no node of ours.
    ///
    /// # Errors
    /// A node of another version, or a broken one.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let Some(rest) = bytes.strip_prefix(&SIGN) else { return Ok(None) };
        let number = |at: usize| {
            let four: Option<[u8; 4]> = rest.get(at..at + 4).and_then(|four| four.try_into().ok());
            four.map(u32::from_le_bytes)
        };
        let (Some(protocol), Some(program)) = (number(0), number(4)) else {
            return exec_err!("a node of a plan ends within its versions");
        };
        let versions = Versions { protocol, program };
        versions.check("the plan").map_err(|cause| exec_datafusion_err!("{cause}"))?;
        let message: Self = serde_json::from_slice(&bytes[HEAD_BYTES..])
            .map_err(|error| exec_datafusion_err!("a node of a plan cannot be read: {error}"))?;
        message.check()?;
        Ok(Some(message))
    }

    /// Refuses what nobody sends who has this version.
    fn check(&self) -> Result<()> {
        let program = match self {
            Self::Share(work) => {
                if work.divided >= work.tables.len() {
                    return exec_err!("the shares are of no table of the plan");
                }
                &work.program
            }
            Self::Merge(work) => {
                let columns = work.program.answer.sink.output().unwrap_or_default().len();
                let mut used = work.outputs.iter().flat_map(SentOutput::columns);
                if used.any(|column| column >= columns) {
                    return exec_err!("a column of the plan is none of its program's");
                }
                &work.program
            }
        };
        program.validate().map_err(|error| exec_datafusion_err!("a program is broken: {error}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use datafusion::arrow::datatypes::{DataType, Field};
    use headrace_ir::{
        AggregateCall, AggregateFunction, DataType as IrType, Input, Pipeline, Sink, Source,
    };

    use super::*;

    fn merge() -> Message {
        let source = Source {
            input: Input::Table(0),
            table: "t".into(),
            columns: Vec::new(),
            ordinals: Vec::new(),
        };
        let count = AggregateCall::new("n", AggregateFunction::Count, None, IrType::Int64);
        let sink = Sink::aggregate(Vec::new(), vec![count]);
        let program = Program::new(Vec::new(), Pipeline { source, steps: Vec::new(), sink });
        let schema = Schema::new(vec![Field::new("n", DataType::Int64, false)]);
        let outputs = vec![SentOutput::Column(0)];
        let columns = SentSchema::of(&schema).unwrap();
        Message::Merge(Box::new(MergeWork { program, outputs, columns }))
    }

    fn encoded(message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_node_is_what_it_was() {
        let message = merge();
        assert_eq!(Message::decode(&encoded(&message)).unwrap(), Some(message));
        assert_eq!(Message::decode(b"\x0a\x00").unwrap(), None);
        assert_eq!(Message::decode(b"").unwrap(), None);
    }

    #[test]
    fn other_versions_are_refused() {
        for at in [4, 8] {
            let mut bytes = encoded(&merge());
            bytes[at] += 1;
            let error = Message::decode(&bytes).unwrap_err().to_string();
            assert!(error.contains("hint: use the same version"), "{error}");
        }
    }

    #[test]
    fn what_is_broken_is_an_error() {
        let whole = encoded(&merge());
        for length in SIGN.len()..whole.len() {
            assert!(Message::decode(&whole[..length]).is_err(), "{length}");
        }
        let Message::Merge(mut work) = merge() else { panic!("another node") };
        work.outputs = vec![SentOutput::IsTrue(1)];
        assert!(Message::decode(&encoded(&Message::Merge(work.clone()))).is_err());
        work.outputs.clear();
        work.program.version += 1;
        assert!(Message::decode(&encoded(&Message::Merge(work))).is_err());
    }
}
