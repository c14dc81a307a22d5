//! What Ballista calls to send our nodes, and to have them again.

use std::sync::Arc;

use ballista_core::serde::BallistaPhysicalExtensionCodec;
use datafusion::common::{Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};

use crate::merge::PipelineMergeExec;
use crate::message::Message;
use crate::place::Place;
use crate::share::PipelineShareExec;

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
            return self.ballista.try_decode(bytes, inputs, context, converter);
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
