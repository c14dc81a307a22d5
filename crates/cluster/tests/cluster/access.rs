//! Who is let in: TLS with certificates that are made here, and a secret.

use std::path::{Path, PathBuf};
use std::process::Command;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{Action, Ticket};
use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::data::{ROWS, Tables};
use crate::programs::{Cluster, failure, run, wait_for};

const SQL: &str = "select count(*) n from facts where id >= 0";
const GROUPS: &str = "select name, count(*), sum(amount) from facts group by name";

/// An authority, a certificate of it for this machine, and secrets.
struct Keys(tempfile::TempDir);

impl Keys {
    fn make() -> Self {
        let keys = Self(tempfile::tempdir().unwrap());
        for authority in ["authority", "stranger"] {
            keys.openssl(authority, &["-subj", &format!("/CN={authority}")]);
        }
        let (authority, key) = (keys.path("authority.pem"), keys.path("authority.key"));
        keys.openssl(
            "member",
            &[
                "-subj",
                "/CN=member",
                "-CA",
                &authority,
                "-CAkey",
                &key,
                "-addext",
                "subjectAltName=IP:127.0.0.1",
                "-addext",
                "basicConstraints=critical,CA:FALSE",
            ],
        );
        std::fs::write(keys.path("secret"), "the secret of all members\n").unwrap();
        std::fs::write(keys.path("other"), "a secret of somebody else\n").unwrap();
        keys
    }

    fn openssl(&self, name: &str, more: &[&str]) {
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        command.args(["-nodes", "-days", "2", "-keyout", &self.path(&format!("{name}.key"))]);
        let made = command.args(["-out", &self.path(&format!("{name}.pem"))]).args(more).output();
        let made = made.unwrap();
        assert!(made.status.success(), "{}", failure(&made));
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_string()
    }

    fn options(&self, words: &[(&str, &str)]) -> Vec<String> {
        words.iter().flat_map(|(option, file)| [option.to_string(), self.path(file)]).collect()
    }

    fn closed(&self, executors: usize) -> Cluster {
        let own = [("--tls-certificate", "member.pem"), ("--tls-key", "member.key")];
        let secret = [("--secret-file", "secret")];
        let member = [("--tls-authority", "authority.pem")];
        let access = [
            self.options(&[&own[..], &secret].concat()),
            self.options(&[&own[..], &secret, &member].concat()),
            self.options(&[&secret[..], &member].concat()),
        ];
        Cluster::closed(executors, access)
    }
}

fn query(cluster: &Cluster, access: &[String]) -> String {
    let data = Tables::shared().arrow.path().to_str().unwrap();
    let words = ["query", "--cluster", &cluster.address, "--data", data];
    let access: Vec<&str> = access.iter().map(String::as_str).collect();
    let outcome = run(&[&words[..], &access, &[SQL]].concat());
    assert!(!outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stdout));
    failure(&outcome)
}

fn executor(cluster: &Cluster, access: &[String]) -> String {
    let words = ["executor", "--scheduler", &cluster.address];
    let access: Vec<&str> = access.iter().map(String::as_str).collect();
    let outcome = run(&[&words[..], &access].concat());
    assert!(!outcome.status.success());
    failure(&outcome)
}

#[test]
fn a_closed_cluster_answers_its_members() {
    let (keys, tables) = (Keys::make(), Tables::shared());
    let cluster = keys.closed(2);
    for data in [tables.arrow.path(), tables.parquet.path()] {
        for sql in [SQL, GROUPS] {
            assert_eq!(cluster.answer(data, sql, &[]), crate::data::answer(data, sql));
        }
    }
    let plan = cluster.answer(tables.arrow.path(), &format!("explain {SQL}"), &[]).join("\n");
    assert!(plan.contains("ClusterExec") && !plan.contains("secret") && !plan.contains("proof"));
    let said = cluster.scheduler.log();
    assert!(!said.contains("refused"), "{said}");
}

