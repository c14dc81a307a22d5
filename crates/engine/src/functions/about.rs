//! What a session and its values are: `version()`, `typeof(x)`, `current_setting('..')`.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::types::name_of;

/// The functions.
pub fn functions() -> impl Iterator<Item = ScalarUDF> {
    let of = |(name, about, arguments, volatility)| {
        let signature = match arguments {
            0 => Signature::nullary(volatility),
            arguments => Signature::any(arguments, volatility),
        };
        ScalarUDF::from(Tells { name, about, signature })
    };
    [
        ("version", About::Version, 0, Volatility::Immutable),
        ("typeof", About::Type, 1, Volatility::Immutable),
        ("pg_typeof", About::Type, 1, Volatility::Immutable),
        ("current_user", About::User, 0, Volatility::Stable),
        ("session_user", About::User, 0, Volatility::Stable),
        ("current_setting", About::Setting, 1, Volatility::Stable),
    ]
    .into_iter()
    .map(of)
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum About {
    Version,
    Type,
    Setting,
    User,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Tells {
    name: &'static str,
    about: About,
    signature: Signature,
}

impl ScalarUDFImpl for Tells {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let text = match self.about {
            About::Version => concat!("Headrace ", env!("CARGO_PKG_VERSION")).to_string(),
            About::Type => match args.arg_fields.first() {
                Some(field) => name_of(field.data_type()),
                None => return plan_err!("{}() of nothing", self.name),
            },
            About::Setting => setting(&args)?,
            About::User => user(),
        };
        Ok(ColumnarValue::Scalar(ScalarValue::from(text)))
    }
}

/// Whoever runs the program, as the system calls him: a session has no users of its own.
fn user() -> String {
    let named = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    named.filter(|name| !name.is_empty()).unwrap_or_else(|| "headrace".to_string())
}

/// A setting by its name, with or without the part before its point.
fn setting(args: &ScalarFunctionArgs) -> Result<String> {
    let name = match args.args.first() {
        Some(ColumnarValue::Scalar(name)) => name.try_as_str().flatten(),
        _ => None,
    };
    let Some(name) = name else { return exec_err!("current_setting() takes one name, a constant") };
    let lower = match name.to_lowercase().as_str() {
        "timezone" => "datafusion.execution.time_zone".to_string(),
        "search_path" => return Ok("public".to_string()),
        "server_version" => return Ok(env!("CARGO_PKG_VERSION").to_string()),
        other => other.to_string(),
    };
    let entries = args.config_options.entries();
    let found = entries.iter().find(|entry| {
        entry.key == lower || entry.key.strip_prefix("headrace.") == Some(lower.as_str())
    });
    match found {
        Some(entry) => Ok(entry.value.clone().unwrap_or_default()),
        None => exec_err!("there is no setting {name}\nhint: SHOW ALL lists them"),
    }
}
