//! `codebridge exec`: one run. Its output is passed on as it comes, and its exit status at the end.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::errors::CommandError;
use super::folder::{Folder, WriteError};
use super::output::was_read;
use super::pictures::Pictures;
use super::say::{plain, say};
use super::signals::Signals;
use super::spinner::Spinner;
use super::terminal_answers::{Screen, TerminalAnswers};
use super::{ExecArgs, RunFlags, code, outputs};
use crate::error::Exit;
use crate::mcp::stdio;
use crate::server::{Payload, render_plain};
use crate::session::{
    Caller, Failure, OutputStream, Progress, RunOutcome, RunPython, RunRequest, Status, is_shown, remark,
    split_hint,
};
use crate::settings::{Environment, Settings};
use crate::shares;
use crate::workspace::Workspace;

/// Pieces of output that wait for a slow terminal. When there are more, the code waits too.
const QUEUE: usize = 16;

/// Bytes of each stream in a result that is printed at the end.
const RESULT_LIMIT: usize = 16 << 20;

/// Says that the code runs once, and chooses the size of a result: no later call can read what is cut.
pub(super) fn prepare(flags: &RunFlags, settings: &mut Settings) {
    settings.one_shot = true;
    // What the run leaves is read after it.
    settings.session_persist.value |= flags.out.is_some();
    if flags.output.is_some() && !settings.output_limit.is_explicit() {
        settings.output_limit.value = RESULT_LIMIT;
    }
}

pub(super) async fn exec(
    workspace: &Workspace,
    args: ExecArgs,
    environment: &Environment,
) -> Result<ExitCode, CommandError> {
    let source = read(&args)?;
    let stop = CancellationToken::new();
    Ok(run_source(workspace, args.flags, environment, source, "codebridge exec", &stop).await?.exit)
}

/// Reads the code that the arguments name.
pub(super) fn read(args: &ExecArgs) -> Result<code::Source, CommandError> {
    if args.session.is_some() {
        return Err(CommandError::Session);
    }
    if let Some(out) = args.flags.out.as_deref().filter(|out| out.is_file()) {
        // Before the code is looked for: it may be what was meant.
        return Err(WriteError::NotAFolder(out.to_owned()).into());
    }
    Ok(code::read(args)?)
}

/// How a run ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) exit: ExitCode,
    pub(super) status: Status,
    pub(super) error: Option<String>,
}

/// Runs code, passes its output on, and closes the workspace. Cancelling `stop` stops it as a signal does.
pub(super) async fn run_source(
    workspace: &Workspace,
    args: RunFlags,
    environment: &Environment,
    code::Source { code, mut script }: code::Source,
    client: &str,
    stop: &CancellationToken,
) -> Result<Ended, CommandError> {
    code::check_size(&script.files, workspace.bridge.settings.workspace_size.value)?;
    if let Some(folder) = script.folder() {
        script.is_narrow = shares::is_secret(&folder, &workspace.bridge.settings, environment);
    }
    let request = RunRequest {
        code: RunRequest::without_byte_order_mark(code),
        servers: args.servers,
        timeout: *workspace.bridge.settings.timeout,
        session: outputs::session(args.out.as_deref()),
        // A warning at the start has said it.
        clamped: None,
    };
    let (stdout, stderr, signals) = (stdio::output()?, stdio::error_output()?, Signals::listen()?);
    let mut sink = Sink::new(stdout, stderr, args.output.is_none());
    let screen = sink.screen.clone();
    let out = args.out.as_deref().map(|out| Folder::create(out, args.force)).transpose()?;
    if let Some(note) = out.as_ref().and_then(Folder::note) {
        say(note);
    }
    let work = async {
        let caller = |progress| {
            let caller = Caller::without_answers(progress, stop.clone());
            let answers =
                TerminalAnswers::open(None, screen.clone()).unwrap_or_else(|| Arc::clone(&caller.answers));
            let client = Some(client.into());
            Caller { script: Some(Arc::new(script)), answers, client, ..caller }
        };
        let (outcome, written) = run(&workspace.sessions, &request, &mut sink, stop, caller).await;
        let is_copied = match &out {
            Some(out) => copy_out(workspace, &outcome, out, stop).await,
            None => true,
        };
        workspace.close().await;
        (outcome, written, is_copied)
    };
    let (done, signal) = signals.until_second(stop, work).await;
    sink.spinner.clear();
    let Some((mut outcome, written, is_copied)) = done else {
        return Err(CommandError::Stopped(signal.unwrap_or(Exit::Interrupted)));
    };
    match &out {
        Some(_) => outputs::forget(&mut outcome),
        None => note_pictures(&mut outcome, sink.hidden),
    }
    let (exit, status, error) = (exit_code(&outcome, signal), outcome.status, outcome.error.clone());
    let is_stopped = status == Status::Cancelled;
    let result_written = match args.output {
        Some(mode) => sink.write_result(&render_plain(&Payload::new(&request, outcome), mode)).await,
        // Whoever stopped it knows that.
        None if is_stopped => Ok(()),
        None => {
            outputs::note(&mut outcome, out.is_some());
            sink.write_remarks(&outcome).await
        }
    };
    let is_unread = !was_read(written.and(result_written))?;
    let exit = match (is_unread && is_stopped && signal.is_none(), is_copied) {
        (true, _) => Exit::Unread.into(),
        (false, false) if exit == Exit::Success.into() => signal.unwrap_or(Exit::Io).into(),
        (false, _) => exit,
    };
    Ok(Ended { exit, status, error })
}

