//! TLS for what others can hear.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

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

/// Connections whose handshakes are done: one that takes long keeps nobody waiting.
pub struct TlsListener {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: SocketAddr,
}

impl TlsListener {
    /// Of a listener.
    ///
    /// # Errors
    /// It has no address.
    pub fn new(listener: TcpListener, tls: Tls) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (sender, ready) = mpsc::channel(READY);
        tokio::spawn(async move {
            while !sender.is_closed() {
                let Ok((socket, from)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let (tls, sender) = (tls.clone(), sender.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = tls.accept(socket).await {
                        let _ = sender.send((stream, from)).await;
                    }
                });
            }
        });
        Ok(Self { ready, address })
    }
}

impl TlsListener {
    /// The connections.
    pub fn stream(self) -> impl Stream<Item = io::Result<TlsStream<TcpStream>>> {
        futures::stream::unfold(self, |mut listener| async move {
            let (taken, _) = listener.ready.recv().await?;
            Some((Ok(taken), listener))
        })
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(taken) => taken,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}
