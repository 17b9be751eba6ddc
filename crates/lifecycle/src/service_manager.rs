//! Messages to the service manager (sd_notify(3)): ready, stopping, and the pings of the watchdog.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    pin::pin,
    process,
    time::Duration,
};

use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::worker_threads::WorkerThreads;

/// How long a message may wait while the service manager's queue is full.
const SEND_MAX: Duration = Duration::from_millis(100);
/// Number of pings in the watchdog's timeout.
const PINGS_PER_TIMEOUT: u32 = 4;

/// The socket of the service manager that started this process.
pub(crate) struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
    /// The service manager ends the process if it gets no ping for this long.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The service manager that `$NOTIFY_SOCKET` names. `None` if the variable is not set. An unusable socket is logged.
    pub(crate) fn from_environment() -> Option<Self> {
        let name = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty())?;
        let watchdog = watchdog(env::var_os("WATCHDOG_USEC"), env::var_os("WATCHDOG_PID"));
        Self::new(&name, watchdog)
            .inspect_err(|error| {
                tracing::error!(socket = %name.display(), %error, "cannot notify the service manager");
            })
            .ok()
    }

    /// Whether a service manager has started this process.
    pub(crate) fn is_named() -> bool {
        env::var_os("NOTIFY_SOCKET").is_some_and(|name| !name.is_empty())
    }

    fn new(name: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_MAX))?;
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        Ok(Self {
            socket,
            address,
            watchdog,
        })
    }

    /// Notifies that the listeners serve.
    pub(crate) fn ready(&self) {
        self.send("READY=1");
    }

    /// Notifies that another process of the service is its main process now.
    pub(crate) fn main_process(&self, pid: u32) {
        self.send(&format!("MAINPID={pid}"));
    }

    /// Notifies that the process finishes running requests and then exits.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Pings the service manager as long as the event loops of the main thread and of every worker thread run. Returns if
    /// the service manager expects no pings, or if a worker thread has ended.
    pub(crate) async fn keep_pinging(&self, workers: &WorkerThreads) {
        let Some(watchdog) = self.watchdog else {
            return;
        };
        let mut due = interval(watchdog / PINGS_PER_TIMEOUT);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            due.tick().await;
            let mut turn = pin!(workers.have_a_turn());
            let finished = timeout(watchdog / 2, &mut turn).await;
            if finished.is_err() {
                tracing::error!(
                    watchdog_seconds = watchdog.as_secs_f64(),
                    "a worker thread does not respond; the service manager gets no ping until it does"
                );
            }
            let all_run = match finished {
                Ok(all_run) => all_run,
                Err(_) => turn.await,
            };
            if !all_run {
                tracing::error!(
                    "a worker thread has ended; the service manager gets no more pings"
                );
                return;
            }
            self.send("WATCHDOG=1");
        }
    }

    fn send(&self, message: &str) {
        if let Err(error) = self.socket.send_to_addr(message.as_bytes(), &self.address) {
            tracing::error!(message, %error, "cannot notify the service manager");
        }
    }
}

/// The watchdog's timeout. `None` if the service manager expects no pings of this process.
fn watchdog(microseconds: Option<OsString>, pid: Option<OsString>) -> Option<Duration> {
    let is_ours = pid.is_none_or(|pid| *pid == *process::id().to_string());
    let microseconds = microseconds?.to_str()?.parse().ok()?;
    (is_ours && microseconds > 0).then(|| Duration::from_micros(microseconds))
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, mpsc},
        thread,
        time::Instant,
    };

    use tempfile::TempDir;
    use tokio::time;

    use super::*;

    const WATCHDOG: Duration = Duration::from_secs(30);
    /// Longer than any step that does not hang.
    const LIMIT: Duration = Duration::from_secs(20);

    /// The socket of a service manager, and the process's connection to it.
    fn service_manager(watchdog: Duration) -> (TempDir, UnixDatagram, ServiceManager) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("an option");
        let manager = ServiceManager::new(path.as_os_str(), Some(watchdog)).expect("an address");
        (directory, socket, manager)
    }

    fn received(socket: &UnixDatagram) -> Option<String> {
        let mut bytes = [0; 64];
        let length = socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    async fn assert_pinged(socket: &UnixDatagram) {
        let began = Instant::now();
        let message = loop {
            match received(socket) {
                Some(message) => break message,
                None => time::sleep(Duration::from_millis(1)).await,
            }
            assert!(began.elapsed() < LIMIT, "no ping");
        };
        assert_eq!(message, "WATCHDOG=1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_thread_that_hangs_stops_the_pings_until_it_continues() {
        let (_directory, socket, manager) = service_manager(WATCHDOG);
        let workers = WorkerThreads::idle(2);
        let (hangs, hung) = tokio::sync::oneshot::channel();
        let (let_go, held) = mpsc::sync_channel::<()>(0);
        let test = async {
            assert_pinged(&socket).await;
            workers.event_loop(1).spawn(async move {
                let _ = hangs.send(());
                let _ = held.recv();
            });
            hung.await.expect("it hangs");
            // One check may have finished before. The paused clock advances when this thread is idle.
            time::sleep(WATCHDOG).await;
            while received(&socket).is_some() {}
            time::sleep(10 * WATCHDOG).await;
            assert_eq!(received(&socket), None, "a worker thread hangs");
            drop(let_go);
            assert_pinged(&socket).await;
        };
        tokio::select! {
            () = manager.keep_pinging(&workers) => panic!("the pings have ended"),
            () = test => {}
        }
    }

    #[tokio::test]
    async fn a_main_thread_that_hangs_sends_no_pings() {
        let watchdog = Duration::from_millis(40);
        let (_directory, socket, manager) = service_manager(watchdog);
        let workers = Arc::new(WorkerThreads::idle(1));
        let pinging = tokio::spawn({
            let workers = Arc::clone(&workers);
            async move { manager.keep_pinging(&workers).await }
        });
        assert_pinged(&socket).await;
        while received(&socket).is_some() {}
        // The main thread hangs here.
        thread::sleep(5 * watchdog);
        assert_eq!(received(&socket), None, "the main thread hangs");
        assert_pinged(&socket).await;
        pinging.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_thread_that_has_ended_ends_the_pings() {
        let (_directory, _socket, manager) = service_manager(WATCHDOG);
        let mut workers = WorkerThreads::idle(2);
        workers.end(1);
        manager.keep_pinging(&workers).await;
    }

    #[test]
    fn pings_are_expected_only_of_the_process_that_is_named() {
        let us = || Some(process::id().to_string().into());
        let text = |text: &str| Some(OsString::from(text));
        let expected = Some(Duration::from_secs(2));
        assert_eq!(watchdog(text("2000000"), None), expected);
        assert_eq!(watchdog(text("2000000"), us()), expected);
        assert_eq!(watchdog(text("2000000"), text("1")), None);
        for microseconds in [None, text("0"), text(""), text("-1"), text("soon")] {
            assert_eq!(watchdog(microseconds, us()), None);
        }
    }

    #[test]
    fn a_service_manager_that_is_gone_or_has_an_invalid_name_stops_nothing() {
        let gone = OsStr::new("/nonexistent/notify");
        ServiceManager::new(gone, None).expect("an address").ready();
        let long = OsString::from("/x".repeat(100));
        assert!(ServiceManager::new(&long, None).is_err());
    }
}
