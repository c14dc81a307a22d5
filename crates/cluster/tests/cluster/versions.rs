//! Programs of other versions, and others than this machine's.

use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::protobuf::{ExecutorRegistration, PollWorkParams};
use tonic::Code;
use tonic::transport::Endpoint;

use crate::programs::{Cluster, failure, run};

/// What an executor of a name is told when it comes for work.
fn work_for(address: &str, name: &str) -> tonic::Status {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = endpoint.user_agent(name).unwrap().connect().await.unwrap();
        let metadata = ExecutorRegistration { id: "other".into(), ..Default::default() };
        let asked = PollWorkParams {
            metadata: Some(metadata),
            num_free_vcores: 1,
            task_status: Vec::new(),
        };
        SchedulerGrpcClient::new(channel).poll_work(asked).await.unwrap_err()
    })
}

#[test]
fn an_executor_of_another_version_gets_no_work() {
    let cluster = Cluster::start(0);
    let told = work_for(&cluster.address, "headrace-cluster/0.0.1 protocol/0 programs/1");
    assert_eq!(told.code(), Code::FailedPrecondition);
    let said = told.message();
    assert!(said.contains("protocol 0") && said.contains("use the same version"), "{said}");
    let told = work_for(&cluster.address, "ballista/55.0.0");
    assert_eq!(told.code(), Code::FailedPrecondition);
    assert!(told.message().contains("no program of Headrace's"), "{told}");
}

#[test]
fn who_finds_no_scheduler_says_so() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = port.to_string();
    let outcome = run(&["executor", "--scheduler", &address]);
    let said = failure(&outcome);
    assert!(!outcome.status.success() && said.contains("there is no scheduler"), "{said}");
    assert!(said.contains("hint: headrace-cluster scheduler"), "{said}");
}

#[test]
fn nobody_listens_beyond_this_machine() {
    for arguments in [
        &["scheduler", "--listen", "0.0.0.0:0"][..],
        &["executor", "--scheduler", "127.0.0.1:1", "--listen", "0.0.0.0:0"],
    ] {
        let outcome = run(arguments);
        let said = failure(&outcome);
        assert!(!outcome.status.success() && said.contains("without TLS and a secret"), "{said}");
        assert!(said.contains("--listen 127.0.0.1"), "{said}");
    }
}