/// Copies what the run has left to a folder; returns whether all of it was copied.
async fn copy_out(
    workspace: &Workspace,
    outcome: &RunOutcome,
    out: &Folder,
    stop: &CancellationToken,
) -> bool {
    // The signal that stopped the run is not one to stop this.
    let stop = if stop.is_cancelled() { CancellationToken::new() } else { stop.clone() };
    let budget = workspace.bridge.settings.workspace_size.value;
    outputs::copy(&workspace.sessions, outcome, out, budget, &stop).await
}

/// Says how many pictures were not shown, in place of addresses that nobody can read once this process has ended.
fn note_pictures(outcome: &mut RunOutcome, hidden: usize) {
    outcome.displays.clear();
    if hidden > 0 {
        let (what, them) = match hidden {
            1 => ("1 picture was".into(), "it"),
            _ => (format!("{hidden} pictures were"), "them"),
        };
        outcome.notices.push(format!("{what} displayed: `--out DIR` writes {them} to files"));
    }
}

/// Runs the code and passes on its output. Code whose output cannot be written is stopped.
async fn run<P: RunPython>(
    sessions: &P,
    request: &RunRequest,
    sink: &mut Sink<impl AsyncWrite + Unpin>,
    stop: &CancellationToken,
    caller: impl FnOnce(mpsc::Sender<Progress>) -> Caller,
) -> (RunOutcome, io::Result<()>) {
    let (progress, mut events) = mpsc::channel(QUEUE);
    let forwarding = async {
        while let Some(event) = events.recv().await {
            if let Err(error) = sink.handle(event).await {
                stop.cancel();
                events.close();
                return Err(error);
            }
        }
        Ok(())
    };
    // The run drops the sender, which ends the other half.
    tokio::join!(sessions.run(request.clone(), caller(progress)), forwarding)
}

struct Sink<W> {
    stdout: W,
    stderr: W,
    spinner: Spinner,
    /// Whether output is written as it comes.
    streams: bool,
    pictures: Pictures,
    /// Pictures that were not shown.
    hidden: usize,
    screen: Screen,
}

impl<W: AsyncWrite + Unpin> Sink<W> {
    fn new(stdout: W, stderr: W, streams: bool) -> Self {
        Self {
            stdout,
            stderr,
            spinner: Spinner::default(),
            streams,
            pictures: Pictures::default(),
            hidden: 0,
            screen: Screen::default(),
        }
    }

