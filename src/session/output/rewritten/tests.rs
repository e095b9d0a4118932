//! What is shown of lines that are written over. The bars are as tqdm 4.70 and rich 15 write them.

use super::*;

/// What stays of pieces, and the progress after each of them.
fn taken(pieces: &[&str]) -> (String, Vec<String>) {
    let mut rewritten = Rewritten::default();
    let (mut shown, mut progress) = (Vec::new(), Vec::new());
    for piece in pieces {
        shown.extend_from_slice(&rewritten.push(piece.as_bytes()));
        progress.extend(rewritten.progress());
    }
    shown.extend(rewritten.finish());
    (String::from_utf8(shown).unwrap(), progress)
}

#[test]
fn a_line_that_is_written_over_is_shown_once() {
    for (pieces, expected) in [
        (&["a\nb"][..], "a\nb"),
        (&["  0%|\r 50%|\r", "100%|##\nnext\n"], "100%|##\nnext\n"),
        (&["10%\r20%\r"], "20%"),
        (&["one\r", "\rtwo"], "two"),
        (&["a\x1b[2Kb\x1b", "[Gc\x1b[K\n"], "c\n"),
        (&["a\n\x1b[1A\x1b[2Kb\n\x1b[1A\x1b[2Kc\n"], "a\nc\n"),
    ] {
        assert_eq!(taken(pieces).0, expected, "{pieces:?}");
    }
}

#[test]
fn other_output_stays_as_it_is() {
    for text in [
        "a\r\nb\r\n\r\nc", "\x1b[31mred\x1b[0m\n\x1b[1", "\x1b]8;;x\x1b\\link\n",
        "\x1b[2J\x1b[H\x1b[5;7Hx\n", "\x1b\x1b[\n", "\n\n \n",
    ] {
        assert_eq!(taken(&[text]), (text.to_owned(), Vec::new()), "{text:?}");
        let pieces: Vec<&str> = text.split_inclusive(|_| true).collect();
        assert_eq!(taken(&pieces), (text.to_owned(), Vec::new()), "{text:?} in pieces");
    }
    let mut rewritten = Rewritten::default();
    assert!(matches!(rewritten.push(b"one\ntwo\n"), Cow::Borrowed(b"one\ntwo\n")), "a copy");
    assert_eq!((&*rewritten.push(b"\xff\n\xe2\x82"), rewritten.held()), (&b"\xff\n"[..], 2));
}

#[test]
fn a_long_line_is_passed_on() {
    let long = "x".repeat(3 * LONGEST);
    assert_eq!(taken(&[&long, "y\rend\n"]).0, format!("{long}y\nend\n"));
    assert_eq!(taken(&["\r1%\n\r2%", &long, "y\n"]).0, format!("1%\n2%{long}y\n"));
    assert_eq!(taken(&[&long, "\r\nend"]).0, format!("{long}\r\nend"));
}

#[test]
fn bars_one_after_the_other_do_not_wait_for_each_other() {
    let mut rewritten = Rewritten::default();
    assert_eq!(*rewritten.push(b"\r  0%|  |\r100%|##|\n"), *b"");
    assert_eq!(rewritten.progress().unwrap(), "100%|##|");
    assert_eq!(*rewritten.push(b"\r  0%|  |\r 50%|# |"), *b"100%|##|\n");
    assert_eq!(rewritten.progress().unwrap(), "50%|# |");
    assert_eq!(rewritten.progress(), None, "it is not new");
    assert_eq!(*rewritten.push(b"\r100%|##|\nepoch 1\n"), *b"100%|##|\nepoch 1\n");
}

#[test]
fn bars_of_tqdm_below_each_other_are_one_line_each() {
    let (shown, progress) = taken(&[
        "\router:  0%", "\n\rinner:  0%\x1b[A", "\n\rinner: 50%\x1b[A", "\n\r          \x1b[A",
        "\router: 50%", "\n\rinner:  0%\x1b[A", "\n\rinner: 50%\x1b[A", "\n\r          \x1b[A",
        "\router: 100%", "\router: 100%\n", "end\n",
    ]);
    assert_eq!(shown, "outer: 100%\nend\n");
    assert_eq!(
        progress[..4],
        ["outer:  0%", "outer:  0% · inner:  0%", "outer:  0% · inner: 50%", "outer:  0%"]
    );
    assert_eq!(progress.last().unwrap(), "outer: 100%");
}

#[test]
fn bars_of_rich_are_one_line_each_and_what_it_prints_above_them_stays() {
    let bar = |name: &str, percent: u8| format!("{name} \x1b[90m━━\x1b[0m \x1b[35m{percent}%\x1b[0m");
    let frame = |up: &str, log: &str, percent: u8| {
        let bars = ["one", "two", "three"].map(|name| bar(name, percent)).join("\n");
        format!("\r\x1b[2K{}{log}{bars}", up.repeat(2))
    };
    let up = "\x1b[1A\x1b[2K";
    let first = format!("\x1b[?25l{}", frame("", "", 0));
    let (next, logged) = (frame(up, "", 50), frame(up, "a log line\n", 60));
    let last = format!("{}\n\x1b[?25hend\n", frame(up, "", 100));
    let (shown, progress) = taken(&["before\n", &first, &next, &logged, &last]);
    let bars = ["one", "two", "three"].map(|name| bar(name, 100)).join("\n");
    assert_eq!(shown, format!("before\na log line\n{bars}\nend\n"));
    assert_eq!(
        progress[..2],
        ["one ━━ 0% · two ━━ 0% · three ━━ 0%", "one ━━ 50% · two ━━ 50% · three ━━ 50%"]
    );
    // One that is gone in the end.
    assert_eq!(
        taken(&[&format!("\x1b[?25l\r\x1b[2K{}\n\x1b[?25h\r\x1b[1A\x1b[2Kend\n", bar("a", 1))]).0,
        "end\n"
    );
}

#[test]
fn what_is_held_back_is_bounded() {
    let mut rewritten = Rewritten::default();
    let _ = rewritten.push(b"\x1b[?25l");
    for _ in 0..10 * MOST_ROWS {
        let _ = rewritten.push(&[&b"\r"[..], &[b'x'; LONGEST - 1], b"\n"].concat());
        let _ =
            rewritten.push(&[b"\x1b[".as_slice(), &[b'1'; LONGEST - 2 * LONGEST_SEQUENCE], b"\n"].concat());
    }
    assert!(
        rewritten.held() <= MOST_ROWS * LONGEST
            && rewritten.progress().unwrap().chars().count() == LONGEST_PROGRESS
    );
}
