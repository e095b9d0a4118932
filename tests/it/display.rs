//! Pictures and tables that code displays: the model sees pictures in their place, the client reads the rest.

use serde_json::{Value, json};

use super::help::shown_on_a_terminal;
use super::installs::WithUv;
use crate::harness::matrix::{Kind, prepared_command};
use crate::harness::suite::ignore;
use crate::harness::{Bridge, Runtime, Suite, TestEnv};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime("display", tests![pictures_stand_between_the_lines_where_they_were_displayed]);
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "display",
        tests![
            the_picture_of_a_tool_is_seen_when_code_shows_it,
            what_real_libraries_make_is_shown,
            a_result_has_so_many_pictures_and_names_the_others,
            forged_objects_reach_nobody,
            exec_says_how_many_pictures_there_were,
            exec_shows_pictures_in_a_terminal_that_can,
        ],
    );
}

/// The blocks of a result: text as it is, pictures by their width, links by their address.
fn content(bridge: &Bridge<'_>, code: &str) -> (Vec<String>, Value) {
    let arguments = json!({ "name": "run_python", "arguments": { "code": code } });
    let result = bridge.ask("tools/call", arguments);
    let block = |block: &Value| match block["type"].as_str().unwrap() {
        "text" => block["text"].as_str().unwrap().to_owned(),
        "image" => format!("<{} {}>", block["mimeType"].as_str().unwrap(), width(&block["data"])),
        "resource_link" => format!("-> {}", block["uri"].as_str().unwrap()),
        other => panic!("{other}"),
    };
    (result["content"].as_array().unwrap().iter().map(block).collect(), result)
}

/// The width of a PNG in base64: bytes 16 to 19, which are letters 21 to 27 with bits of their neighbours.
fn width(data: &Value) -> u32 {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(data.as_str().unwrap()).unwrap();
    u32::from_be_bytes(bytes[16..20].try_into().unwrap())
}

fn pictures_stand_between_the_lines_where_they_were_displayed(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.run(python!("display", "names")).expect("success");
    let (blocks, result) = content(&bridge, python!("display", "in_order"));
    let expected = [
        "before 0",
        "<image/png 1>",
        "after 0\nbefore 1",
        "<image/png 2>",
        "after 1\nbefore 2",
        "<image/png 3>",
        "after 2\n<HTML, 25 bytes>",
        "-> codebridge://runs/2/display/4",
    ];
    assert_eq!(blocks, expected);
    let html = json!({ "mimeTypes": ["text/html"], "uri": "codebridge://runs/2/display/4" });
    assert_eq!(result["structuredContent"]["displays"][3], html);
    let read = bridge.ask("resources/read", json!({ "uri": html["uri"] }));
    let forms = json!([{ "uri": html["uri"], "mimeType": "text/html", "text": "<script>alert(1)</script>" }]);
    assert_eq!(read["contents"], forms);
    let listed = bridge.ask("resources/list", json!({}))["resources"].to_string();
    assert_eq!(listed.matches("codebridge://runs/2/display/").count(), 4, "{listed}");
    bridge.close();
}

fn a_result_has_so_many_pictures_and_names_the_others(env: &TestEnv) {
    let bridge = env.bridge().var("MCP_BRIDGE_MAX_IMAGES", "1").start();
    let _ = bridge.run(python!("display", "names")).expect("success");
    let (blocks, result) = content(&bridge, "display(Image(png(2001, 1)), Image(png(2, 1)))");
    let bytes = bridge.run("len(png(2, 1))").ok();
    let text = format!(
        "[the picture has 2001x1 pixels; smaller ones cost less]\n\
         [image/png, 2x1 pixels, {bytes} bytes, is not in this result: read codebridge://runs/2/display/2]"
    );
    assert_eq!(blocks, ["<image/png 2001>", &text, "-> codebridge://runs/2/display/2"]);
    let uri = &result["structuredContent"]["displays"][1]["uri"];
    let read = bridge.ask("resources/read", json!({ "uri": uri }));
    assert_eq!(width(&read["contents"][0]["blob"]), 2);
    bridge.close();
}

fn the_picture_of_a_tool_is_seen_when_code_shows_it(env: &TestEnv) {
    let Some(command) = prepared_command("SERVER_EVERYTHING") else {
        ignore("no servers were prepared, see tests/check")
    };
    let entry = json!({ "command": command[0], "args": command[1..] });
    env.write("home/MCPs/all.json", json!({ "mcpServers": { "everything": entry } }).to_string());
    let bridge = env.bridge().start();
    let arguments = json!({ "code": "await mcp_everything.get_tiny_image()", "servers": ["everything"] });
    let result = bridge.ask("tools/call", json!({ "name": "run_python", "arguments": arguments }));
    let kinds: Vec<_> = result["content"].as_array().unwrap().iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["text", "image", "text"], "{result}");
    assert_eq!(result["content"][1]["mimeType"], "image/png");
    bridge.close();
}