    async fn handle(&mut self, event: Progress) -> io::Result<()> {
        let screen = self.screen.clone();
        let _turn = screen.turn().await;
        match event {
            Progress::Preparing(what) => self.spinner.show(what),
            Progress::Running => self.spinner.clear(),
            // The terminal shows the output of the code now.
            Progress::Calling(_) => {}
            Progress::Output(..) if !self.streams => {}
            Progress::Reported(what) => self.spinner.show(what),
            Progress::Displayed(_, picture) => {
                match self.pictures.sequence(&picture).filter(|_| self.streams) {
                    Some(sequence) => {
                        self.stdout.write_all(&sequence).await?;
                        self.stdout.flush().await?;
                    }
                    None => self.hidden += 1,
                }
            }
            Progress::Output(stream, bytes) => {
                self.spinner.clear();
                let output = match stream {
                    OutputStream::Stdout => &mut self.stdout,
                    OutputStream::Stderr | OutputStream::Traceback => &mut self.stderr,
                };
                output.write_all(&bytes).await?;
                output.flush().await?;
            }
        }
        Ok(())
    }

    async fn write_result(&mut self, text: &str) -> io::Result<()> {
        self.stdout.write_all(text.as_bytes()).await?;
        self.stdout.write_all(b"\n").await?;
        self.stdout.flush().await
    }

    /// Writes what the output does not say.
    async fn write_remarks(&mut self, outcome: &RunOutcome) -> io::Result<()> {
        for notice in &outcome.notices {
            self.stderr.write_all(plain(&(remark(notice) + "\n")).as_bytes()).await?;
        }
        if let Some(error) = outcome.error.as_ref().filter(|error| !is_shown(error, &outcome.stderr.text)) {
            let (why, hint) = split_hint(error);
            let hint = hint.map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
            self.stderr.write_all(plain(&format!("error: {why}\n{hint}")).as_bytes()).await?;
        }
        self.stderr.flush().await
    }
}

