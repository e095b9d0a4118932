//! Tests of the folder of saved functions.

use std::fs;

use super::limits::MOST_BYTES;
use super::*;

fn save(tools: &SavedTools, name: &str, source: &str) -> Result<(), ToolError> {
    tools.save(name, source, NewTool::default())
}

#[test]
fn a_saved_tool_comes_back_and_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let tools = SavedTools::at(&dir.path().join("not there yet"));
    assert!(tools.load().tools.is_empty());
    save(&tools, "double", "def double(x): return x").unwrap();
    save(&tools, "double", "def double(x): return 2 * x").unwrap();
    assert_eq!(tools.load().tools, [("double".to_string(), "def double(x): return 2 * x".to_string())]);
}

#[test]
fn a_name_cannot_lead_out_of_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let tools = SavedTools::at(dir.path());
    for name in ["../x", "a/b", "", "1a", "a b", "a.b"] {
        assert!(matches!(save(&tools, name, ""), Err(ToolError::Name(_))), "{name}");
    }
    assert!(matches!(save(&tools, "x", &"x".repeat(LONGEST_SOURCE + 1)), Err(ToolError::TooLong)));
}

#[test]
fn the_tools_of_a_session_are_bounded_together() {
    let dir = tempfile::tempdir().unwrap();
    let tools = SavedTools::at(dir.path());
    let longest = "#".repeat(LONGEST_SOURCE);
    let most = MOST_BYTES as usize / LONGEST_SOURCE;
    for number in 0..most {
        save(&tools, &format!("t{number}"), &longest).unwrap();
    }
    assert!(matches!(save(&tools, "one_more", "x"), Err(ToolError::TooMany)));
    save(&tools, "t0", &longest).unwrap();
    fs::write(dir.path().join("tools/by_hand.py"), &longest).unwrap();
    assert_eq!(tools.load().tools.len(), most);
}

#[test]
fn no_tool_takes_the_name_of_something_else() {
    let dir = tempfile::tempdir().unwrap();
    let tools = SavedTools::at(dir.path());
    save(&tools, "double", "def double(x): return 2 * x").unwrap();
    assert_eq!(tools.load().notices().collect::<Vec<_>>(), ["saved functions: double"]);
    for name in ["__builtins__", "print", "mcp_github", "runtime"] {
        let error = save(&tools, name, "x").unwrap_err();
        assert!(matches!(error, ToolError::Reserved { .. }), "{error}");
        // An earlier version wrote such files.
        fs::write(dir.path().join(format!("tools/{name}.py")), format!("def {name}(): pass")).unwrap();
    }
    let loaded = tools.load();
    assert_eq!((loaded.tools.len(), tools.usable_names()), (1, vec!["double".to_string()]));
    let notices: Vec<_> = loaded.notices().collect();
    assert!(notices[1].ends_with(": __builtins__, mcp_github, print, runtime"), "{notices:?}");
}

#[test]
fn a_notice_names_some_of_many_tools() {
    let tools = (0..100).map(|n| (format!("t{n}"), String::new())).collect();
    let notices: Vec<_> = LoadedTools { tools, ..LoadedTools::default() }.notices().collect();
    assert!(
        notices[0].starts_with("saved functions: t0, t1, ") && notices[0].ends_with("t19 and 80 more"),
        "{notices:?}"
    );
    assert_eq!(LoadedTools::default().notices().count(), 0);
}

#[test]
fn earlier_versions_are_kept_and_the_same_source_makes_none() {
    let dir = tempfile::tempdir().unwrap();
    let tools = SavedTools::at(dir.path());
    for number in 1..=12 {
        for _ in 0..2 {
            save(&tools, "f", &format!("def f(): return {number}")).unwrap();
        }
    }
    let tool = tools.find("f").unwrap();
    assert_eq!((tool.version, &*tool.earlier), (12, &[3, 4, 5, 6, 7, 8, 9, 10, 11][..]));
    assert_eq!(tools.version("f", 3).unwrap(), "def f(): return 3");
    assert_eq!(tools.version("f", 12).unwrap(), "def f(): return 12");
    for missing in [0, 2, 13] {
        assert!(matches!(tools.version("f", missing), Err(ToolError::UnknownVersion { .. })), "{missing}");
    }
    assert_eq!(tools.remove("f").unwrap(), 10);
    assert!(matches!(tools.find("f"), Err(ToolError::Unknown { .. })));
    save(&tools, "f", "def f(): pass").unwrap();
    assert_eq!(tools.find("f").unwrap().version, 1);
}

