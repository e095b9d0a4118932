//! Reads the arguments of `run_python`. The error messages are part of the contract.

use std::time::Duration;

use serde_json::{Map, Number, Value};

use crate::session::{Clamped, RunRequest};
use crate::settings::Origin;

/// Names become labels; longer ones are a mistake.
const LONGEST_SESSION_NAME: usize = 64;

/// Names of servers in one call.
const MOST_SERVERS: usize = 1_000;

/// How long a call may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timeouts {
    pub(super) default: Duration,
    pub(super) max: Duration,
    /// Where `max` comes from.
    pub(super) max_from: Origin,
}

/// Returns the request, or what is wrong with the arguments.
pub(super) fn parse_arguments(
    mut arguments: Map<String, Value>,
    timeouts: Timeouts,
) -> Result<RunRequest, String> {
    // Models write `null` for an argument that they leave out.
    arguments.retain(|_, value| !value.is_null());
    let (code, servers) = (code(arguments.remove("code"))?, servers(arguments.remove("servers"))?);
    let (timeout, clamped) = timeout(arguments.get("timeout"), timeouts)?;
    Ok(RunRequest { code, servers, timeout, session: session(arguments.remove("session"))?, clamped })
}

fn code(value: Option<Value>) -> Result<String, String> {
    match value {
        None => Err("Missing 'code' argument".into()),
        Some(Value::String(code)) if code.trim().is_empty() => Err("Missing 'code' argument".into()),
        Some(Value::String(code)) => Ok(RunRequest::without_byte_order_mark(code)),
        Some(_) => Err("'code' must be a string".into()),
    }
}

fn servers(value: Option<Value>) -> Result<Vec<String>, String> {
    let items = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err("'servers' must be a list".into()),
    };
    if items.len() > MOST_SERVERS {
        return Err(format!("'servers' must have at most {MOST_SERVERS} names"));
    }
    let mut names: Vec<String> = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Value::String(name) if names.contains(&name) => {}
            Value::String(name) => names.push(name),
            _ => return Err("'servers' must be a list of strings".into()),
        }
    }
    Ok(names)
}

fn timeout(value: Option<&Value>, timeouts: Timeouts) -> Result<(Duration, Option<Clamped>), String> {
    let seconds = match value {
        None => return Ok((timeouts.default, None)),
        Some(Value::Number(number)) => whole_seconds(number),
        Some(_) => None,
    };
    let seconds = seconds.ok_or("'timeout' must be an integer")?;
    let requested = Duration::from_secs(seconds);
    let clamped = Clamped { requested, limit_from: timeouts.max_from };
    let used = Duration::from_secs(seconds.clamp(1, timeouts.max.as_secs()));
    Ok((used, Some(clamped).filter(|_| requested > timeouts.max)))
}

/// Some clients write every number with a fraction: `30.0` is 30.
fn whole_seconds(number: &Number) -> Option<u64> {
    match number.as_i64() {
        Some(seconds) => Some(u64::try_from(seconds).unwrap_or(0)),
        // The cast saturates, as the timeout is clamped.
        None => number.as_f64().filter(|seconds| seconds.fract() == 0.0).map(|seconds| seconds as u64),
    }
}

fn session(value: Option<Value>) -> Result<String, String> {
    match value {
        None => Ok(RunRequest::DEFAULT_SESSION.into()),
        Some(Value::String(name)) if name.is_empty() => Ok(RunRequest::DEFAULT_SESSION.into()),
        Some(Value::String(name)) => {
            if name.chars().count() > LONGEST_SESSION_NAME || name.chars().any(char::is_control) {
                return Err(format!("'session' must be at most {LONGEST_SESSION_NAME} printable characters"));
            }
            Ok(name)
        }
        Some(_) => Err("'session' must be a string".into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TIMEOUTS: Timeouts = Timeouts {
        default: Duration::from_secs(30),
        max: Duration::from_secs(120),
        max_from: Origin::Default,
    };

    fn parse(arguments: Value) -> Result<RunRequest, String> {
        let Value::Object(arguments) = arguments else { panic!("not an object") };
        parse_arguments(arguments, TIMEOUTS)
    }

    fn seconds(timeout: &str) -> Result<u64, String> {
        let text = format!(r#"{{"code":"1","timeout":{timeout}}}"#);
        parse(serde_json::from_str(&text).unwrap()).map(|request| request.timeout.as_secs())
    }

    #[test]
    fn only_code_is_required() {
        let expected = RunRequest {
            code: "1".into(),
            servers: Vec::new(),
            timeout: Duration::from_secs(30),
            session: "main".into(),
            clamped: None,
        };
        assert_eq!(parse(json!({"code": "1"})), Ok(expected.clone()));
        let nulls = json!({"code": "1", "servers": null, "timeout": null, "session": null});
        assert_eq!(parse(nulls), Ok(expected.clone()));
        assert_eq!(parse(json!({"code": "\u{feff}1"})), Ok(expected.clone()));
        assert_eq!(parse(json!({"code": "1", "session": "", "unknown": 1})), Ok(expected));
    }

    #[test]
    fn all_arguments_are_read() {
        let request =
            parse(json!({"code": "1", "servers": ["a", "b", "a"], "timeout": 5, "session": "täst"}));
        let request = request.unwrap();
        assert_eq!(request.servers, ["a", "b"]);
        assert_eq!(request.timeout.as_secs(), 5);
        assert_eq!(request.session, "täst");
    }

    #[test]
    fn a_timeout_out_of_range_is_clamped() {
        for (timeout, expected) in [
            ("1", 1),
            ("120", 120),
            ("0", 1),
            ("-5", 1),
            ("121", 120),
            ("30.0", 30),
            ("3e1", 30),
            ("-1e30", 1),
            ("99999999999999999999999", 120),
        ] {
            assert_eq!(seconds(timeout), Ok(expected), "{timeout}");
        }
        let clamped = |seconds| parse(json!({ "code": "1", "timeout": seconds })).unwrap().clamped;
        assert_eq!(clamped(600).unwrap().requested.as_secs(), 600);
        assert_eq!((clamped(120), clamped(0)), (None, None));
    }

    #[test]
    fn wrong_arguments_get_the_messages_of_the_contract() {
        let cases = [
            (json!({}), "Missing 'code' argument"),
            (json!({"code": null}), "Missing 'code' argument"),
            (json!({"code": " \n"}), "Missing 'code' argument"),
            (json!({"code": 1}), "'code' must be a string"),
            (json!({"code": "1", "servers": "github"}), "'servers' must be a list"),
            (json!({"code": "1", "servers": {}}), "'servers' must be a list"),
            (json!({"code": "1", "servers": [1]}), "'servers' must be a list of strings"),
            (json!({"code": "1", "timeout": "30"}), "'timeout' must be an integer"),
            (json!({"code": "1", "timeout": 1.5}), "'timeout' must be an integer"),
            (json!({"code": "1", "timeout": true}), "'timeout' must be an integer"),
            (json!({"code": "1", "session": 1}), "'session' must be a string"),
            (
                json!({"code": "1", "session": "a".repeat(65)}),
                "'session' must be at most 64 printable characters",
            ),
            (json!({"code": "1", "session": "a\nb"}), "'session' must be at most 64 printable characters"),
        ];
        for (arguments, message) in cases {
            assert_eq!(parse(arguments.clone()), Err(message.to_owned()), "{arguments}");
        }
    }
}
