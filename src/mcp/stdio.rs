//! Standard input and output without blocking a thread, whether they are pipes, sockets (as Node-based clients use),
//! terminals or files.
//!
//! The flags of the descriptors are not changed, because other processes share them. Pipes and terminals are opened a
//! second time, sockets are used with flags for each call, and files, which do not block for long, go through the
//! blocking pool.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// A standard stream.
#[derive(Debug)]
pub(crate) enum Stream {
    /// A non-blocking descriptor of our own.
    Ready(AsyncFd<OwnedFd>),
    /// A socket, made non-blocking for each call.
    Socket(AsyncFd<OwnedFd>),
    /// A file or device, which is always ready.
    File(tokio::fs::File),
}

/// Opens standard input. Needs a runtime.
pub(crate) fn input() -> io::Result<Stream> {
    Stream::open(io::stdin().as_fd(), OFlags::RDONLY, Interest::READABLE)
}

/// Opens standard output. Needs a runtime.
pub(crate) fn output() -> io::Result<Stream> {
    Stream::open(io::stdout().as_fd(), OFlags::WRONLY, Interest::WRITABLE)
}

/// Opens standard error. Needs a runtime.
pub(crate) fn error_output() -> io::Result<Stream> {
    Stream::open(io::stderr().as_fd(), OFlags::WRONLY, Interest::WRITABLE)
}

/// Waits until the reader of standard output has closed it. Never returns for a file.
pub(crate) async fn output_hung_up() {
    hung_up(io::stdout().as_fd()).await;
}

#[cfg(target_os = "linux")]
async fn hung_up(fd: BorrowedFd<'_>) {
    // Errors and hang-ups are always reported. Only urgent data is asked for, which these streams never have, so that
    // neither free space nor the end of the other direction wakes this up.
    let watched = fd.try_clone_to_owned().and_then(|fd| register(fd, Interest::PRIORITY));
    let Ok(watched) = watched else { return std::future::pending().await };
    while let Ok(mut guard) = watched.ready(Interest::PRIORITY | Interest::ERROR).await {
        if has_hung_up(watched.get_ref().as_fd()) {
            return;
        }
        guard.clear_ready();
    }
}

/// On other systems the next write notices it.
#[cfg(not(target_os = "linux"))]
async fn hung_up(_: BorrowedFd<'_>) {
    std::future::pending().await
}

#[cfg(target_os = "linux")]
fn has_hung_up(fd: BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    match rustix::event::poll(&mut polled, Some(&Timespec::default())) {
        Ok(_) => polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL),
        Err(_) => false,
    }
}

impl Stream {
    fn open(fd: BorrowedFd<'_>, direction: OFlags, interest: Interest) -> io::Result<Self> {
        let own = fd.try_clone_to_owned()?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
        let ready = match kind {
            FileType::Socket => register(own, interest).map(Self::Socket),
            FileType::Fifo | FileType::CharacterDevice => {
                reopen(fd, direction).and_then(|fd| register(fd, interest)).map(Self::Ready)
            }
            _ => return Ok(Self::file(own)),
        };
        // Devices such as /dev/null cannot be polled.
        ready.or_else(|_| fd.try_clone_to_owned().map(Self::file))
    }

    fn file(fd: OwnedFd) -> Self {
        Self::File(tokio::fs::File::from_std(fd.into()))
    }
}

/// Opens the same pipe or terminal with flags of its own. Where that is impossible, the shared flags are changed.
fn reopen(fd: BorrowedFd<'_>, direction: OFlags) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = direction | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from).or_else(|_| {
        let own = fd.try_clone_to_owned()?;
        rustix::fs::fcntl_setfl(&own, rustix::fs::fcntl_getfl(&own)? | OFlags::NONBLOCK)?;
        Ok(own)
    })
}

