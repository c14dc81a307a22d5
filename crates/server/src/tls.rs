//! TLS for what others can hear.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::connections;

/// How long a client may take to begin.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Connections that wait behind their handshake for the server to take them.
const READY: usize = 64;

/// A certificate and its key, for one protocol.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    /// Those of two PEM files.
    ///
    /// # Errors
    /// A file that cannot be read, or has none.
    pub fn read(certificate: &Path, key: &Path, protocol: &str) -> Result<Self, String> {
        let of =
            |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| of(certificate, &error))?;
        if chain.is_empty() {
            return Err(of(certificate, &"no certificate is in it"));
        }
        let key_pem = PrivateKeyDer::from_pem_file(key).map_err(|error| of(key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let mut config = config
            .with_no_client_auth()
            .with_single_cert(chain, key_pem)
            .map_err(|error| of(certificate, &error))?;
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// The client's side of a connection.
    ///
    /// # Errors
    /// What it says is no TLS, or is not agreed on.
    pub async fn accept(&self, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        tokio::time::timeout(HANDSHAKE, self.0.accept(socket)).await?
    }
}

/// Connections whose handshakes are done, until the server ends: one that takes long keeps nobody waiting.
pub fn handshaken(
    listener: TcpListener,
    tls: Tls,
    ending: watch::Receiver<bool>,
) -> impl Stream<Item = io::Result<TlsStream<TcpStream>>> {
    let (sender, ready) = mpsc::channel(READY);
    tokio::spawn(connections::each(listener, ending, move |socket| {
        let (tls, sender) = (tls.clone(), sender.clone());
        async move {
            if let Ok(stream) = tls.accept(socket).await {
                let _ = sender.send(Ok(stream)).await;
            }
        }
    }));
    futures::stream::unfold(ready, |mut ready| async move { Some((ready.recv().await?, ready)) })
}