#[test]
fn what_was_edited_by_hand_becomes_a_version_too() {
    let dir = tempfile::tempdir().unwrap();
    let (tools, file) = (SavedTools::at(dir.path()), dir.path().join("tools/f.py"));
    fs::create_dir_all(dir.path().join("tools")).unwrap();
    fs::write(&file, "def f(a, b=1):\n    '''By hand.'''\n    return mcp_forge.create()\n").unwrap();
    let tool = tools.find("f").unwrap();
    assert_eq!(
        (tool.version, tool.details.signature.as_str(), tool.details.summary()),
        (1, "f(a, b=1)", "By hand.")
    );
    assert_eq!(tool.details.servers, ["forge"]);
    let details = Details { signature: "f(c)".into(), ..Details::default() };
    tools.save("f", "def f(c): pass", NewTool { details, ..NewTool::default() }).unwrap();
    assert!(tools.version("f", 1).unwrap().contains("By hand."));
    assert_eq!(tools.find("f").unwrap().details.signature, "f(c)");
    fs::write(&file, "def f(d): pass").unwrap();
    assert_eq!(tools.find("f").unwrap().details.signature, "f(d)", "what was known is not of this source");
    save(&tools, "f", "def f(e): pass").unwrap();
    assert_eq!(tools.version("f", 2).unwrap(), "def f(d): pass");
    assert_eq!(tools.load().tools.len(), 1);
}

#[test]
fn an_interrupted_save_loses_and_repeats_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let tools = SavedTools::at(dir.path());
    save(&tools, "f", "def f(): return 1").unwrap();
    // Killed after the current version was kept.
    fs::write(dir.path().join("tools/.versions/f/1.py"), "def f(): return 1").unwrap();
    save(&tools, "f", "def f(): return 2").unwrap();
    let tool = tools.find("f").unwrap();
    assert_eq!((tool.version, &*tool.earlier), (2, &[1][..]));
}

#[test]
fn a_changed_import_needs_another_approval() {
    let dir = tempfile::tempdir().unwrap();
    let tools = SavedTools::at(dir.path());
    let imported = NewTool { is_imported: true, ..NewTool::default() };
    tools.save("f", "def f(): return 1", imported.clone()).unwrap();
    assert_eq!(tools.load().tools.len(), 1);
    let file = dir.path().join("tools/f.py");
    fs::write(&file, "def f(): return 2").unwrap();
    let loaded = tools.load();
    assert!(loaded.tools.is_empty());
    assert!(loaded.notices().any(|notice| notice.contains("source has changed: f;")));
    let tool = tools.find("f").unwrap();
    assert_eq!((tool.trouble, tool.source.as_str()), (Some(Trouble::Unapproved), "def f(): return 2"));
    tools.save("f", "def f(): return 2", imported).unwrap();
    assert_eq!(tools.load().tools.len(), 1, "it was approved");
    save(&tools, "f", "def f(): return 2").unwrap();
    assert!(tools.find("f").unwrap().is_imported, "code that saves the same makes it no other function");
    // A damaged record may have said anything.
    fs::write(dir.path().join("tools/.versions/f/about.json"), "{").unwrap();
    assert!(tools.load().tools.is_empty());
    save(&tools, "f", "def f(): return 2").unwrap();
    assert_eq!(tools.load().tools.len(), 1, "code of a session has saved it again");
}

