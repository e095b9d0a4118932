//! Reads the messages of clients, one on each line.
//!
//! A request that cannot be read is answered with an error if its id is found; everything else that is not a message is
//! ignored.

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, CustomRequest, ErrorCode,
    ErrorData, GetExtensions, GetMeta, InitializeRequestParams, JsonRpcMessage, MetaObject, RequestId,
    RequestMetaObject, ServerJsonRpcMessage,
};
use serde_json::{Map, Value};

use super::parse::parse;
use super::task_call::TaskCall;
use crate::mcp::bounds::LONGEST_ID;
use crate::mcp::line::{BYTE_ORDER_MARK, Skipped};
use crate::mcp::scan::scan;

/// The JSON-RPC code for a request that is not taken now.
const TOO_MANY: ErrorCode = ErrorCode(-32000);

/// The content of a line.
#[derive(Debug)]
pub(crate) enum Incoming {
    Message(ClientJsonRpcMessage),
    /// An invalid message, and the answer to it.
    Answer(ServerJsonRpcMessage),
    /// Nothing that could be answered; the text says why.
    Nothing(String),
}

/// Reads one line.
pub(crate) fn read_line(line: &[u8]) -> Incoming {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line).trim_ascii();
    match line.first() {
        None => return Incoming::Nothing("blank line".into()),
        Some(b'{' | b'[') => {}
        Some(_) => return Incoming::Nothing("not JSON".into()),
    }
    match parse(line) {
        Ok(Value::Object(object)) => read_object(object),
        Ok(_) => refuse(
            None,
            ErrorData::invalid_request("batches are not supported: send one message per line", None),
        ),
        Err(error) => {
            let seen = scan(line, line);
            match seen.id {
                Some(id) if !seen.is_reply => refuse(
                    Some(id),
                    ErrorData::parse_error(format!("cannot read the message: {error}"), None),
                ),
                _ => Incoming::Nothing(format!("unreadable: {error}")),
            }
        }
    }
}

/// Reads one line while no more requests may be under way.
pub(super) fn read_beyond_limits(line: &[u8]) -> Incoming {
    let seen = scan(line, &[]);
    match seen.id {
        Some(id) if !seen.is_reply => {
            let reason = "too many requests are under way: wait for their answers";
            refuse(Some(id), ErrorData::new(TOO_MANY, reason, None))
        }
        _ => read_line(line),
    }
}

/// Answers a line that was too long, if its id is in the part that was kept.
pub(crate) fn read_skipped(skipped: &Skipped, limit: usize) -> Incoming {
    let seen = scan(&skipped.head, &skipped.tail);
    let reason = format!(
        "message of {} bytes is longer than the limit of {limit} bytes ({} MiB)",
        skipped.length,
        limit >> 20
    );
    match seen.id {
        Some(id) if !seen.is_reply => refuse(Some(id), ErrorData::invalid_request(reason, None)),
        _ => Incoming::Nothing(reason),
    }
}

fn refuse(id: Option<RequestId>, error: ErrorData) -> Incoming {
    Incoming::Answer(ServerJsonRpcMessage::error(error, id))
}

fn read_object(mut object: Map<String, Value>) -> Incoming {
    let id = match object.get("id") {
        None => None,
        Some(Value::String(id)) if id.len() > LONGEST_ID => {
            let reason = format!("'id' must have at most {LONGEST_ID} bytes");
            return refuse(None, ErrorData::invalid_request(reason, None));
        }
        Some(id) => match serde_json::from_value::<RequestId>(id.clone()) {
            Ok(id) => Some(id),
            Err(_) if object.contains_key("method") => {
                return refuse(None, ErrorData::invalid_request("'id' must be a string or an integer", None));
            }
            Err(_) => return Incoming::Nothing("reply without a usable id".into()),
        },
    };
    if object.get("params").is_some_and(Value::is_null) {
        object.shift_remove("params");
    }
    let is_reply = object.contains_key("result") || object.contains_key("error");
    // An invalid answer is not answered: the error might come back as another invalid answer.
    let problem = match object.get("method") {
        _ if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") => {
            Some("'jsonrpc' must be \"2.0\"")
        }
        None if is_reply => None,
        Some(Value::String(_)) if !is_reply => None,
        Some(Value::String(_)) => Some("a request must not have a 'result' or an 'error'"),
        _ => Some("'method' must be a string"),
    };
    match (problem, id) {
        (None, Some(id)) if !is_reply => read_request(object, id),
        (None, _) => match serde_json::from_value(Value::Object(object)) {
            Ok(message) => Incoming::Message(message),
            Err(error) => Incoming::Nothing(format!("malformed notification or reply: {error}")),
        },
        (Some(problem), _) if is_reply && !object.contains_key("method") => Incoming::Nothing(problem.into()),
        (Some(problem), id) => refuse(id, ErrorData::invalid_request(problem, None)),
    }
}