fn forged_objects_reach_nobody(env: &TestEnv) {
    let bridge = env.bridge().start();
    let (blocks, _) = content(&bridge, python!("display", "forged"));
    let mut lines: Vec<&str> = blocks[0].lines().collect();
    // They do not wait for what is printed.
    lines.sort_unstable();
    let expected = [
        "[image/png, 1 bytes, is no valid picture: read codebridge://runs/1/display/1]",
        "alive",
        "note: 3 displayed objects could not be kept: a run keeps 100, and 128 MiB",
    ];
    assert_eq!(lines, expected);
    assert_eq!(blocks[1..], ["-> codebridge://runs/1/display/1"]);
    let lost = bridge.run(python!("display", "too_long")).expect("error");
    let said = lost.notices();
    assert!(said.contains("its protocol was broken by a frame of type b'V'"), "{said}");
    assert_eq!(bridge.run("1 + 1").ok(), "2");
    bridge.close();
}

fn exec_says_how_many_pictures_there_were(env: &TestEnv) {
    let code =
        format!("{}\ndisplay(Image(png(1, 1)), Image(png(1, 1)))\nprint('x')", python!("display", "names"));
    let output = env.bridge().args(&["exec", "--log-level", "warn", "-c", &code]).command().run(env.guard());
    assert_eq!(output.stderr, "note: 2 pictures were displayed: `--out DIR` writes them to files\n");
    assert_eq!(output.ok(), "x\n");
    let output =
        env.bridge().args(&["exec", "--output", "json", "-c", &code]).command().run(env.guard()).ok();
    let result: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(result["notices"], json!(["2 pictures were displayed: `--out DIR` writes them to files"]));
    assert!(result["displays"].is_null(), "nobody can read them later: {result}");
}

fn exec_shows_pictures_in_a_terminal_that_can(env: &TestEnv) {
    let code = format!("{}\nprint('a')\ndisplay(Image(png(1, 1)))\nprint('b')", python!("display", "names"));
    for (term, start) in [("xterm-kitty", "a\n\x1b_Ga=T,q=2,f=100,m=0;iVBOR"), ("dumb", "a\nb\n")] {
        let command = env.bridge().var("TERM", term).args(&["exec", "--log-level", "error", "-c", &code]);
        let shown = shown_on_a_terminal(env, command.command());
        assert!(shown.starts_with(start) && shown.ends_with("b\n"), "{term}: {shown}");
    }
}

/// Shows what matplotlib, seaborn, pandas, polars, plotly and Pillow make.
pub(crate) fn libraries_are_shown(bridge: &Bridge<'_>) {
    let run = |code: &str| content(bridge, code).0;
    assert_eq!(run(python!("display", "first_figure")), ["before", "<image/png 640>", "after"]);
    assert_eq!(run(python!("display", "open_figure")), ["<image/png 640>"], "it was changed");
    assert_eq!(run(python!("display", "saved_figure")), ["Success (no output)"]);
    assert_eq!(run(python!("display", "unchanged_figure")), ["nothing new"]);
    let (shown, result) = content(bridge, python!("display", "each_library"));
    let pictures: Vec<&String> = shown.iter().filter(|block| block.starts_with('<')).collect();
    assert_eq!(pictures, ["<image/png 640>", "<image/png 7>"], "{shown:?}");
    let displays = result["structuredContent"]["displays"].as_array().unwrap();
    let first = displays.iter().map(|display| display["mimeTypes"][0].as_str().unwrap());
    let [html, png] = ["text/html", "image/png"];
    assert_eq!(first.collect::<Vec<_>>(), [html, html, html, png, html, png], "{shown:?}");
    let whole = &displays[0]["mimeTypes"];
    assert_eq!(*whole, json!([html, "text/csv"]));
    assert!(shown[0].starts_with("   x  y\n0  1  3\n1  2  4\n"), "{shown:?}");
}

fn what_real_libraries_make_is_shown(env: &TestEnv) {
    let packages = "matplotlib,pandas,polars,seaborn,plotly,pillow,jinja2,altair";
    let bridge = env.bridge().online().var("MCP_BRIDGE_WITH", packages).var("MCP_BRIDGE_MEMORY", "1g");
    let bridge = bridge.var("MCP_BRIDGE_TIMEOUT", "110").start();
    libraries_are_shown(&bridge);
    let (shown, result) = content(&bridge, python!("display", "altair"));
    let types = result["structuredContent"]["displays"][0]["mimeTypes"].to_string();
    assert!(types.contains("application/vnd.vegalite"), "{result}");
    assert_eq!(shown.len(), 2, "text, and a link to the rest: {shown:?}");
    bridge.close();
}
