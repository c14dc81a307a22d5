//! Who is let in: TLS, and a secret that all members share.
//!
//! All that members say to each other is gRPC: to the scheduler, and to executors for what tasks have made. Ballista's executors
//! ask for their tasks, so that nobody connects to them for anything else. Both services let in who proves the secret, and
//! Ballista's hook for connections proves it. The hook gives no place of its own for that in a request, so the proof stands in
//! the name of the client, beside the versions: not the secret but an HMAC of it. Whoever hears it could use it; so beyond
//! this machine it is sent over TLS alone.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use ring::hmac;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

use crate::args::{CertificateArgs, MemberArgs};
use crate::version::{Versions, check_client};

/// The fewest bytes of a secret: nobody guesses them.
const SECRET_BYTES_MIN: usize = 16;

/// What is signed to prove the secret.
const SIGNED: &[u8] = b"headrace-cluster member";

/// How a proof begins in the name of a client.
const PROOF: &str = "proof/";

/// How long a connection may take to begin.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Connections that wait behind their handshake for the server to take them.
const READY: usize = 64;

/// How long no connection is taken after one could not be, such as for want of open files.
const PAUSE: Duration = Duration::from_millis(100);

/// After how much silence it is asked whether the other side is there, and how long that may take.
const SILENCE: Duration = Duration::from_secs(10);
const SILENCE_PATIENCE: Duration = Duration::from_secs(20);

/// How a member shows that it may come, and asks others for the same.
#[derive(Clone, Default)]
pub struct Access {
    /// Of connections that are made.
    authority: Option<ClientTlsConfig>,
    /// Of connections that come.
    acceptor: Option<TlsAcceptor>,
    secret: Option<Arc<hmac::Key>>,
}

impl Access {
    /// Of one that others come to.
    ///
    /// # Errors
    /// A file that cannot be read, or is something else.
    pub fn of_server(
        certificate: &CertificateArgs,
        secret_file: Option<&Path>,
    ) -> Result<Self, String> {
        let secret = secret_file.map(secret).transpose()?;
        let acceptor = match (&certificate.tls_certificate, &certificate.tls_key) {
            (Some(certificate), Some(key)) => Some(acceptor(certificate, key)?),
            _ => None,
        };
        Ok(Self { authority: None, acceptor, secret })
    }

    /// Of one that goes to others.
    ///
    /// # Errors
    /// A file that cannot be read, or is something else.
    pub fn of_client(member: &MemberArgs) -> Result<Self, String> {
        let secret = member.secret_file.as_deref().map(secret).transpose()?;
        let authority = member.tls_authority.as_deref().map(authority).transpose()?;
        Ok(Self { authority, acceptor: None, secret })
    }

    /// Of one that does both.
    ///
    /// # Errors
    /// A file that cannot be read, or is something else; TLS on one side only: executors connect to each other.
    pub fn of_both(certificate: &CertificateArgs, member: &MemberArgs) -> Result<Self, String> {
        if certificate.tls_certificate.is_some() != member.tls_authority.is_some() {
            return Err("an executor speaks TLS with all others, or with none\n\n\
                        hint: --tls-certificate, --tls-key and --tls-authority together"
                .to_string());
        }
        let Self { acceptor, .. } = Self::of_server(certificate, None)?;
        Ok(Self { acceptor, ..Self::of_client(member)? })
    }

    /// Whether only members are let in, and nobody else hears them.
    pub fn is_closed(&self) -> bool {
        self.acceptor.is_some() && self.secret.is_some()
    }

    /// Whether connections are made by TLS.
    pub fn has_tls(&self) -> bool {
        self.authority.is_some()
    }

