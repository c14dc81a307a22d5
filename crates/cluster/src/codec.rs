//! What Ballista calls to send our nodes, and to have them again.
//!
//! A stage that runs again as a whole, because what it reads was lost, has new outputs; Ballista 55 keeps those of its first attempt
//! that are not lost beside them, and a reader would have their rows twice. A plan of ours is a chain of stages. Of those, only
//! the first one, which reads shares, deals its rows out by a hash, so that each of its tasks has an output for every reader;
//! it reads no other stage, and so is never run again as a whole. Of the others, each partition has one output: the newest.

use std::collections::HashSet;
use std::sync::Arc;

use ballista_core::execution_plans::ShuffleReaderExec;
use ballista_core::serde::BallistaPhysicalExtensionCodec;
use ballista_core::serde::scheduler::PartitionLocation;
use datafusion::common::{Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};

use crate::merge::PipelineMergeExec;
use crate::message::Message;
use crate::place::Place;
use crate::share::PipelineShareExec;

/// The number of the stage that reads shares.
const FIRST_STAGE: usize = 1;

/// Our nodes, and those of Ballista.
#[derive(Debug, Default)]
pub struct ClusterCodec {
    ballista: BallistaPhysicalExtensionCodec,
    /// Where nodes run that are decoded; `None`: nowhere, as in a scheduler.
    place: Option<Arc<Place>>,
}

impl ClusterCodec {
    /// For an executor.
    pub fn at(place: Arc<Place>) -> Self {
        Self { place: Some(place), ..Self::default() }
    }
}

impl PhysicalExtensionCodec for ClusterCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(message) = Message::decode(bytes)? else {
            return read_once(self.ballista.try_decode(bytes, inputs, context, converter)?);
        };
        let [input] = inputs else {
            return internal_err!("a node of a pipeline has one child, not {}", inputs.len());
        };
        let (input, place) = (Arc::clone(input), self.place.clone());
        Ok(match message {
            Message::Share(work) => {
                Arc::new(PipelineShareExec::new(Arc::from(work), input, place)?)
            }
            Message::Merge(work) => {
                Arc::new(PipelineMergeExec::new(Arc::from(work), input, place)?)
            }
        })
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        if let Some(share) = node.downcast_ref::<PipelineShareExec>() {
            return share.message().encode(bytes);
        }
        if let Some(merge) = node.downcast_ref::<PipelineMergeExec>() {
            return merge.message().encode(bytes);
        }
        self.ballista.try_encode(node, bytes, converter)
    }
}

/// A reader of a stage without what an earlier attempt at that stage has made.
fn read_once(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(reader) = node.downcast_ref::<ShuffleReaderExec>() else { return Ok(node) };
    if reader.stage_id == FIRST_STAGE {
        return Ok(node);
    }
    if reader.broadcast || reader.coalesce.is_some() {
        return internal_err!("a stage is read in a way that no plan of ours has");
    }
    let partitions = reader.partition.iter().map(|places| newest(places)).collect();
    let partitioning = reader.properties().output_partitioning().clone();
    Ok(Arc::new(ShuffleReaderExec::try_new(
        reader.stage_id,
        partitions,
        reader.schema(),
        partitioning,
    )?))
}

/// One place for each partition, that which came last.
fn newest(places: &[PartitionLocation]) -> Vec<PartitionLocation> {
    let mut seen = HashSet::new();
    let newest = places.iter().rev().filter(|place| seen.insert(place.partition_id.partition_id));
    newest.cloned().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use ballista_core::serde::scheduler::{ExecutorMetadata, PartitionId, PartitionStats};
    use datafusion::arrow::datatypes::Schema;
    use datafusion::physical_plan::Partitioning;

    use super::*;

    /// The output of a partition, by a task of an executor.
    fn place(
        stage_id: usize,
        partition_id: usize,
        executor: &str,
        task: usize,
    ) -> PartitionLocation {
        let executor_meta = ExecutorMetadata {
            id: executor.into(),
            host: "127.0.0.1".into(),
            port: 1,
            grpc_port: 1,
            specification: Default::default(),
            os_info: Default::default(),
        };
        PartitionLocation {
            map_partition_id: task,
            partition_id: PartitionId { job_id: "job".into(), stage_id, partition_id },
            executor_meta,
            partition_stats: PartitionStats::default(),
            file_id: None,
            is_sort_shuffle: false,
        }
    }

    /// Executors of the places that are read, as another process has them, by partition.
    fn read(stage: usize, places: Vec<Vec<PartitionLocation>>) -> Vec<Vec<String>> {
        let partitioning = Partitioning::UnknownPartitioning(places.len());
        let schema = Arc::new(Schema::empty());
        let reader = ShuffleReaderExec::try_new(stage, places, schema, partitioning).unwrap();
        let (codec, context) = (ClusterCodec::default(), TaskContext::default());
        let mut bytes = Vec::new();
        let converter = datafusion_proto::physical_plan::DefaultPhysicalProtoConverter {};
        codec.try_encode(Arc::new(reader), &mut bytes, &converter).unwrap();
        let node = codec.try_decode(&bytes, &[], &context, &converter).unwrap();
        let partitions = &node.downcast_ref::<ShuffleReaderExec>().unwrap().partition;
        let of = |places: &Vec<PartitionLocation>| {
            places.iter().map(|place| place.executor_meta.id.clone()).collect()
        };
        partitions.iter().map(of).collect()
    }

    #[test]
    fn what_an_earlier_attempt_at_a_stage_has_made_is_not_read_again() {
        let places = |stage| {
            vec![
                vec![place(stage, 0, "old", 3), place(stage, 0, "new", 0)],
                vec![place(stage, 1, "new", 1)],
            ]
        };
        assert_eq!(read(2, places(2)), [["new"], ["new"]]);
        // Each task of the first stage has an output for every reader.
        assert_eq!(read(1, places(1)), [&["old", "new"][..], &["new"]]);
    }
}