#[test]
fn who_is_no_member_is_refused_and_written_down() {
    let keys = Keys::make();
    let cluster = keys.closed(0);
    let own = [("--tls-certificate", "member.pem"), ("--tls-key", "member.key")];
    let trusting = ("--tls-authority", "authority.pem");
    let mut refused = 0;
    let mut is_refused = |what: &str, said: String, remedy: &str| {
        refused += 1;
        assert!(said.contains(&cluster.address) && said.contains(remedy), "{what}: {said}");
        assert!(!said.contains("of somebody else"), "{said}");
        wait_for(what, || cluster.scheduler.log().matches("refused 127.0.0.1").count() >= refused);
    };
    for (secret, remedy) in
        [(Some("other"), "the same --secret-file"), (None, "hint: --secret-file")]
    {
        let secret = secret.map(|secret| ("--secret-file", secret));
        let client: Vec<_> = [trusting].into_iter().chain(secret).collect();
        is_refused("a query's secret", query(&cluster, &keys.options(&client)), remedy);
        let both = [&own[..], &client].concat();
        is_refused("an executor's secret", executor(&cluster, &keys.options(&both)), remedy);
    }
    let secret = ("--secret-file", "secret");
    let plain = keys.options(&[secret]);
    is_refused("a query without TLS", query(&cluster, &plain), "--tls-authority");
    is_refused("an executor without TLS", executor(&cluster, &plain), "--tls-authority");
    let stranger = keys.options(&[("--tls-authority", "stranger.pem"), secret]);
    is_refused("a query that trusts others", query(&cluster, &stranger), "--tls-authority");
    let log = cluster.scheduler.log();
    assert!(!log.contains("the secret of all") && !log.contains("proof/"), "{log}");
}

/// What an executor gives to somebody who asks for a file.
async fn asked(channel: Channel) -> [Code; 2] {
    let mut client = FlightServiceClient::new(channel);
    let got = client.do_get(Ticket { ticket: Vec::new().into() }).await.map(drop);
    let action = Action { r#type: "IO_BLOCK_TRANSPORT".to_string(), body: Vec::new().into() };
    let done = client.do_action(action).await.map(drop);
    [got, done].map(|outcome| outcome.unwrap_err().code())
}

#[test]
fn executors_give_nothing_to_others() {
    let keys = Keys::make();
    let cluster = keys.closed(1);
    let place = &cluster.places[0];
    let pem = std::fs::read(Path::new(&keys.path("authority.pem"))).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
        let endpoint = Endpoint::from_shared(format!("https://{place}")).unwrap();
        let channel = endpoint.tls_config(tls).unwrap().connect().await.unwrap();
        assert_eq!(asked(channel).await, [Code::Unauthenticated; 2]);
    });
    assert!(cluster.executors[0].log().contains("refused 127.0.0.1"));
}

#[test]
fn a_secret_alone_closes_a_cluster_of_this_machine() {
    let (keys, tables) = (Keys::make(), Tables::shared());
    let secret = keys.options(&[("--secret-file", "secret")]);
    let cluster = Cluster::closed(1, [secret.clone(), secret.clone(), secret]);
    let answer = cluster.answer(tables.arrow.path(), SQL, &[]);
    assert_eq!(answer, [ROWS.to_string(), "n".to_string()]);
    assert!(query(&cluster, &[]).contains("--secret-file"));
}

#[test]
fn nothing_listens_beyond_this_machine_with_less_than_both() {
    let keys = Keys::make();
    let own = [("--tls-certificate", "member.pem"), ("--tls-key", "member.key")];
    let secret = [("--secret-file", "secret")];
    for access in [keys.options(&own), keys.options(&secret), Vec::new()] {
        let access: Vec<&str> = access.iter().map(String::as_str).collect();
        let outcome = run(&[&["scheduler", "--listen", "0.0.0.0:0"][..], &access].concat());
        let said = failure(&outcome);
        assert!(!outcome.status.success(), "{access:?}");
        assert!(said.contains("hint: --tls-certificate, --tls-key and --secret-file"), "{said}");
    }
    // With both it listens.
    let access = keys.options(&[&own[..], &secret].concat());
    let listen = ["--listen".to_string(), "0.0.0.0:0".to_string()];
    let cluster = Cluster::closed(0, [[&listen[..], &access].concat(), Vec::new(), Vec::new()]);
    assert!(cluster.address.starts_with("0.0.0.0:"), "{}", cluster.address);
    let certificate: PathBuf = keys.path("member.pem").into();
    let outcome = run(&[
        "executor",
        "--scheduler",
        "127.0.0.1:1",
        "--tls-certificate",
        certificate.to_str().unwrap(),
    ]);
    assert!(failure(&outcome).contains("--tls-key"));
}
