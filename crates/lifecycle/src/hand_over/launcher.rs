//! The process between a serving process and the new program that it starts.
//!
//! systemd waits for the end of a main process only if that process is its child. A new program that the serving process
//! started itself would stay a child of that one. The serving process therefore starts its own program once more, as the
//! launcher, which starts the new program. When the new process takes over, the launcher ends, and the kernel makes the new
//! process a child of the service manager: of process 1, or of the subreaper that started the serving process.
//!
//! Until then, the launcher is the parent: it reports how the new process ends, and ends it on request.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::ExitStatusExt},
    },
    process::{self, Child, Command, ExitCode, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, WaitId, WaitIdOptions, waitid},
};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

use super::{ANSWER_MAX, ChangedProgram, MESSAGE_BYTES_MAX, channel::Channel};

/// The first argument of a launcher. The path of the new program and its arguments follow.
const LAUNCHER: &str = "--launch-successor";
/// The serving process allows the new process to own its sockets. The new process then continues when the serving process ends.
const LET_OWN: u8 = b'o';
/// The serving process has given up: the new process is ended.
const END: u8 = b'e';
/// How often the end of a launcher is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// What a launcher reports.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LauncherReport {
    /// The new process runs.
    Started { pid: u32 },
    /// The new program cannot be run, and why.
    NotStarted { why: String },
    /// The new process has ended with this wait status.
    Ended { status: i32 },
}

/// A launcher, as the serving process sees it. If it is dropped, the launcher ends the new process, unless that owns the
/// sockets.
#[derive(Debug)]
pub(super) struct Launcher {
    process: Child,
    control: UnixStream,
    /// The program that it starts.
    pub(super) program: ChangedProgram,
    /// The new process has the right to the sockets.
    owns: bool,
    /// The new process was ended.
    ended: bool,
}

/// The reports of a launcher, in order.
pub(super) struct LauncherReports(tokio::net::UnixStream);

impl Launcher {
    /// Starts a launcher of this program.
    ///
    /// # Errors
    /// The system starts no process.
    pub(super) fn start(program: ChangedProgram) -> io::Result<(Self, LauncherReports)> {
        let (control, theirs) = UnixStream::pair()?;
        let reports = control.try_clone()?;
        reports.set_nonblocking(true)?;
        // Both descriptors share this flag. It does no harm to the other one, because writes of one byte do not block.
        let reports = tokio::net::UnixStream::from_std(reports)?;
        let mut command = program.command(LAUNCHER);
        let process = command.stdin(OwnedFd::from(theirs)).spawn()?;
        let launcher = Self {
            process,
            control,
            program,
            owns: false,
            ended: false,
        };
        Ok((launcher, LauncherReports(reports)))
    }

    /// Whether the launcher is the parent of the process `pid`.
    pub(super) fn has_started(&self, pid: u32) -> bool {
        parent(pid).is_ok_and(|parent| parent == self.process.id())
    }

    /// Allows the new process to own the sockets, unless it was ended. Returns whether it owns them.
    pub(super) fn let_own(&mut self) -> bool {
        if !self.ended {
            self.owns = true;
            self.send(LET_OWN);
        }
        self.owns
    }

    /// Whether the new process has the right to the sockets.
    pub(super) fn owns(&self) -> bool {
        self.owns
    }

    /// Orders the launcher to end the new process, unless that owns the sockets. Returns whether it ends.
    pub(super) fn end_unless_owner(&mut self) -> bool {
        if !self.owns {
            self.end();
        }
        self.ended
    }

    /// Orders the launcher to end the new process.
    pub(super) fn end(&mut self) {
        self.ended = true;
        self.send(END);
    }

    /// Waits for the end of the launcher, after which the new process is a child of the service manager.
    ///
    /// # Errors
    /// The launcher does not end within [`ANSWER_MAX`].
    pub(super) fn release(mut self) -> io::Result<()> {
        let _ = self.control.shutdown(std::net::Shutdown::Both);
        let began = Instant::now();
        while self.process.try_wait()?.is_none() {
            if began.elapsed() > ANSWER_MAX {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::sleep(CHECK_INTERVAL);
        }
        Ok(())
    }

    fn send(&self, order: u8) {
        // A launcher that has ended needs no order.
        let _ = (&self.control).write_all(&[order]);
    }
}

impl LauncherReports {
    /// The next report. `None` if the launcher has ended.
    pub(super) async fn next(&mut self) -> Option<LauncherReport> {
        let length = self.0.read_u32().await.ok()?;
        if length > MESSAGE_BYTES_MAX {
            return None;
        }
        let mut body = vec![0; length as usize];
        self.0.read_exact(&mut body).await.ok()?;
        serde_json::from_slice(&body).ok()
    }
}

pub(super) fn parent(pid: u32) -> io::Result<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program is in parentheses, and may contain any character. The state comes after it.
    let after_name = stat.rsplit_once(')').map(|(_, rest)| rest);
    let parent = after_name.and_then(|rest| rest.split_whitespace().nth(1));
    let parent = parent.and_then(|parent| parent.parse().ok());
    parent.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Runs this process as a launcher if its arguments say so, else returns `None`. `arguments` are the arguments after the name
/// of the program.
pub fn launch_successor(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if arguments.next()? != OsStr::new(LAUNCHER) {
        return None;
    }
    let mut command = Command::new(arguments.next()?);
    command.args(arguments).stdin(Stdio::null());
    Some(match launch(&mut command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

/// Starts the new program and stays until the serving process releases it, or until it ends.
fn launch(command: &mut Command) -> io::Result<()> {
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let channel = Channel::new(control.try_clone()?)?;
    let child = match command.spawn() {
        Ok(child) => Arc::new(Mutex::new(child)),
        Err(error) => {
            let why = error.to_string();
            return channel.send(&LauncherReport::NotStarted { why });
        }
    };
    let pid = locked(&child).id();
    let watched = Arc::clone(&child);
    let sent = channel.send(&LauncherReport::Started { pid });
    let watch = thread::Builder::new().spawn(move || {
        if let Ok(status) = wait(&watched) {
            let status = status.into_raw();
            let _ = channel.send(&LauncherReport::Ended { status });
        }
        process::exit(0);
    });
    if sent.is_ok() && is_released(&control) {
        return Ok(());
    }
    let _ = locked(&child).kill();
    // That thread ends this process.
    let _ = watch?.join();
    Ok(())
}

/// Waits for the last order of the serving process: whether the new process may continue without this one.
fn is_released(mut control: &UnixStream) -> bool {
    let mut owns = false;
    loop {
        let mut order = [0];
        match control.read(&mut order) {
            Ok(1..) if order == [LET_OWN] => owns = true,
            Ok(1..) => return false,
            Ok(0) => return owns,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return owns,
        }
    }
}

/// Waits for the end of a process.
fn wait(child: &Mutex<Child>) -> io::Result<ExitStatus> {
    let pid = Pid::from_child(&locked(child));
    // The process ID stays in use until then, so that the other thread signals no other process.
    let kept = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(error) = waitid(WaitId::Pid(pid), kept) {
        if error != Errno::INTR {
            return Err(error.into());
        }
    }
    locked(child).wait()
}

fn locked(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}