    /// Who is let in, in words.
    pub fn whom(&self) -> &'static str {
        match (self.acceptor.is_some(), self.secret.is_some()) {
            (true, true) => "members with the secret, over TLS",
            (false, true) => "members with the secret",
            (true, false) => "this machine, over TLS",
            (false, false) => "this machine",
        }
    }

    /// A connection that says its versions and proves the secret.
    ///
    /// # Errors
    /// Others would hear the proof.
    pub fn told(&self, endpoint: Endpoint) -> Result<Endpoint, Box<dyn Error + Send + Sync>> {
        let name = self.client_name();
        let host = endpoint.uri().host().unwrap_or_default().to_string();
        let address = host.trim_matches(['[', ']']).to_string();
        let Some(tls) = &self.authority else {
            let is_here = address.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
            if self.secret.is_some() && !is_here {
                return Err(
                    "the secret is sent beyond this machine by TLS alone\nhint: --tls-authority"
                        .into(),
                );
            }
            return Ok(endpoint.user_agent(name)?);
        };
        // Ballista's own has no TLS in its address, which no setting changes.
        let port = endpoint.uri().port_u16().unwrap_or(443);
        let endpoint = Endpoint::from_shared(format!("https://{host}:{port}"))?
            .connect_timeout(HANDSHAKE)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(SILENCE))
            .http2_keep_alive_interval(SILENCE)
            .keep_alive_timeout(SILENCE_PATIENCE)
            .keep_alive_while_idle(true)
            .user_agent(name)?;
        Ok(endpoint.tls_config(tls.clone().domain_name(address))?)
    }

    fn client_name(&self) -> String {
        let name = Versions::OWN.client_name();
        match &self.secret {
            Some(secret) => {
                let proof = hmac::sign(secret, SIGNED);
                let hex: String = proof.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{name} {PROOF}{hex}")
            }
            None => name,
        }
    }

    /// Lets a request in, or not; says who was not.
    ///
    /// # Errors
    /// It has no proof of the secret, or is of another version.
    pub fn check(&self, request: Request<()>) -> Result<Request<()>, Status> {
        let proven = self.check_proof(request.metadata()).map_err(Status::unauthenticated);
        let let_in = proven
            .and_then(|()| check_client(request.metadata()).map_err(Status::failed_precondition));
        if let Err(status) = &let_in {
            refused(request.remote_addr(), status.message());
        }
        let_in.map(|()| request)
    }

    fn check_proof(&self, request: &MetadataMap) -> Result<(), String> {
        let Some(secret) = &self.secret else { return Ok(()) };
        let name = request.get("user-agent").and_then(|name| name.to_str().ok());
        let proof = name.unwrap_or_default().split(' ').find_map(|word| word.strip_prefix(PROOF));
        let Some(proof) = proof else {
            return Err(
                "it asks for the cluster's secret, and none came\nhint: --secret-file".to_string()
            );
        };
        // `verify` takes as long for each that is wrong.
        let is_ours =
            bytes(proof).is_some_and(|proof| hmac::verify(secret, SIGNED, &proof).is_ok());
        match is_ours {
            true => Ok(()),
            false => {
                Err("its secret is another one\nhint: the same --secret-file everywhere"
                    .to_string())
            }
        }
    }

    /// Connections whose handshakes are done, until nobody takes them; the listener itself without TLS. One that takes long
    /// keeps nobody waiting.
    ///
    /// # Errors
    /// There is no TLS.
    pub fn handshaken(
        &self,
        listener: TcpListener,
    ) -> Result<impl Stream<Item = io::Result<TlsStream<TcpStream>>> + use<>, TcpListener> {
        let Some(acceptor) = self.acceptor.clone() else { return Err(listener) };
        let (sender, ready) = mpsc::channel(READY);
        tokio::spawn(async move {
            loop {
                let taken = tokio::select! {
                    taken = listener.accept() => taken,
                    () = sender.closed() => break,
                };
                let Ok((socket, peer)) = taken else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                let (acceptor, sender) = (acceptor.clone(), sender.clone());
                tokio::spawn(async move {
                    let _ = socket.set_nodelay(true);
                    match tokio::time::timeout(HANDSHAKE, acceptor.accept(socket)).await {
                        Ok(Ok(stream)) => drop(sender.send(Ok(stream)).await),
                        Ok(Err(error)) => refused(Some(peer), &format!("no TLS with it: {error}")),
                        Err(_) => refused(Some(peer), "it does not begin to speak TLS"),
                    }
                });
            }
        });
        let next = |mut ready: mpsc::Receiver<_>| async move { Some((ready.recv().await?, ready)) };
        Ok(futures::stream::unfold(ready, next))
    }
}

/// Refuses to listen where others than this machine's could come without a secret, or hear one.
///
/// # Errors
/// The address is not this machine's own, and TLS or the secret lacks.
pub fn check_listen(listen: SocketAddr, access: &Access) -> Result<(), String> {
    if listen.ip().is_loopback() || access.is_closed() {
        return Ok(());
    }
    Err(format!(
        "{listen} is reached from other machines, where anybody could read what this one can without TLS and a secret\n\n\
         hint: --tls-certificate, --tls-key and --secret-file; or --listen 127.0.0.1:{}",
        listen.port()
    ))
}

/// Refuses to have others told an address that is no machine's.
///
/// # Errors
/// The address is all of this machine's.
pub fn check_told(listen: SocketAddr) -> Result<(), String> {
    match listen.ip().is_unspecified() {
        true => Err(format!(
            "{listen} is no address that other machines could connect to\n\n\
             hint: --listen with the address of this machine that they reach"
        )),
        false => Ok(()),
    }
}

