//! Writes a result in the three output modes. Pure functions.

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use super::content::{Content, link};
use super::{Payload, outputs};
use crate::session::{is_shown, remark};
use crate::settings::OutputMode;

/// Returns the payload as a tool result.
pub(super) fn render(payload: &Payload, mode: OutputMode) -> CallToolResult {
    let (language, text, fields) = formatted(payload, mode);
    let mut content = if language.is_empty() {
        compact_content(payload)
    } else {
        // Output cannot end the fence: both formats write a line of it as a quoted string in a longer line.
        let mut content = Content::starting_with(vec![format!("```{language}\n{text}\n```")]);
        payload.displays.iter().for_each(|display| content.add(display));
        content.finish()
    };
    content.extend(payload.displays.iter().filter_map(link));
    content.extend(outputs::links(&payload.artifacts));
    let mut result = match payload.is_error() {
        true => CallToolResult::error(content),
        false => CallToolResult::success(content),
    };
    result.structured_content = Some(fields);
    result
}

/// Returns the payload for a terminal or a pipe: the text of a result without its fence.
pub fn render_plain(payload: &Payload, mode: OutputMode) -> String {
    formatted(payload, mode).1
}

/// Returns the language of the fence, the text inside of it, and the structured fields.
fn formatted(payload: &Payload, mode: OutputMode) -> (&'static str, String, Value) {
    if mode == OutputMode::Compact {
        return ("", compact_text(payload), compact_fields(payload));
    }
    let full = full_fields(payload);
    match toon_format::encode_default(&full) {
        Ok(toon) if mode == OutputMode::Toon => ("toon", toon, full),
        _ => ("json", full.to_string(), full),
    }
}

fn full_fields(payload: &Payload) -> Value {
    serde_json::to_value(payload)
        .unwrap_or_else(|error| json!({ "status": payload.status, "error": error.to_string() }))
}

fn compact_text(payload: &Payload) -> String {
    let mut parts = lines_before(payload);
    parts.extend_from_slice(&payload.stdout);
    parts.extend(lines_after(payload));
    let is_silent = payload.status != Payload::RUNNING
        && payload.stdout.is_empty()
        && payload.stderr.is_empty()
        && payload.error.is_none()
        && payload.files.is_none()
        && payload.artifacts.is_empty();
    if is_silent && !payload.is_error() {
        parts.push(payload.summary.clone());
    }
    parts.join("\n")
}

/// Returns the text with the pictures between the lines where the code displayed them.
fn compact_content(payload: &Payload) -> Vec<ContentBlock> {
    if payload.displays.is_empty() {
        return vec![ContentBlock::text(compact_text(payload))];
    }
    let mut content = Content::starting_with(lines_before(payload));
    let mut shown = 0;
    for display in &payload.displays {
        let until = display.after_line.clamp(shown, payload.stdout.len());
        content.lines.extend_from_slice(&payload.stdout[shown..until]);
        shown = until;
        content.add(display);
    }
    content.lines.extend_from_slice(&payload.stdout[shown..]);
    content.lines.extend(lines_after(payload));
    content.finish()
}

/// Returns the lines before standard output.
fn lines_before(payload: &Payload) -> Vec<String> {
    let mut parts = Vec::new();
    if payload.status == Payload::RUNNING {
        parts.push(payload.summary.clone());
    }
    if payload.is_error() {
        parts.push(format!("status: {}", payload.status));
        parts.extend(payload.exit_code.map(|code| format!("exit: {code}")));
    }
    parts.extend(payload.notices.iter().map(|notice| remark(notice)));
    parts
}

/// Returns the lines after standard output.
fn lines_after(payload: &Payload) -> Vec<String> {
    let mut parts = Vec::new();
    if !payload.stderr.is_empty() {
        parts.push("stderr:".into());
        parts.extend_from_slice(&payload.stderr);
    }
    let is_new = |error: &&String| !is_shown(error, &payload.stderr.join("\n"));
    parts.extend(payload.error.iter().filter(is_new).map(|error| format!("error: {error}")));
    parts.extend(outputs::lines(payload.files.as_ref(), &payload.artifacts));
    parts
}