fn read_request(mut object: Map<String, Value>, id: RequestId) -> Incoming {
    let method = object.get("method").and_then(Value::as_str).unwrap_or_default();
    match object.get("params") {
        None | Some(Value::Object(_)) => {}
        Some(_) => {
            return refuse(Some(id), ErrorData::invalid_params("'params' must be an object", None));
        }
    }
    match method {
        "tools/call" => {
            let params = match object.remove("params") {
                Some(Value::Object(params)) => params,
                _ => Map::new(),
            };
            read_tool_call(params, id)
        }
        "initialize" => {
            // `rmcp` would take invalid parameters for an unknown method, and report a missing `_meta`.
            let params = object.get("params").cloned().unwrap_or_default();
            match serde_json::from_value::<InitializeRequestParams>(params) {
                Ok(_) => typed(object, id),
                Err(error) => {
                    let reason = format!("malformed params of initialize: {error}");
                    refuse(Some(id), ErrorData::invalid_params(reason, None))
                }
            }
        }
        _ => typed(object, id),
    }
}

fn typed(object: Map<String, Value>, id: RequestId) -> Incoming {
    match serde_json::from_value(Value::Object(object)) {
        Ok(message) => Incoming::Message(message),
        Err(error) => {
            refuse(Some(id), ErrorData::invalid_request(format!("malformed request: {error}"), None))
        }
    }
}

