//! After a hand-over, the former process reports its requests until it ends. The status of the new process has them too,
//! because an operator who drains a member must know about every request there.

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use admin::{FormerProcessStatus, MemberStatus, RunningRequestStatus, TunnelStatus};
use membership::{REQUESTS_NAMED_MAX, TUNNELS_NAMED_MAX};
use serde::{Deserialize, Serialize};
use state::supervise::blocking;
use tokio::{runtime::Handle, sync::watch, time::timeout};

use super::{ANSWER_MAX, ToNew, ToServing, channel::Channel, followed_state};
use crate::shared_state::App;

/// How often a former process compares its requests with its last report.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Members in one message.
const MEMBERS_PER_MESSAGE: usize = 32;
/// Maximum number of members, over all former processes, whose requests are known.
const MEMBERS_MAX: usize = 16_384;
/// How long a change of members' states waits until the former process applies it too.
const FOLLOW_MAX: Duration = Duration::from_secs(2);

/// The report about former processes: the one that handed over to this process, and those before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FormerReport {
    processes: Vec<FormerProcessStatus>,
    members: Vec<FormerMember>,
    /// The stored states of members that all these processes apply. `None` while one of the processes applies none.
    states: Option<String>,
    /// Whether the message is the last one of this report.
    is_last: bool,
}

/// The requests of a former process to a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FormerMember {
    pool: String,
    address: String,
    in_flight: u64,
    in_flight_by_work: BTreeMap<String, u64>,
    tunnels: u64,
    oldest_tunnels: Vec<TunnelStatus>,
    oldest_requests: Vec<RunningRequestStatus>,
}

/// The former processes that have not ended.
#[derive(Debug)]
pub(crate) struct FormerProcesses {
    /// `None` if there are none.
    reports: watch::Sender<Option<FormerReport>>,
    /// The connection to the process that handed over to this one.
    channel: Mutex<Option<Channel>>,
}

impl Default for FormerProcesses {
    fn default() -> Self {
        Self {
            reports: watch::Sender::new(None),
            channel: Mutex::default(),
        }
    }
}

impl FormerProcesses {
    /// The processes, for the status.
    pub(crate) fn status(&self) -> Vec<FormerProcessStatus> {
        let report = self.reports.borrow();
        report
            .as_ref()
            .map_or_else(Vec::new, |report| report.processes.clone())
    }

    /// The process that handed over last.
    pub(crate) fn pid(&self) -> Option<u32> {
        let processes = self.status();
        processes.first().map(|process| process.pid)
    }

    /// Their requests to all members.
    pub(crate) fn in_flight(&self) -> u64 {
        self.reports
            .borrow()
            .iter()
            .flat_map(|report| &report.processes)
            .map(|process| process.in_flight)
            .sum()
    }

    /// Adds their requests to those of this process at a member.
    pub(crate) fn add_to(&self, pool: &str, status: &mut MemberStatus) {
        let report = self.reports.borrow();
        let members = report.iter().flat_map(|report| &report.members);
        for member in members.filter(|one| one.pool == pool && one.address == status.address) {
            status.in_flight += member.in_flight;
            for (work, count) in &member.in_flight_by_work {
                *status.in_flight_by_work.entry(work.clone()).or_default() += count;
            }
            status.tunnels += member.tunnels;
            // The tunnels of the former process are the oldest.
            let tunnels = member.oldest_tunnels.iter().cloned();
            status.oldest_tunnels.splice(0..0, tunnels);
            status.oldest_tunnels.truncate(TUNNELS_NAMED_MAX);
            let requests = member.oldest_requests.iter().cloned();
            status.oldest_requests.splice(0..0, requests);
            status.oldest_requests.truncate(REQUESTS_NAMED_MAX);
        }
    }

    /// Waits until they have ended.
    pub(crate) async fn ended(&self) {
        let _ = self.reports.subscribe().wait_for(Option::is_none).await;
    }

    /// Waits until they apply the stored states of members, for [`FOLLOW_MAX`] at most.
    pub(crate) async fn follow(&self, directory: &Path) {
        if self.reports.borrow().is_none() {
            return;
        }
        let directory = directory.to_owned();
        let stamp = move || followed_state::stamp_of_states(&directory);
        let Some(stored) = blocking("read-stored-state", stamp).await else {
            return;
        };
        let mut reports = self.reports.subscribe();
        let follows = |report: &Option<FormerReport>| {
            report
                .as_ref()
                .is_none_or(|report| report.states.as_ref() == Some(&stored))
        };
        let _ = timeout(FOLLOW_MAX, reports.wait_for(follows)).await;
    }

