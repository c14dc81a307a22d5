//! TLS as in libpq: modes and certificates.
//!
//! `disable`, `allow`, `prefer` (the default), `require`, `verify-ca`, `verify-full`. A file of root
//! certificates (`sslrootcert`, or ~/.postgresql/root.crt if it exists) applies in every mode;
//! `sslrootcert=system` uses the system's and `verify-full`. UNIX sockets have no TLS.
//!
//! Unlike in libpq, a host's name must be among a certificate's alternative names, its common name does not
//! count; certificate revocation lists are not read.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{PgError, Result};

/// The TLS parameters of a DSN and the environment, as written.
#[derive(Debug, Clone, Default)]
pub(crate) struct TlsRequest {
    pub mode: Option<String>,
    pub root_file: Option<String>,
    pub certificate_file: Option<String>,
    pub key_file: Option<String>,
    /// The folder of a user's own settings, if there is a home.
    pub user_folder: Option<PathBuf>,
}

/// The mode of connections.
#[derive(Clone)]
pub(crate) struct Tls {
    /// The library's modes, tried in order.
    pub attempts: Vec<SslMode>,
    /// The TLS connector for them.
    pub connector: MakeRustlsConnect,
}

impl Tls {
    /// As requested.
    ///
    /// # Errors
    /// An invalid word, a file that cannot be read.
    pub fn new(request: &TlsRequest) -> Result<Tls> {
        let default_mode = match request.root_file.as_deref() {
            Some("system") => "verify-full",
            _ => "prefer",
        };
        let mode = request.mode.as_deref().unwrap_or(default_mode);
        let attempts = match mode {
            "disable" => vec![SslMode::Disable],
            "allow" => vec![SslMode::Disable, SslMode::Require],
            "prefer" => vec![SslMode::Prefer, SslMode::Disable],
            "require" | "verify-ca" | "verify-full" => vec![SslMode::Require],
            other => {
                return Err(PgError::usage(format!("sslmode={other}"))
                    .remedy("disable, allow, prefer, require, verify-ca or verify-full"));
            }
        };
        let authorities = match mode {
            "disable" => None,
            _ => authorities(request, mode)?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Verifier {
            authorities,
            checks_name: mode == "verify-full",
            algorithms: provider.signature_verification_algorithms,
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(PgError::new)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = match identity(request, mode)? {
            None => config.with_no_client_auth(),
            Some((chain, key)) => config
                .with_client_auth_cert(chain, key)
                .map_err(|error| PgError::new(format!("sslcert, sslkey: {error}")))?,
        };
        Ok(Tls { attempts, connector: MakeRustlsConnect::new(config) })
    }
}

/// A named file, or the user's own if it exists.
fn file(named: Option<&String>, folder: Option<&PathBuf>, own: &str) -> Option<PathBuf> {
    let own = || folder.map(|folder| folder.join(own)).filter(|file| file.exists());
    named.map(PathBuf::from).or_else(own)
}

fn unreadable(what: &str, file: &Path, cause: impl std::fmt::Display) -> PgError {
    PgError::new(format!("{what}={}: {cause}", file.display()))
        .remedy("it must be readable, and hold what its name says in PEM form")
}

fn certificates(what: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(unreadable(what, file, "no certificate in it")),
        Err(error) => Err(unreadable(what, file, error)),
    }
}

/// The trusted certificates; `None` if none are needed.
fn authorities(request: &TlsRequest, mode: &str) -> Result<Option<Authorities>> {
    if request.root_file.as_deref() == Some("system") {
        if mode != "verify-full" {
            return Err(PgError::usage(format!("sslrootcert=system with sslmode={mode}")).remedy(
                "sslmode=verify-full: anybody can have a certificate of those authorities",
            ));
        }
        let found = rustls_native_certs::load_native_certs();
        if found.certs.is_empty() {
            return Err(PgError::new("sslrootcert=system: the system has no certificates")
                .remedy("install ca-certificates, or sslrootcert=FILE"));
        }
        return Ok(Some(Authorities::new(found.certs)));
    }
    let file = file(request.root_file.as_ref(), request.user_folder.as_ref(), "root.crt");
    match file {
        Some(file) => Ok(Some(Authorities::new(certificates("sslrootcert", &file)?))),
        None if mode.starts_with("verify") => {
            Err(PgError::usage(format!("sslmode={mode} without an authority's certificate"))
                .remedy("sslrootcert=FILE, ~/.postgresql/root.crt, or sslrootcert=system"))
        }
        None => Ok(None),
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// This client's certificate, if it has one.
fn identity(request: &TlsRequest, mode: &str) -> Result<Option<Identity>> {
    let folder = request.user_folder.as_ref();
    let certificate = file(request.certificate_file.as_ref(), folder, "postgresql.crt");
    let Some(certificate) = certificate.filter(|_| mode != "disable") else { return Ok(None) };
    let Some(key) = file(request.key_file.as_ref(), folder, "postgresql.key") else {
        let cause = format!("sslcert={} without its key", certificate.display());
        return Err(PgError::usage(cause).remedy("sslkey=FILE, or ~/.postgresql/postgresql.key"));
    };
    let metadata = key.metadata().map_err(|error| unreadable("sslkey", &key, error))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(PgError::new(format!("sslkey={}: others may read it", key.display()))
            .remedy(format!("chmod 600 {}", key.display())));
    }
    let chain = certificates("sslcert", &certificate)?;
    let key =
        PrivateKeyDer::from_pem_file(&key).map_err(|error| unreadable("sslkey", &key, error))?;
    Ok(Some((chain, key)))
}

#[derive(Debug)]
struct Authorities {
    store: RootCertStore,
    certificates: Vec<CertificateDer<'static>>,
}

impl Authorities {
    fn new(certificates: Vec<CertificateDer<'static>>) -> Authorities {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(certificates.iter().cloned());
        Authorities { store, certificates }
    }
}

#[derive(Debug)]
struct Verifier {
    authorities: Option<Authorities>,
    checks_name: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        let Some(Authorities { store, certificates }) = &self.authorities else {
            return Ok(ServerCertVerified::assertion());
        };
        let parsed = ParsedCertificate::try_from(certificate)?;
        let signed = verify_server_cert_signed_by_trust_anchor(
            &parsed, store, intermediates, now, self.algorithms.all,
        );
        // A server that vouches for itself, as PostgreSQL's documentation makes them: known byte for byte, and
        // its dates are checked before this is found.
        let is_own = || certificates.iter().any(|known| known == certificate);
        match signed {
            Err(error) if is_authority(&error) && is_own() => {}
            signed => signed?,
        }
        if self.checks_name {
            verify_server_name(&parsed, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Whether it was refused only because it may sign others, and for nothing that is checked before.
fn is_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(cause)) = error else { return false };
    matches!(cause.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn with(mode: &str, root: &str) -> Result<Tls> {
        let set = |text: &str| (!text.is_empty()).then(|| text.to_string());
        Tls::new(&TlsRequest { mode: set(mode), root_file: set(root), ..TlsRequest::default() })
    }

    #[test]
    fn modes_are_tried_as_libpq_tries_them() {
        let attempts = |mode| with(mode, "").unwrap().attempts;
        assert_eq!(attempts(""), [SslMode::Prefer, SslMode::Disable]);
        assert_eq!(attempts("allow"), [SslMode::Disable, SslMode::Require]);
        assert_eq!(attempts("require"), [SslMode::Require]);
        assert_eq!(attempts("disable"), [SslMode::Disable]);
    }

    #[test]
    fn what_would_be_less_safe_than_it_says_is_refused() {
        let refused = |mode, root| with(mode, root).err().unwrap();
        assert!(refused("verify-full", "").remedy.contains("root.crt"));
        assert!(refused("verify-ca", "").remedy.contains("sslrootcert"));
        assert!(refused("require", "system").remedy.contains("verify-full"));
        assert!(refused("verify-full", "/no/such/file").cause.contains("/no/such/file"));
        assert!(refused("maybe", "").remedy.contains("verify-ca"));
    }
}