/// Builds the call by hand: `rmcp` copies a long text several times before it knows the kind of message.
fn read_tool_call(mut params: Map<String, Value>, id: RequestId) -> Incoming {
    let refuse = |reason: String| {
        let reason = format!("malformed params of tools/call: {reason}");
        refuse(Some(id.clone()), ErrorData::invalid_params(reason, None))
    };
    let meta = match params.shift_remove("_meta") {
        Some(Value::Object(meta)) => Some(RequestMetaObject(MetaObject(meta))),
        Some(Value::Null) | None => None,
        Some(_) => return refuse("'_meta' must be an object".into()),
    };
    let task = TaskCall::take(&mut params);
    let named = params.get("name").is_some_and(Value::is_string);
    let odd_arguments = params.get("arguments").is_some_and(|it| !it.is_object() && !it.is_null());
    let mut request = if named && odd_arguments {
        // The tool is known, so the error is in its result.
        ClientRequest::CustomRequest(CustomRequest::new("tools/call", Some(Value::Object(params))))
    } else {
        match serde_json::from_value::<CallToolRequestParams>(Value::Object(params)) {
            Ok(call) => ClientRequest::CallToolRequest(CallToolRequest::new(call)),
            Err(error) => return refuse(error.to_string()),
        }
    };
    if let Some(meta) = meta {
        *request.get_meta_mut() = meta;
    }
    if let Some(task) = task {
        request.extensions_mut().insert(task);
    }
    Incoming::Message(JsonRpcMessage::request(request, id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::line::KEPT_BYTES;

    fn answer(line: impl AsRef<[u8]>) -> String {
        match read_line(line.as_ref()) {
            Incoming::Answer(answer) => serde_json::to_string(&answer).unwrap(),
            other => panic!("not answered: {other:?}"),
        }
    }

    fn request(line: impl AsRef<[u8]>) -> ClientRequest {
        match read_line(line.as_ref()) {
            Incoming::Message(JsonRpcMessage::Request(request)) => request.request,
            other => panic!("no request: {other:?}"),
        }
    }

    fn is_ignored(line: impl AsRef<[u8]>) -> bool {
        matches!(read_line(line.as_ref()), Incoming::Nothing(_))
    }

    fn error(code: i32, message: &str, id: &str) -> String {
        let id = if id.is_empty() { String::new() } else { format!(r#""id":{id},"#) };
        format!(r#"{{"jsonrpc":"2.0",{id}"error":{{"code":{code},"message":"{message}"}}}}"#)
    }

    #[test]
    fn lines_that_are_not_json_are_ignored() {
        for line in [
            &b""[..],
            b" \t",
            b"\r",
            b"hello",
            b"\0\0",
            b"\xff\xfe",
            b"5",
            b"null",
            b"\"a\"",
            b"{",
            b"{nope}",
        ] {
            assert!(is_ignored(line), "{line:?}");
        }
    }

    #[test]
    fn json_that_is_not_a_message_is_answered() {
        assert_eq!(answer("[]"), error(-32600, "batches are not supported: send one message per line", ""));
        assert_eq!(answer("{}"), error(-32600, "'jsonrpc' must be \\\"2.0\\\"", ""));
        assert_eq!(
            answer(r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#),
            error(-32600, "'jsonrpc' must be \\\"2.0\\\"", "1")
        );
        assert_eq!(answer(r#"{"jsonrpc":"2.0","id":1}"#), error(-32600, "'method' must be a string", "1"));
        assert_eq!(
            answer(r#"{"jsonrpc":"2.0","id":1,"method":2}"#),
            error(-32600, "'method' must be a string", "1")
        );
        for id in ["null", "1.5", "[]", "true"] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            assert_eq!(answer(line), error(-32600, "'id' must be a string or an integer", ""));
        }
        let params = r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":[1]}"#;
        assert_eq!(answer(params), error(-32602, "'params' must be an object", r#""a""#));
    }

    #[test]
    fn an_unreadable_request_is_answered_by_its_id() {
        let answered =
            answer(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"a\":\"\xff\"}}");
        assert!(
            answered.starts_with(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32700,"message":"cannot read"#),
            "{answered}"
        );
        let answered = answer(r#"{"params":{"a":"\ud83d"},"jsonrpc":"2.0","id":8,"method":"tools/call"}"#);
        assert!(answered.contains(r#""id":8,"error":{"code":-32700"#), "{answered}");
        let deep = format!(r#"{{"id":9,"params":{}{}}}"#, "[".repeat(500), "]".repeat(500));
        assert!(answer(deep).contains(r#""id":9,"error":{"code":-32700"#));
        let cut = r#"{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"run_python"#;
        assert!(answer(cut).contains(r#""id":10,"error":{"code":-32700"#));
    }

    #[test]
    fn beyond_the_limits_requests_are_refused_and_the_rest_is_read() {
        let read = |line: &str| read_beyond_limits(line.as_bytes());
        let Incoming::Answer(refused) = read(r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#) else { panic!() };
        assert!(serde_json::to_string(&refused).unwrap().contains(r#""id":5,"error":{"code":-32000"#));
        for line in [
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
        ] {
            assert!(matches!(read(line), Incoming::Message(_)), "{line}");
        }
    }

    #[test]
    fn a_long_id_is_not_repeated() {
        let line = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(LONGEST_ID + 1));
        assert_eq!(answer(line), error(-32600, "'id' must have at most 1024 bytes", ""));
    }

    #[test]
    fn millions_of_values_are_refused_by_the_id() {
        let line =
            format!(r#"{{"id":6,"method":"tools/call","params":{{"a":[{}0]}}}}"#, "0,".repeat(1 << 20));
        assert!(answer(line).contains(r#""id":6,"error":{"code":-32700"#));
    }

    #[test]
    fn an_answer_is_never_answered() {
        assert!(is_ignored(br#"{"jsonrpc":"2.0","id":7,"result":"\xff"#));
        assert!(is_ignored(r#"{"jsonrpc":"2.0","id":1.5,"result":{}}"#));
        assert!(is_ignored(r#"{"jsonrpc":"1.0","error":{}}"#));
        assert!(matches!(
            read_line(br#"{"jsonrpc":"2.0","id":7,"result":{}}"#),
            Incoming::Message(JsonRpcMessage::Response(_))
        ));
    }

    #[test]
    fn malformed_parameters_are_named() {
        let initialize = answer(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#);
        assert_eq!(
            initialize,
            error(-32602, "malformed params of initialize: missing field `protocolVersion`", "1")
        );
        for (params, reason) in [
            ("{}", "missing field `name`"),
            (r#"{"name":1}"#, "invalid type: number, expected a string"),
            (r#"{"name":"run_python","_meta":1}"#, "'_meta' must be an object"),
        ] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
            assert_eq!(
                answer(line),
                error(-32602, &format!("malformed params of tools/call: {reason}"), "1")
            );
        }
        let none = answer(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#);
        assert_eq!(none, error(-32602, "malformed params of tools/call: missing field `name`", "1"));
    }

    #[test]
    fn a_tool_call_is_read_with_its_arguments_and_its_metadata() {
        let line = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":5},
            "name":"run_python","arguments":{"code":"1","n":123456789012345678901234567890}}}"#
            .replace('\n', "");
        let request = request(line);
        assert_eq!(request.get_meta().get_progress_token().map(|token| token.0), Some(RequestId::Number(5)));
        let ClientRequest::CallToolRequest(call) = request else { panic!("{request:?}") };
        assert_eq!(call.params.name, "run_python");
        let arguments = serde_json::to_string(&call.params.arguments).unwrap();
        assert_eq!(arguments, r#"{"code":"1","n":123456789012345678901234567890}"#);
    }

    #[test]
    fn invalid_arguments_are_left_to_the_tool() {
        for arguments in ["1", "[]", r#""code""#] {
            let line = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"a","arguments":{arguments}}}}}"#
            );
            assert!(matches!(request(line), ClientRequest::CustomRequest(_)), "{arguments}");
        }
        let null = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":null}}"#;
        assert!(matches!(request(null), ClientRequest::CallToolRequest(_)));
    }

    #[test]
    fn other_methods_are_read_with_and_without_parameters() {
        for params in ["", r#","params":null"#, r#","params":{}"#] {
            let line = |method| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"{params}}}"#);
            assert!(matches!(request(line("ping")), ClientRequest::PingRequest(_)), "{params}");
            assert!(matches!(request(line("tools/list")), ClientRequest::ListToolsRequest(_)), "{params}");
            assert!(matches!(request(line("a/b")), ClientRequest::CustomRequest(_)), "{params}");
        }
        let with_mark = b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r";
        assert!(matches!(request(with_mark), ClientRequest::PingRequest(_)));
        assert!(matches!(
            read_line(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
            Incoming::Message(JsonRpcMessage::Notification(_))
        ));
    }

    #[test]
    fn a_line_that_was_too_long_is_answered_by_either_end() {
        let skipped =
            |head: &str, tail: &str| Skipped { head: head.into(), tail: tail.into(), length: 70 << 20 };
        let reason = "message of 73400320 bytes is longer than the limit of 67108864 bytes (64 MiB)";
        for (head, tail) in [
            (r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"code":"xxx"#, "xxx"),
            (r#"{"jsonrpc":"2.0","method":"tools/call","params":{"code":"xxx"#, r#"xxx"},"id":3}"#),
        ] {
            let Incoming::Answer(answer) = read_skipped(&skipped(head, tail), 64 << 20) else {
                panic!("{head}")
            };
            assert_eq!(serde_json::to_string(&answer).unwrap(), error(-32600, reason, "3"));
        }
        for (head, tail) in
            [("xxx", "xxx"), (r#"{"id":3,"result":"xxx"#, "xxx"), (r#"{"result":"xxx"#, r#"","id":3}"#)]
        {
            assert!(matches!(read_skipped(&skipped(head, tail), 64 << 20), Incoming::Nothing(_)), "{head}");
        }
    }

    #[test]
    fn the_search_for_an_id_at_the_end_is_fast() {
        let mut line = br#"{"params":[x"#.to_vec();
        line.extend(br#",{"id":1}"#.repeat(200_000));
        line.extend(br#"],"id":4,"method":"a"}"#);
        assert!(line.len() > 1000 * KEPT_BYTES);
        assert!(answer(line).contains(r#""id":4"#));
    }

    #[test]
    fn no_line_makes_the_reader_panic_or_answer_an_answer() {
        const LINES: [&[u8]; 4] = [
            br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","arguments":{"code":"\ud83d\ude00"}}}"#,
            br#"{"jsonrpc":"2.0","id":"x","result":{"content":[{"type":"text","text":"a\"b"}]}}"#,
            br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":null}}"#,
            br#"{"params":{"_meta":{"progressToken":1.5e3}},"method":"initialize","id":-1,"jsonrpc":"2.0"}"#,
        ];
        // A fixed seed: the same lines every time.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        for round in 0..20_000 {
            let mut line = LINES[round % LINES.len()].to_vec();
            for _ in 0..=random(3) {
                let at = random(line.len());
                match random(4) {
                    0 => line[at] = random(256) as u8,
                    1 => line.truncate(at.max(1)),
                    2 => drop(line.remove(at)),
                    _ => line.insert(at, br#"{}[],:"\0"#[random(9)]),
                }
                if line.is_empty() {
                    line.push(b'{');
                }
            }
            let skipped = Skipped { head: line.clone(), tail: line.clone(), length: line.len() as u64 };
            read_skipped(&skipped, 1);
            if let Incoming::Answer(_) = read_line(&line) {
                let reply = serde_json::from_slice::<Map<String, Value>>(&line)
                    .is_ok_and(|object| object.contains_key("result") && !object.contains_key("method"));
                assert!(!reply, "{}", String::from_utf8_lossy(&line));
            }
        }
    }
}
