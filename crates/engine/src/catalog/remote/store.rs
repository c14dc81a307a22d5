//! A client for each bucket, with the credentials of the environment, and one for all web servers.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::http::HttpBuilder;
use object_store::{ClientConfigKey, ObjectStore, path};
use parking_lot::Mutex;

use super::address::{Address, shown};
use super::network::{CONNECT_TIMEOUT, Shared, Watching, retries, web_client};
use super::profile::{Profile, is_instance};
use super::refusal::Refusal;
use crate::catalog::refused;

/// Clients of buckets, by their names: connections and credentials are kept.
static BUCKETS: Mutex<Option<HashMap<String, Arc<dyn ObjectStore>>>> = Mutex::new(None);

/// An object, and who has it.
#[derive(Clone, Debug)]
pub struct Object {
    /// Who has it.
    pub store: Arc<dyn ObjectStore>,
    /// Its name there; of a web server's file, whose address is the client's, an empty one.
    pub location: path::Path,
}

impl Object {
    /// What an address names; nobody is asked yet.
    ///
    /// # Errors
    /// Credentials that are not there, and names that there cannot be.
    pub fn of(address: &Address) -> Result<Object> {
        match address {
            Address::S3 { bucket, key } => {
                let place = format!("s3://{bucket}/{key}");
                let location = path::Path::parse(key).map_err(|error| {
                    refused(Path::new(&place), error, "no part of a name may be empty, . or ..")
                })?;
                Ok(Object { store: bucket_client(bucket, &place)?, location })
            }
            Address::Web { url } => {
                let fail = |error| failure(&shown(url), &error);
                let builder = HttpBuilder::new().with_url(url).with_retry(retries());
                let client = web_client().map_err(fail)?;
                let store = builder.with_http_connector(Shared(client)).build().map_err(fail)?;
                Ok(Object { store: Arc::new(store), location: path::Path::default() })
            }
        }
    }
}

/// What the library says, with the place and what helps.
pub fn failure(place: &Path, error: &object_store::Error) -> DataFusionError {
    let refusal = Refusal::of(error);
    refused(place, refusal.cause, refusal.remedy)
}

fn bucket_client(bucket: &str, place: &str) -> Result<Arc<dyn ObjectStore>> {
    let mut buckets = BUCKETS.lock();
    let buckets = buckets.get_or_insert_default();
    if let Some(known) = buckets.get(bucket) {
        return Ok(Arc::clone(known));
    }
    let fail = |cause: &str, remedy: &str| refused(Path::new(place), cause, remedy);
    let builder = configured(fail)?.with_bucket_name(bucket).with_retry(retries());
    let store = builder.with_http_connector(Watching).build();
    let store: Arc<dyn ObjectStore> = Arc::new(store.map_err(|e| failure(Path::new(place), &e))?);
    buckets.insert(bucket.to_string(), Arc::clone(&store));
    Ok(store)
}

/// The environment's settings, and what a profile says where it is silent.
fn configured(fail: impl Fn(&str, &str) -> DataFusionError) -> Result<AmazonS3Builder> {
    use AmazonS3ConfigKey as Key;
    let mut builder = AmazonS3Builder::from_env();
    let has = |builder: &AmazonS3Builder, key: &Key| builder.get_config_value(key).is_some();
    let profile = Profile::current();
    for (key, value) in [(Key::Region, profile.region), (Key::Endpoint, profile.endpoint)] {
        if let Some(value) = value.filter(|_| !has(&builder, &key)) {
            builder = builder.with_config(key, value);
        }
    }
    let is_anonymous = is_true(&builder, &Key::SkipSignature);
    let asks_elsewhere = [
        Key::WebIdentityTokenFile,
        Key::ContainerCredentialsRelativeUri,
        Key::ContainerCredentialsFullUri,
    ];
    if !is_anonymous && !has(&builder, &Key::AccessKeyId) {
        builder = match profile.keys {
            Some((key, secret, token)) => {
                let builder = builder.with_access_key_id(key).with_secret_access_key(secret);
                match token {
                    Some(token) => builder.with_token(token),
                    None => builder,
                }
            }
            None if is_instance() || asks_elsewhere.iter().any(|key| has(&builder, key)) => builder,
            None => return Err(fail("there are no credentials to ask with", CREDENTIALS)),
        };
    }
    let allow_http = Key::Client(ClientConfigKey::AllowHttp);
    let endpoint = builder.get_config_value(&Key::S3Endpoint);
    let endpoint = endpoint.or_else(|| builder.get_config_value(&Key::Endpoint));
    let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    if is_plain && !is_true(&builder, &allow_http) {
        return Err(fail("its endpoint is no secure one", "AWS_ALLOW_HTTP=true allows it"));
    }
    for (key, value) in [
        (ClientConfigKey::ConnectTimeout, format!("{} s", CONNECT_TIMEOUT.as_secs())),
        // An answer may take as long as it likes while it goes on.
        (ClientConfigKey::Timeout, "365 days".to_string()),
    ] {
        builder = builder.with_config(Key::Client(key), value);
    }
    Ok(builder)
}

const CREDENTIALS: &str = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile of ~/.aws/credentials, say who \
                           asks; AWS_SKIP_SIGNATURE=true asks as nobody";

fn is_true(builder: &AmazonS3Builder, key: &AmazonS3ConfigKey) -> bool {
    let value = builder.get_config_value(key).unwrap_or_default().to_ascii_lowercase();
    matches!(value.as_str(), "true" | "1" | "yes" | "on" | "y")
}