    /// Adds a message of the former process. A report replaces the previous one when its last message has arrived.
    pub(super) fn receive(&self, part: FormerReport, parts: &mut FormerReport) {
        let room = MEMBERS_MAX.saturating_sub(parts.members.len());
        parts.processes = part.processes;
        parts.states = part.states;
        parts.members.extend(part.members.into_iter().take(room));
        if part.is_last {
            self.reports.send_replace(Some(std::mem::take(parts)));
        }
    }

    /// The former process drains, and obeys this process over the channel.
    pub(super) fn begin(&self, channel: &Channel) {
        *self.channel() = channel.try_clone().ok();
    }

    /// The former process has ended, and with it those before it.
    pub(crate) fn end(&self) {
        *self.channel() = None;
        self.reports.send_replace(None);
    }

    /// Makes the former processes open their log files again.
    pub(crate) async fn reopen_logs(self: &Arc<Self>) {
        let former = Arc::clone(self);
        // A process that does not read its messages would delay the runtime.
        let sent = blocking("former-process", move || match &*former.channel() {
            Some(channel) => channel.send(&ToServing::ReopenLogs),
            None => Ok(()),
        });
        if let Some(Err(error)) = sent.await {
            tracing::error!(%error, "the former process does not open its log files again");
        }
    }

    fn channel(&self) -> MutexGuard<'_, Option<Channel>> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The requests of this process, and of the processes before it that have not ended.
pub(super) fn report(app: &App) -> FormerReport {
    let mut report = app.hand_over.former.reports.borrow().clone();
    let states = app.hand_over.followed_states().clone();
    let states = match &report {
        Some(before) if before.states != states => None,
        _ => states,
    };
    let report = report.get_or_insert_default();
    report.states = states;
    let generation = app.generation();
    let mut in_flight = 0;
    for runtime in &*generation.pools {
        let busy = runtime.pool.entries().iter().enumerate();
        let busy = busy.filter(|(_, entry)| entry.member.in_flight() > 0);
        for (index, _) in busy {
            let status = app.membership.status_of(runtime, index);
            in_flight += status.in_flight;
            report.members.push(FormerMember {
                pool: runtime.pool.name().to_string(),
                address: status.address,
                in_flight: status.in_flight,
                in_flight_by_work: status.in_flight_by_work,
                tunnels: status.tunnels,
                oldest_tunnels: status.oldest_tunnels,
                oldest_requests: status.oldest_requests,
            });
        }
    }
    report.processes.push(FormerProcessStatus {
        pid: std::process::id(),
        connections: app.state().listeners.connections().into(),
        in_flight,
    });
    std::mem::take(report)
}

pub(super) fn send(channel: &Channel, report: &FormerReport) -> io::Result<()> {
    let mut parts = report.members.chunks(MEMBERS_PER_MESSAGE).peekable();
    loop {
        let part = parts.next().unwrap_or_default();
        let is_last = parts.peek().is_none();
        channel.send(&ToNew::Former(FormerReport {
            processes: report.processes.clone(),
            members: part.to_vec(),
            states: report.states.clone(),
            is_last,
        }))?;
        if is_last {
            return Ok(());
        }
    }
}

/// Reports the requests of this process whenever they have changed, until it has finished them. Opens the log files again
/// when the new process does.
///
/// # Errors
/// The new process is gone.
pub(super) fn keep_reporting(
    app: &Arc<App>,
    channel: &Channel,
    mut reported: FormerReport,
) -> io::Result<()> {
    let mut finished = app.hand_over.finished.subscribe();
    loop {
        let now = report(app);
        if now != reported {
            send(channel, &now)?;
            reported = now;
        }
        while channel.has_message()? {
            match channel.receive(ANSWER_MAX)?.0 {
                // Errors are logged there.
                ToServing::ReopenLogs => drop(Handle::current().block_on(app.reopen_logs())),
                _ => tracing::warn!("an unexpected message of the new process"),
            }
        }
        let is_finished = timeout(REPORT_INTERVAL, finished.wait_for(|finished| *finished));
        if Handle::current().block_on(is_finished).is_ok() {
            return Ok(());
        }
    }
}