#[expect(unsafe_code, reason = "registering a descriptor is unsafe, because it has to stay the same one")]
fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by what is registered, stays open for as long as that lives, and an `OwnedFd`
    // always returns the same number.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = match self.get_mut() {
            Self::File(file) => return Pin::new(file).poll_read(cx, buffer),
            Self::Ready(fd) => poll_call(fd, cx, AsyncFd::poll_read_ready, |fd| {
                rustix::io::read(fd, buffer.initialize_unfilled())
            }),
            Self::Socket(fd) => poll_call(fd, cx, AsyncFd::poll_read_ready, |fd| {
                rustix::net::recv(fd, buffer.initialize_unfilled(), RecvFlags::DONTWAIT).map(|(read, _)| read)
            }),
        };
        buffer.advance(ready!(read)?);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::File(file) => Pin::new(file).poll_write(cx, bytes),
            Self::Ready(fd) => {
                poll_call(fd, cx, AsyncFd::poll_write_ready, |fd| rustix::io::write(fd, bytes))
            }
            Self::Socket(fd) => {
                // On other systems the standard library ignores the signal.
                #[cfg(target_os = "linux")]
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                #[cfg(not(target_os = "linux"))]
                let flags = SendFlags::DONTWAIT;
                poll_call(fd, cx, AsyncFd::poll_write_ready, |fd| rustix::net::send(fd, bytes, flags))
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::File(file) => Pin::new(file).poll_flush(cx),
            Self::Ready(_) | Self::Socket(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

type PollReady =
    for<'a> fn(&'a AsyncFd<OwnedFd>, &mut Context<'_>) -> Poll<io::Result<AsyncFdReadyGuard<'a, OwnedFd>>>;

/// Makes a call as soon as the descriptor is ready for it.
fn poll_call(
    fd: &AsyncFd<OwnedFd>,
    cx: &mut Context<'_>,
    poll_ready: PollReady,
    mut call: impl FnMut(&OwnedFd) -> rustix::io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        let mut guard = ready!(poll_ready(fd, cx))?;
        if let Ok(result) = guard.try_io(|fd| Ok(retry_on_intr(|| call(fd.get_ref()))?)) {
            return Poll::Ready(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn open_input(fd: impl AsFd) -> Stream {
        Stream::open(fd.as_fd(), OFlags::RDONLY, Interest::READABLE).unwrap()
    }

    fn open_output(fd: impl AsFd) -> Stream {
        Stream::open(fd.as_fd(), OFlags::WRONLY, Interest::WRITABLE).unwrap()
    }

    fn waits(fd: impl AsFd) -> bool {
        !rustix::fs::fcntl_getfl(fd).unwrap().contains(OFlags::NONBLOCK)
    }

    /// Fills the descriptor until it takes no more, reads all of that at the other end, and compares.
    async fn writes_more_than_fits(mut output: Stream, mut reader: impl Read + Send + 'static) {
        let sent: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
        let expected = sent.clone();
        let writing = tokio::spawn(async move {
            output.write_all(&sent).await.unwrap();
            output.flush().await.unwrap();
        });
        let read = tokio::task::spawn_blocking(move || {
            let mut read = vec![0; expected.len()];
            reader.read_exact(&mut read).unwrap();
            read == expected
        });
        assert!(read.await.unwrap());
        writing.await.unwrap();
    }

    #[tokio::test]
    async fn a_pipe_is_read_and_written_and_its_flags_stay() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut input = open_input(&reader);
        assert!(matches!(input, Stream::Ready(_)));
        assert!(waits(&reader));
        let mut buffer = [0; 8];
        {
            let early = input.read(&mut buffer);
            tokio::select! { biased; _ = early => panic!("nothing was written"), () = std::future::ready(()) => {} }
        }
        writer.write_all(b"abc").unwrap();
        assert_eq!(input.read(&mut buffer).await.unwrap(), 3);
        drop(writer);
        assert_eq!(input.read(&mut buffer).await.unwrap(), 0);

        let (reader, writer) = io::pipe().unwrap();
        let output = open_output(&writer);
        assert!(waits(&writer));
        writes_more_than_fits(output, reader).await;
    }

    #[tokio::test]
    async fn a_socket_is_read_and_written_and_its_flags_stay() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut input = open_input(&ours);
        assert!(matches!(input, Stream::Socket(_)));
        theirs.write_all(b"abc").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(input.read(&mut buffer).await.unwrap(), 3);
        writes_more_than_fits(open_output(&ours), theirs.try_clone().unwrap()).await;
        assert!(waits(&ours) && waits(&theirs));
        drop(theirs);
        assert_eq!(input.read(&mut buffer).await.unwrap(), 0);
        assert!(open_output(&ours).write_all(b"x").await.is_err());
    }

    #[tokio::test]
    async fn a_file_and_an_always_ready_device_work_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut output = open_output(File::create(&path).unwrap());
        output.write_all(b"abc").await.unwrap();
        output.flush().await.unwrap();
        let mut read = String::new();
        open_input(File::open(&path).unwrap()).read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "abc");

        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        assert_eq!(open_input(&null).read(&mut [0; 8]).await.unwrap(), 0);
        open_output(&null).write_all(b"abc").await.unwrap();
    }

    #[tokio::test]
    async fn a_terminal_is_read_line_by_line_and_its_flags_stay() {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let terminal = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let mut input = open_input(&terminal);
        assert!(matches!(input, Stream::Ready(_)));
        rustix::io::write(&controller, b"abc\n").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(input.read(&mut buffer).await.unwrap(), 4);
        open_output(&terminal).write_all(b"x").await.unwrap();
        assert!(waits(&terminal));
    }

    #[tokio::test]
    async fn a_reader_that_went_away_is_noticed() {
        let (reader, writer) = io::pipe().unwrap();
        let watching = tokio::spawn(async move { hung_up(writer.as_fd()).await });
        tokio::task::yield_now().await;
        assert!(!watching.is_finished());
        drop(reader);
        watching.await.unwrap();
    }

    #[tokio::test]
    async fn a_socket_that_only_stopped_sending_has_not_hung_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let watched = ours.try_clone().unwrap();
        let watching = tokio::spawn(async move { hung_up(watched.as_fd()).await });
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        // When the end of what it sends is readable here, the watcher has been told as well.
        assert_eq!(open_input(&ours).read(&mut [0; 8]).await.unwrap(), 0);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!watching.is_finished());
        drop(theirs);
        watching.await.unwrap();
    }
}