/// Returns the fields that are not obvious from a success.
fn compact_fields(payload: &Payload) -> Value {
    let mut fields = rmcp::model::object(full_fields(payload));
    if payload.status == Payload::SUCCESS {
        fields.shift_remove("status");
    }
    if payload.exit_code == Some(0) {
        fields.shift_remove("exitCode");
    }
    if !payload.stdout.is_empty() {
        fields.shift_remove("summary");
    }
    fields.shift_remove("timeoutSeconds");
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::session::{Display, Failure, Form, Picture, RunOutcome, RunRequest, Status, Stream};

    fn stream(text: &str) -> Stream {
        Stream { text: text.into(), total_bytes: text.len() as u64, truncated: false }
    }

    fn picture(number: usize, after_line: usize, size: (usize, usize), data: Option<&[u8]>) -> Display {
        Display {
            uri: format!("codebridge://runs/7/display/{number}"),
            after_line,
            forms: vec![Form { mime: "image/png".into(), bytes: 3 }],
            picture: Some(Picture {
                mime: "image/png".into(),
                bytes: 3,
                size,
                data: data.map(<[u8]>::to_vec),
            }),
        }
    }

    /// Text as it is, a picture as the number of its letters in base64, a link as its address.
    fn content(displays: Vec<Display>, outcome: RunOutcome, mode: OutputMode) -> Vec<String> {
        let result = render(&payload(RunOutcome { displays, ..outcome }), mode);
        let block = |block: &ContentBlock| match block {
            ContentBlock::Text(text) => text.text.clone(),
            ContentBlock::Image(image) => format!("<{} {}>", image.mime_type, image.data.len()),
            ContentBlock::ResourceLink(link) => format!("-> {}", link.uri),
            other => panic!("{other:?}"),
        };
        result.content.iter().map(block).collect()
    }

    #[test]
    fn pictures_stand_where_they_were_displayed() {
        let pictures = vec![picture(1, 0, (1, 1), Some(b"png")), picture(2, 1, (3000, 1), Some(b"png"))];
        let text = [
            "<image/png 4>",
            "a",
            "<image/png 4>",
            "[the picture has 3000x1 pixels; smaller ones cost less]\nb",
        ];
        assert_eq!(content(pictures.clone(), outcome("a\nb\n", ""), OutputMode::Compact), text);
        let only = vec![picture(1, usize::MAX, (1, 1), Some(b"png"))];
        assert_eq!(content(only.clone(), outcome("", ""), OutputMode::Compact), ["<image/png 4>"]);
        assert_eq!(
            content(only, outcome("a\n", "w\n"), OutputMode::Compact),
            ["a", "<image/png 4>", "stderr:\nw"]
        );
        let json = content(pictures, outcome("a\nb\n", ""), OutputMode::Json);
        assert_eq!(json[1..3], ["<image/png 4>", "<image/png 4>"]);
        assert!(
            json[0]
                .contains(r#""displays":[{"mimeTypes":["image/png"],"uri":"codebridge://runs/7/display/1"}"#)
        );
    }

    #[test]
    fn pictures_without_space_are_named_and_linked() {
        let pictures = (1..=6).map(|number| picture(number, 0, (10, 20), None)).collect();
        let shown = content(pictures, outcome("a\n", ""), OutputMode::Compact);
        let lines: Vec<&str> = shown[0].lines().collect();
        assert_eq!(
            lines[0],
            "[image/png, 10x20 pixels, 3 bytes, is not in this result: read codebridge://runs/7/display/1]"
        );
        assert_eq!(lines[4..], ["a", "[2 more pictures are not in this result]"]);
        assert_eq!(shown.len(), 7);
        assert_eq!(shown[6], "-> codebridge://runs/7/display/6");
    }

    #[test]
    fn a_table_costs_the_model_its_text() {
        let table = Display {
            forms: vec![Form { mime: "text/html".into(), bytes: 9 }],
            picture: None,
            ..picture(1, 1, (1, 1), None)
        };
        let shown = content(vec![table], outcome("   a\n0  1\n", ""), OutputMode::Compact);
        assert_eq!(shown, ["   a\n0  1", "-> codebridge://runs/7/display/1"]);
    }

    fn outcome(stdout: &str, stderr: &str) -> RunOutcome {
        RunOutcome {
            run_id: 7,
            status: Status::Success,
            failure: None,
            exit_code: Some(0),
            stdout: stream(stdout),
            stderr: stream(stderr),
            displays: Vec::new(),
            files: Default::default(),
            artifacts: Vec::new(),
            error: None,
            notices: Vec::new(),
            elapsed: Duration::from_millis(3),
            running: None,
        }
    }

    fn payload(outcome: RunOutcome) -> Payload {
        let request = RunRequest {
            code: String::new(),
            servers: Vec::new(),
            timeout: Duration::from_secs(5),
            session: "main".into(),
            clamped: None,
        };
        Payload::new(&request, outcome)
    }

    fn raised() -> RunOutcome {
        RunOutcome {
            status: Status::Error,
            failure: Some(Failure::Code),
            exit_code: Some(1),
            error: Some("ValueError: no".into()),
            ..outcome("before\n", "Traceback (most recent call last):\n  …\nValueError: no\n")
        }
    }

    fn rendered(outcome: RunOutcome, mode: OutputMode) -> (String, String, bool) {
        parts(render(&payload(outcome), mode))
    }

    /// The text block, the structured content, and whether it is an error.
    fn parts(result: CallToolResult) -> (String, String, bool) {
        let [ContentBlock::Text(text)] = &result.content[..] else { panic!("{result:?}") };
        let structured = result.structured_content.unwrap().to_string();
        (text.text.clone(), structured, result.is_error.unwrap())
    }

    fn compact(outcome: RunOutcome) -> (String, String, bool) {
        rendered(outcome, OutputMode::Compact)
    }

    fn expect(actual: (String, String, bool), text: &str, structured: &str, is_error: bool) {
        assert_eq!(actual, (text.to_owned(), structured.to_owned(), is_error));
    }

    #[test]
    fn a_compact_success_is_its_output() {
        expect(compact(outcome("2\n", "")), "2", r#"{"stdout":["2"]}"#, false);
        expect(
            compact(outcome("", "")),
            "Success (no output)",
            r#"{"summary":"Success (no output)"}"#,
            false,
        );
        expect(
            compact(outcome("", "warned\n")),
            "stderr:\nwarned",
            r#"{"summary":"Success","stderr":["warned"]}"#,
            false,
        );
        expect(
            compact(outcome("out\n", "warned\n")),
            "out\nstderr:\nwarned",
            r#"{"stdout":["out"],"stderr":["warned"]}"#,
            false,
        );
    }

    #[test]
    fn output_lines_stay_intact() {
        expect(
            compact(outcome("\n\n  a\r\n\n\u{fffd}\n\n", "")),
            "\n\n  a\r\n\n\u{fffd}\n",
            r#"{"stdout":["","","  a\r","","�",""]}"#,
            false,
        );
        expect(compact(outcome("\n", "")), "", r#"{"stdout":[""]}"#, false);
        expect(compact(outcome("no newline", "")), "no newline", r#"{"stdout":["no newline"]}"#, false);
    }

    #[test]
    fn a_compact_error_starts_with_status_and_exit() {
        expect(
            compact(raised()),
            "status: error\nexit: 1\nbefore\nstderr:\nTraceback (most recent call last):\n  …\n\
             ValueError: no",
            r#"{"status":"error","exitCode":1,"stdout":["before"],"stderr":["Traceback (most recent call last):","  …","ValueError: no"],"error":"ValueError: no"}"#,
            true,
        );
        let no_runtime = RunOutcome {
            run_id: 0,
            status: Status::Error,
            failure: Some(Failure::NoRuntime),
            exit_code: None,
            error: Some("no container runtime works: podman is not installed".into()),
            ..outcome("", "")
        };
        expect(
            compact(no_runtime),
            "status: error\nerror: no container runtime works: podman is not installed",
            r#"{"status":"error","summary":"Error: no container runtime","error":"no container runtime works: podman is not installed"}"#,
            true,
        );
    }

    #[test]
    fn a_timeout_says_how_long_the_code_had() {
        let late = RunOutcome { status: Status::Timeout, exit_code: None, ..outcome("tick\n", "") };
        expect(
            compact(late.clone()),
            "status: timeout\ntick\nerror: Execution timed out after 5 seconds",
            r#"{"status":"timeout","stdout":["tick"],"error":"Execution timed out after 5 seconds"}"#,
            true,
        );
        expect(
            rendered(late, OutputMode::Json),
            "```json\n{\"status\":\"timeout\",\"summary\":\"Timeout: execution exceeded 5s\",\"stdout\":[\"tick\"],\
             \"error\":\"Execution timed out after 5 seconds\",\"timeoutSeconds\":5}\n```",
            r#"{"status":"timeout","summary":"Timeout: execution exceeded 5s","stdout":["tick"],"error":"Execution timed out after 5 seconds","timeoutSeconds":5}"#,
            true,
        );
    }

    #[test]
    fn a_cancelled_call_says_so() {
        let cancelled = RunOutcome { status: Status::Cancelled, exit_code: None, ..outcome("", "") };
        expect(
            compact(cancelled),
            "status: cancelled",
            r#"{"status":"cancelled","summary":"Cancelled"}"#,
            true,
        );
    }

    #[test]
    fn notices_come_before_the_output_and_a_cut_output_has_the_number_of_its_run() {
        let mut cut = outcome("[cut]\na\n", "");
        cut.notices = vec!["the session is new".into()];
        cut.stdout.truncated = true;
        expect(
            compact(cut),
            "note: the session is new\n[cut]\na",
            r#"{"stdout":["[cut]","a"],"notices":["the session is new"],"runId":7}"#,
            false,
        );
        let mut silent = outcome("", "");
        silent.notices = vec!["the session is new".into()];
        expect(
            compact(silent),
            "note: the session is new\nSuccess (no output)",
            r#"{"summary":"Success (no output)","notices":["the session is new"]}"#,
            false,
        );
    }

    #[test]
    fn json_and_toon_carry_the_whole_payload() {
        let full = r#"{"status":"success","summary":"Success","exitCode":0,"stdout":["a","","b, c"]}"#;
        expect(
            rendered(outcome("a\n\nb, c\n", ""), OutputMode::Json),
            &format!("```json\n{full}\n```"),
            full,
            false,
        );
        expect(
            rendered(outcome("a\n\nb, c\n", ""), OutputMode::Toon),
            "```toon\nstatus: success\nsummary: Success\nexitCode: 0\nstdout[3]: a,\"\",\"b, c\"\n```",
            full,
            false,
        );
    }

    #[test]
    fn no_output_can_end_the_fence() {
        for mode in [OutputMode::Toon, OutputMode::Json] {
            let (text, _, _) = rendered(outcome("```\n```toon\n", "```\n"), mode);
            assert_eq!(text.lines().filter(|line| line.starts_with("```")).count(), 2, "{text}");
        }
    }

    #[test]
    fn the_servers_of_a_call_are_shown() {
        let request = RunRequest {
            code: String::new(),
            servers: vec!["github".into()],
            timeout: Duration::from_secs(5),
            session: "main".into(),
            clamped: None,
        };
        let rendered = parts(render(&Payload::new(&request, outcome("1\n", "")), OutputMode::Compact));
        assert_eq!(rendered.1, r#"{"servers":["github"],"stdout":["1"]}"#);
    }

    #[test]
    fn a_validation_error_says_what_is_wrong() {
        let result =
            render(&Payload::validation_error("Missing 'code' argument".into()), OutputMode::Compact);
        expect(
            parts(result),
            "status: validation_error\nerror: Missing 'code' argument",
            r#"{"status":"validation_error","summary":"Missing 'code' argument","error":"Missing 'code' argument"}"#,
            true,
        );
    }

    #[test]
    fn without_the_fence_the_text_is_the_format_itself() {
        let payload = payload(outcome("2\n", ""));
        assert_eq!(
            render_plain(&payload, OutputMode::Json),
            r#"{"status":"success","summary":"Success","exitCode":0,"stdout":["2"]}"#
        );
        assert_eq!(
            render_plain(&payload, OutputMode::Toon),
            "status: success\nsummary: Success\nexitCode: 0\nstdout[1]: \"2\""
        );
        assert_eq!(render_plain(&payload, OutputMode::Compact), "2");
    }
}
