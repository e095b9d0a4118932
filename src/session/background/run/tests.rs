//! What looks show, and what the result shows then.

use super::*;
use crate::session::{OutputStream, Picture, Stream};

const BOUNDS: Bounds = Bounds { stdout: 1000, pictures: PictureBudget { count: 2, bytes: 1000 }, runs: 8 };

fn run() -> BackgroundRun {
    run_of(&caller())
}

fn caller() -> Caller {
    Caller::without_answers(mpsc::channel(1).0, CancellationToken::new())
}

fn run_of(caller: &Caller) -> BackgroundRun {
    let run = BackgroundRun::new("main".into(), caller, BOUNDS);
    run.begin(7, None, WaitsFor(Box::new(Vec::new)));
    run
}

fn picture(has_data: bool) -> Picture {
    Picture { mime: "image/png".into(), bytes: 3, size: (1, 1), data: has_data.then(|| vec![1, 2, 3]) }
}

/// The outcome of a run with so many pictures, of which the first have a place in it.
fn outcome(pictures: usize) -> RunOutcome {
    let displays = (1..=pictures).map(|number| Display {
        uri: format!("codebridge://runs/7/display/{number}"),
        after_line: 0,
        forms: Vec::new(),
        picture: Some(picture(number <= BOUNDS.pictures.count)),
    });
    RunOutcome {
        run_id: 7,
        status: Status::Success,
        failure: None,
        error: None,
        displays: displays.collect(),
        ..RunOutcome::not_started(Failure::Code, String::new())
    }
}

fn shown(outcome: &RunOutcome) -> Vec<(&str, bool)> {
    let of = |display: &'_ Display| display.picture.as_ref().is_some_and(|one| one.data.is_some());
    outcome.displays.iter().map(|display| (display.uri.rsplit('/').next().unwrap(), of(display))).collect()
}

#[test]
fn a_run_keeps_its_workspace_while_it_goes_on_and_for_a_while_after() {
    let runs = super::super::runs::BackgroundRuns::default();
    assert!(!runs.has_run_within(Duration::MAX));
    let run = runs.add("main", false, &caller(), BOUNDS).unwrap();
    assert!(runs.has_run_within(Duration::ZERO), "nobody looks at it, and it goes on");
    run.begin(7, None, WaitsFor(Box::new(Vec::new)));
    assert!(runs.has_run_within(Duration::ZERO));
    run.end(outcome(0));
    std::thread::sleep(Duration::from_millis(1));
    assert!(runs.has_run_within(Duration::from_secs(3600)) && !runs.has_run_within(Duration::ZERO));
}

#[tokio::test]
async fn pictures_after_those_that_looks_have_shown_are_in_the_result() {
    let run = run();
    for number in 1..=2 {
        run.take_in(Progress::Displayed(number, picture(true)));
    }
    assert_eq!(shown(&run.running()), [("1", true), ("2", true)]);
    for number in 3..=5 {
        run.take_in(Progress::Displayed(number, picture(true)));
    }
    run.end(outcome(5));
    let ended = run.lock().ended();
    assert_eq!(shown(&ended), [("3", true), ("4", true), ("5", false)], "each result has space for two");
}

#[tokio::test]
async fn nothing_is_kept_for_looks_once_the_result_has_it() {
    let run = run();
    run.take_in(Progress::Output(OutputStream::Stdout, b"one\n".to_vec()));
    run.take_in(Progress::Displayed(1, picture(true)));
    run.end(outcome(1));
    let state = run.lock();
    assert!(state.displays.is_empty());
    assert_eq!(state.stdout.lines(), 0);
    drop(state);
    assert_eq!(shown(&run.lock().ended()), [("1", true)]);
    let partly = self::run();
    partly.take_in(Progress::Output(OutputStream::Stdout, b"one\n".to_vec()));
    assert_eq!(partly.running().stdout.text, "one\n");
    partly.take_in(Progress::Output(OutputStream::Stdout, b"two\n".to_vec()));
    partly.end(outcome(0));
    assert_eq!(partly.lock().ended().stdout.text, "two\n");
    assert_eq!(partly.lock().stdout.take(false), Stream::default());
}

#[tokio::test]
async fn who_follows_a_run_gets_all_of_it_whatever_looks_have_shown() {
    let (progress, mut events) = mpsc::channel(8);
    let follower = Caller { progress, until_end: true, ..caller() };
    let run = run_of(&follower);
    run.take_in(Progress::Output(OutputStream::Stdout, b"first\n".to_vec()));
    let looked = run.running();
    assert_eq!(looked.stdout.text, "first\n");
    let ends = async {
        let event = events.recv().await.unwrap();
        assert!(matches!(event, Progress::Reported(now) if now.starts_with("run 7 is running")));
        let stdout = Stream { text: "first\nlast\n".into(), total_bytes: 11, truncated: false };
        run.end(RunOutcome { stdout, ..outcome(0) });
    };
    let (followed, ()) = tokio::join!(run.wait_for(&follower), ends);
    assert_eq!(followed.stdout.text, "first\nlast\n");
    assert_eq!(run.look(Look { run: 7, timeout: STOP_LIMIT, stop: false }, &caller(), false).await.run_id, 7);
}

#[tokio::test]
async fn bars_are_progress_and_one_line_in_the_end() {
    for stream in [OutputStream::Stdout, OutputStream::Stderr] {
        let run = run();
        run.take_in(Progress::Output(stream, b"before\n\r  0%|  |".to_vec()));
        run.take_in(Progress::Output(stream, b"\r 50%|# |".to_vec()));
        assert!(matches!(run.find(true, false), Found::News));
        assert_eq!(run.now().progress.as_deref(), Some("50%|# |"));
        let shown = run.running();
        assert_eq!([shown.stdout.text, shown.stderr.text].concat(), "before\n");
        assert!(matches!(run.find(true, false), Found::Nothing { progress: Some(_) }), "it is new once");
        run.take_in(Progress::Output(stream, b"\r100%|##|\n".to_vec()));
        run.end(outcome(0));
        let ended = run.lock().ended();
        assert_eq!([ended.stdout.text, ended.stderr.text].concat(), "100%|##|\n");
    }
}