#[test]
fn what_code_says_of_a_function_is_checked() {
    let raw = |json: &str| serde_json::from_str::<RawDetails>(json).unwrap();
    let source = "def f(a): pass";
    let forged = raw(
        r#"{"signature":"f(a)\u001b[2J\nrm -rf","doc":"a\u001b[2Jb","servers":["../x","A","ok"],"tools":[["ok","t"],["x/","t"],["ok","a b"]]}"#,
    );
    let details = Details::checked("f", forged, source);
    assert_eq!(details.signature, "f(a)");
    assert!(!details.doc.contains('\u{1b}'), "{}", details.doc);
    assert_eq!((details.servers, details.tools), (vec!["ok".into()], vec![("ok".into(), "t".into())]));
    for signature in ["g(a)", "fg(a)", "f", "(a)", ""] {
        let raw = RawDetails { signature: Some(signature.into()), ..RawDetails::default() };
        assert_eq!(Details::checked("f", raw, source).signature, "f(a)", "{signature}");
    }
    let long = RawDetails {
        signature: Some(format!("f({})", "a".repeat(5_000))),
        doc: Some("ä".repeat(100_000)),
        servers: vec!["s".repeat(5_000); 5_000],
        tools: vec![("s".into(), "t".into()); 5_000],
    };
    let details = Details::checked("f", long, "x");
    assert_eq!((details.signature.as_str(), details.tools.len()), ("f(…)", 1));
    assert!(details.doc.len() <= 2_000 && details.servers == ["s"]);
    let example = Some("#".repeat(LONGEST_EXAMPLE + 1));
    let dir = tempfile::tempdir().unwrap();
    let saved = SavedTools::at(dir.path()).save("f", source, NewTool { example, ..NewTool::default() });
    assert!(matches!(saved, Err(ToolError::LongExample)));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_file_that_cannot_be_used_is_listed_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("tools");
    fs::create_dir_all(folder.join("folder.py")).unwrap();
    fs::write(folder.join("long.py"), "#".repeat(LONGEST_SOURCE + 1)).unwrap();
    fs::write(folder.join("bytes.py"), b"\xff").unwrap();
    fs::write(folder.join("print.py"), "def print(): pass").unwrap();
    let tools = SavedTools::at(dir.path());
    let listed: Vec<_> = tools.list().into_iter().map(|tool| (tool.name, tool.trouble)).collect();
    assert!(
        matches!(
            &listed[..],
            [
                (_, Some(Trouble::Unreadable(_))),
                (_, Some(Trouble::Unreadable(_))),
                (_, Some(Trouble::TooLong)),
                (_, Some(Trouble::NameTaken)),
            ]
        ),
        "{listed:?}"
    );
    assert!(tools.load().tools.is_empty());
    for name in ["../f", "", "f/../f", "nothing"] {
        assert!(matches!(tools.find(name), Err(ToolError::Unknown { .. })), "{name}");
        assert!(matches!(tools.remove(name), Err(ToolError::Unknown { .. })), "{name}");
    }
}

#[test]
fn a_test_holds_until_the_source_or_a_tool_changes() {
    let dir = tempfile::tempdir().unwrap();
    let tools = SavedTools::at(dir.path());
    let schemas = |digest: &str| [("forge.close".to_owned(), digest.to_owned())].into();
    let new = || NewTool { example: Some("f()".into()), schemas: schemas("1"), ..NewTool::default() };
    let source = "def f(): return mcp_forge.close()";
    let state = |now: Option<&str>| tools.find("f").unwrap().state(|_, _| now.map(str::to_owned));
    tools.save("f", source, new()).unwrap();
    assert_eq!(
        (state(Some("1")), state(None), state(Some("2"))),
        (State::Untested, State::Untested, State::NeedsTest)
    );
    let tool = tools.testable("f").unwrap();
    tools.note_test(&tool, None, schemas("2")).unwrap();
    assert_eq!(
        (state(Some("2")), state(None), state(Some("1"))),
        (State::Ready, State::Ready, State::NeedsTest)
    );
    assert_eq!(state(Some("")), State::NeedsTest, "the tool is gone");
    // Saving the same again is no test.
    tools.save("f", source, NewTool { schemas: schemas("3"), ..new() }).unwrap();
    assert_eq!((state(Some("2")), state(Some("3"))), (State::Ready, State::NeedsTest));
    tools.note_test(&tool, Some(&format!("a\nb\u{1b}[2J{}", "x".repeat(5_000))), schemas("2")).unwrap();
    assert_eq!((state(Some("2")), state(Some("3"))), (State::Broken, State::NeedsTest));
    let error = tools.find("f").unwrap().tested.unwrap().error.unwrap();
    assert!(error.chars().count() <= 400 && !error.contains(['\n', '\u{1b}']), "{error}");
    fs::write(dir.path().join("tools/f.py"), "def f(): return 2").unwrap();
    assert_eq!(state(Some("2")), State::Untested);
    tools.note_test(&tools.testable("f").unwrap(), None, Default::default()).unwrap();
    assert_eq!(state(Some("4")), State::Ready);
    save(&tools, "f", "def f(): return 3").unwrap();
    assert!(matches!(tools.testable("f"), Err(ToolError::NoExample(_))));
    assert_eq!(tools.find("f").unwrap().state(|_, _| None), State::Ready);
    assert!(tools.note_test(&tool, None, Default::default()).is_ok(), "of the source before");
    assert_eq!(tools.find("f").unwrap().tested, None);
    tools.remove("f").unwrap();
    tools.note_test(&tool, None, Default::default()).unwrap();
    assert!(tools.list().is_empty());
}