/// Writes to the log who was not let in.
fn refused(who: Option<SocketAddr>, why: &str) {
    let who = who.map_or_else(|| "somebody".to_string(), |who| who.to_string());
    eprintln!("refused {who}: {}", why.lines().next().unwrap_or_default());
}

/// Bytes of hexadecimal digits.
fn bytes(hex: &str) -> Option<Vec<u8>> {
    let pair = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    (0..hex.len()).step_by(2).map(pair).collect()
}

fn of(path: &Path, cause: &dyn std::fmt::Display) -> String {
    format!("{}: {cause}", path.display())
}

/// The secret of a file.
fn secret(path: &Path) -> Result<Arc<hmac::Key>, String> {
    let text = std::fs::read(path).map_err(|error| of(path, &error))?;
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = line.trim_ascii();
    if line.len() < SECRET_BYTES_MIN {
        let cause = format!(
            "the secret has {} letters, and is to have {SECRET_BYTES_MIN} at least\n\nhint: head -c 32 /dev/urandom | base64",
            line.len()
        );
        return Err(of(path, &cause));
    }
    Ok(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, line)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| of(path, &error))?;
    match chain.is_empty() {
        true => Err(of(path, &"no certificate is in it")),
        false => Ok(chain),
    }
}

fn authority(path: &Path) -> Result<ClientTlsConfig, String> {
    certificates(path)?;
    let pem = std::fs::read(path).map_err(|error| of(path, &error))?;
    Ok(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)))
}

fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let chain = certificates(certificate)?;
    let key_pem = PrivateKeyDer::from_pem_file(key).map_err(|error| of(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = config
        .with_no_client_auth()
        .with_single_cert(chain, key_pem)
        .map_err(|error| of(certificate, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn with(secret: &str) -> Access {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        Access { secret: Some(Arc::new(key)), ..Access::default() }
    }

    fn checked(server: &Access, name: &str) -> Result<(), Status> {
        let mut request = Request::new(());
        request.metadata_mut().insert("user-agent", name.parse().unwrap());
        server.check(request).map(drop)
    }

    #[test]
    fn only_the_same_secret_is_let_in() {
        let server = with("one secret of all members");
        // The library appends its own.
        checked(&server, &format!("{} tonic/0.14", server.client_name())).unwrap();
        let own = server.client_name();
        let others = [
            with("another secret").client_name(),
            Access::default().client_name(),
            own[..own.len() - 2].to_string(),
            format!("{own}0"),
            format!("{own}00"),
            format!("{} {PROOF}", Versions::OWN.client_name()),
            format!("{} {PROOF}é", Versions::OWN.client_name()),
        ];
        for name in others.iter().filter(|name| name.is_ascii()) {
            let status = checked(&server, name).unwrap_err();
            assert_eq!(status.code(), tonic::Code::Unauthenticated, "{name}");
            assert!(status.message().contains("secret"), "{status}");
        }
        assert_eq!(bytes("é0"), None);
        checked(&Access::default(), &own).unwrap();
    }

    #[test]
    fn the_secret_is_not_sent() {
        let access = with("one secret of all members");
        assert!(!access.client_name().contains("one secret"));
        let beyond = Endpoint::from_static("http://10.0.0.1:1");
        assert!(access.told(beyond.clone()).unwrap_err().to_string().contains("--tls-authority"));
        access.told(Endpoint::from_static("http://[::1]:1")).unwrap();
        Access::default().told(beyond).unwrap();
    }

    #[test]
    fn a_secret_that_could_be_guessed_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, is_taken) in [
            ("", false),
            ("\nafter a line that is empty", false),
            ("fifteen letters\n", false),
            ("sixteen letters!\r\n", true),
        ] {
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(secret(file.path()).is_ok(), is_taken, "{text:?}");
        }
        assert!(secret(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn nobody_beyond_this_machine_is_served_without_tls_and_a_secret() {
        for (address, is_served) in
            [("127.0.0.1:1", true), ("[::1]:1", true), ("0.0.0.0:1", false), ("10.0.0.1:1", false)]
        {
            let checked = check_listen(address.parse().unwrap(), &Access::default());
            assert_eq!(checked.is_ok(), is_served, "{address}: {checked:?}");
            assert!(checked.err().is_none_or(|cause| cause.contains("--secret-file")));
        }
        assert!(check_told("0.0.0.0:1".parse().unwrap()).is_err());
        assert!(check_told("10.0.0.1:1".parse().unwrap()).is_ok());
    }
}