/// Returns the exit status of the code, as a process would pass it on, or the one that says why there is none.
pub(super) fn exit_code(outcome: &RunOutcome, signal: Option<Exit>) -> ExitCode {
    match (outcome.status, outcome.failure) {
        (Status::Success | Status::Running, _) => Exit::Success.into(),
        (Status::Timeout, _) => Exit::Timeout.into(),
        (Status::Refused, _) | (_, Some(Failure::Request)) => Exit::Usage.into(),
        (Status::Cancelled, _) => signal.unwrap_or(Exit::Interrupted).into(),
        (Status::Error, Some(Failure::NoRuntime)) => Exit::NoRuntime.into(),
        (Status::Error, Some(Failure::NoImage)) => Exit::NoImage.into(),
        (Status::Error, Some(Failure::Sandbox | Failure::Preparation)) => Exit::Sandbox.into(),
        (Status::Error, Some(Failure::Code) | None) => match outcome.exit_code {
            Some(code) => ExitCode::from((code & 0xff) as u8),
            None => ExitCode::FAILURE,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;
    use crate::fake_sessions::{FakeSessions, outcome};
    use crate::settings::OutputMode;

    fn request(code: &str) -> RunRequest {
        RunRequest {
            code: code.into(),
            servers: Vec::new(),
            timeout: std::time::Duration::from_secs(5),
            session: "main".into(),
            clamped: None,
        }
    }

    fn caller(stop: &CancellationToken) -> impl FnOnce(mpsc::Sender<Progress>) -> Caller {
        let stop = stop.clone();
        |progress| Caller::without_answers(progress, stop)
    }

    #[tokio::test]
    async fn output_is_passed_on_to_its_own_stream() {
        let stop = CancellationToken::new();
        let (sessions, mut sink) = (FakeSessions::default(), Sink::new(Vec::new(), Vec::new(), true));
        let (outcome, written) =
            run(&sessions, &request("print a\nb"), &mut sink, &stop, caller(&stop)).await;
        assert_eq!(outcome.status, Status::Success);
        written.unwrap();
        assert_eq!((sink.stdout, sink.stderr), (b"a\nb".to_vec(), b"a\nb".to_vec()));
    }

    #[tokio::test]
    async fn output_waits_while_a_question_is_open() {
        let mut sink = Sink::new(Vec::new(), Vec::new(), true);
        let screen = sink.screen.clone();
        let question = screen.turn().await;
        let mut writing =
            Box::pin(sink.handle(Progress::Output(OutputStream::Stdout, b"Allow it? y".into())));
        assert!(futures_util::poll!(&mut writing).is_pending());
        drop(question);
        writing.await.unwrap();
        assert_eq!(sink.stdout, b"Allow it? y");
    }

    #[tokio::test]
    async fn with_a_mode_only_the_result_is_written() {
        let stop = CancellationToken::new();
        let (sessions, mut sink) = (FakeSessions::default(), Sink::new(Vec::new(), Vec::new(), false));
        let (outcome, _) = run(&sessions, &request("print x"), &mut sink, &stop, caller(&stop)).await;
        assert!(sink.stdout.is_empty() && sink.stderr.is_empty());
        let payload = Payload::new(&request("print x"), outcome);
        sink.write_result(&render_plain(&payload, OutputMode::Json)).await.unwrap();
        assert_eq!(
            String::from_utf8(sink.stdout).unwrap(),
            "{\"status\":\"success\",\"summary\":\"Success\",\"exitCode\":0,\"stdout\":[\"x\"]}\n"
        );
    }

    struct Closed;

    impl AsyncWrite for Closed {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn code_whose_output_nobody_reads_is_stopped() {
        let (sessions, mut sink) = (FakeSessions::default(), Sink::new(Closed, Closed, true));
        let stop = CancellationToken::new();
        let (outcome, written) =
            run(&sessions, &request("report a b c"), &mut sink, &stop, caller(&stop)).await;
        assert_eq!(outcome.status, Status::Cancelled);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn remarks_say_only_what_the_output_does_not() {
        let mut raised = outcome(Status::Error, "");
        raised.error = Some("ValueError: no".into());
        raised.notices = vec!["the session is new".into()];
        let mut silent = Sink::new(Vec::new(), Vec::new(), true);
        silent.write_remarks(&raised).await.unwrap();
        assert_eq!(silent.stderr, b"note: the session is new\nerror: ValueError: no\n");
        raised.notices.clear();
        raised.stderr.text = "Traceback …\nValueError: no\n".into();
        let mut shown = Sink::new(Vec::new(), Vec::new(), true);
        shown.write_remarks(&raised).await.unwrap();
        assert_eq!(shown.stderr, b"");
        // Another error of the same words came before.
        raised.stderr.text = "ValueError: no\nhandled\n".into();
        let mut handled = Sink::new(Vec::new(), Vec::new(), true);
        handled.write_remarks(&raised).await.unwrap();
        assert_eq!(handled.stderr, b"error: ValueError: no\n");
        raised.error = Some("no package named x; hint: did you mean y?".into());
        let mut refused = Sink::new(Vec::new(), Vec::new(), true);
        refused.write_remarks(&raised).await.unwrap();
        assert_eq!(refused.stderr, b"error: no package named x\nhint: did you mean y?\n");
    }

    #[test]
    fn the_exit_status_says_how_the_run_ended() {
        let exit = |status, failure, code, signal| {
            exit_code(&RunOutcome { failure, exit_code: code, ..outcome(status, "") }, signal)
        };
        let error = Status::Error;
        assert_eq!(exit(Status::Success, None, Some(0), None), ExitCode::SUCCESS);
        assert_eq!(exit(error, Some(Failure::Code), Some(3), None), ExitCode::from(3));
        assert_eq!(exit(error, Some(Failure::Code), Some(-1), None), ExitCode::from(255));
        assert_eq!(exit(error, Some(Failure::Code), None, None), ExitCode::from(1));
        assert_eq!(exit(error, Some(Failure::NoRuntime), None, None), ExitCode::from(69));
        assert_eq!(exit(error, Some(Failure::NoImage), None, None), ExitCode::from(72));
        assert_eq!(exit(error, Some(Failure::Sandbox), Some(137), None), ExitCode::from(70));
        assert_eq!(exit(error, Some(Failure::Preparation), None, None), ExitCode::from(70));
        assert_eq!(exit(Status::Timeout, None, None, None), ExitCode::from(124));
        assert_eq!(exit(Status::Cancelled, None, None, Some(Exit::Interrupted)), ExitCode::from(130));
        assert_eq!(exit(Status::Cancelled, None, None, Some(Exit::Terminated)), ExitCode::from(143));
    }
}
