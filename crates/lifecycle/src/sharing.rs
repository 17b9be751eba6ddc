//! Shares operators' records with the other proxies of the fleet while `[fleet]` is configured.
//!
//! The records of this process decide ([`OperatorRecords`](::state::OperatorRecords)), and the store only carries them. No
//! request, start, reload or hand-over waits for the store, and a record that the store lacks changes nothing here.

mod alarms;
mod applying;
mod connection;
mod outcome;
mod registry;
mod sending;
pub(crate) mod state;
mod status;
mod turn;
pub(crate) mod view;
mod watcher;
mod writer;

use std::{sync::Arc, time::Duration};

use ::state::{random_part_of, supervise::SupervisedTasks};
use fleet::Record;
use fleet_store::{CHANGES_MAX, Put, Session, StoreError};
use telemetry::Alarm;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, interval, sleep_until, timeout},
};

use crate::shared_state::App;
use alarms::FleetAlarms;
use connection::FleetConnection;
pub(crate) use connection::etcd;
use registry::Registration;
use view::View;
use watcher::{News, watch_endpoint};

/// Maximum number of news of the store that wait to be applied. News that wait together are applied together.
const NEWS_MAX: usize = 64;
/// Number of endpoints that are watched at the same time, because a frozen endpoint is noticed only after seconds.
const WATCHES_MAX: usize = 2;
/// Maximum delay before records that the store lacks are put back. Each proxy waits for a random part of it, and the first one
/// puts them back.
const PUT_BACK_WITHIN: Duration = Duration::from_secs(2);
/// How often blocks that ended long ago are deleted from the store, and refused records are tried again. A proxy with a wrong
/// clock deletes blocks that the others put back, so this must not happen often.
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);
/// How often this proxy compares its entry with its current state, and tries to apply a withheld drain.
const TICK: Duration = Duration::from_secs(1);
/// How long a process that stops waits for the store to remove its entry.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// The task that shares records. Dropping it ends the task without notifying the other proxies, as after a hand-over.
pub(crate) struct SharingTask {
    task: SupervisedTasks,
    stop: watch::Sender<bool>,
}

impl SharingTask {
    pub(crate) fn start(app: &Arc<App>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut task = SupervisedTasks::new(&app.lasting.metrics.alarms);
        task.start("fleet", app, move |app| share_records(app, stopped.clone()));
        Self { task, stop }
    }

    /// Removes this proxy from the fleet and ends the task.
    pub(crate) async fn leave(mut self) {
        let _ = self.stop.send(true);
        let _ = timeout(LEAVE_WITHIN, self.task.ended()).await;
    }
}

async fn share_records(app: Arc<App>, mut stop: watch::Receiver<bool>) {
    app.membership.withhold_again();
    loop {
        let configured = FleetConnection::of(&app);
        let reloaded = app.sharing.reloaded.notified();
        let Some(connection) = configured else {
            alarms::clear(&app);
            tokio::select! {
                () = reloaded => continue,
                _ = stop.wait_for(|stop| *stop) => return,
            }
        };
        let settings = |app: &App| app.foundation().config.fleet.clone();
        let before = settings(&app);
        let mut member = Member::new(&app, connection);
        let is_stopped = tokio::select! {
            () = member.run() => false,
            () = until_changed(&app) => false,
            _ = stop.wait_for(|stop| *stop) => true,
        };
        // A proxy that only has a new certificate stays in the fleet.
        if is_stopped || settings(&app) != before {
            member.leave(is_stopped).await;
        }
        if is_stopped {
            return;
        }
    }
}

/// Waits until the fleet's configuration, its keys or the certificate towards its store change.
async fn until_changed(app: &App) {
    let before = FleetConnection::fingerprint(app);
    loop {
        app.sharing.reloaded.notified().await;
        if FleetConnection::fingerprint(app) != before {
            return;
        }
    }
}

/// This proxy as a member of the fleet.
struct Member<'a> {
    app: &'a Arc<App>,
    connection: FleetConnection,
    view: View,
    /// Which of the watches are open.
    watching: Vec<bool>,
    /// The connection for writes, and the endpoint that the next connection uses.
    writer: Option<Box<dyn Session>>,
    next_endpoint: usize,
    /// Maximum number of records that are written together.
    batch_max: usize,
    failures: u32,
    registration: Registration,
    /// When the lease of the turn was extended.
    turn_extended_at: Option<Instant>,
    alarms: FleetAlarms,
    /// How often this proxy has put back records that other proxies had replaced by records that it ignores.
    overwrites: u32,
    /// When records that the store lacks are put back.
    put_back_at: Option<Instant>,
    /// When the records of the store and of this process are compared as a whole.
    sweep_at: Option<Instant>,
    /// When the next attempt to write is made after a failure.
    retry_at: Option<Instant>,
}

impl<'a> Member<'a> {
    fn new(app: &'a Arc<App>, connection: FleetConnection) -> Self {
        let view = View::new(Arc::clone(&connection.keys), connection.site_prefix.clone());
        let count = connection.store.endpoints().len().max(1);
        Self {
            app,
            view,
            watching: vec![false; count.min(WATCHES_MAX)],
            writer: None,
            next_endpoint: random_part_of(Duration::from_millis(count as u64 - 1)).as_millis()
                as usize,
            batch_max: CHANGES_MAX,
            failures: 0,
            registration: Registration::default(),
            turn_extended_at: None,
            alarms: FleetAlarms::default(),
            overwrites: 0,
            put_back_at: None,
            sweep_at: None,
            retry_at: None,
            connection,
        }
    }

    async fn run(&mut self) {
        let (sender, mut news) = mpsc::channel(NEWS_MAX);
        let mut watches = SupervisedTasks::new(&self.app.lasting.metrics.alarms);
        let count = self.connection.store.endpoints().len();
        for number in 0..self.watching.len() {
            let store = Arc::clone(&self.connection.store);
            let first = (self.next_endpoint + number) % count;
            let sender = sender.clone();
            watches.start(format!("fleet-watch-{number}"), self.app, move |_| {
                watch_endpoint(Arc::clone(&store), (number, first), sender.clone())
            });
        }
        let mut tick = interval(TICK);
        let mut received = Vec::new();
        loop {
            let (put_back_at, retry_at) = (self.put_back_at, self.retry_at);
            let due_at = self.registration.due_at().filter(|_| retry_at.is_none());
            let sweep_at = self.sweep_at.filter(|_| retry_at.is_none());
            tokio::select! {
                // The sender lives as long as this loop.
                _ = news.recv_many(&mut received, NEWS_MAX) => self.apply(received.drain(..)).await,
                // An operator waits for the result.
                () = self.app.records.acted() => self.send().await,
                () = self.app.sharing.turn.asked.notified() => {}
                _ = tick.tick() => {
                    self.apply_withheld().await;
                    self.alarms.update(self.app, &self.view);
                }
                () = at(put_back_at) => {
                    self.put_back_at = None;
                    self.send().await;
                }
                () = at(retry_at) => self.send().await,
                () = at(sweep_at) => self.sweep().await,
                () = at(due_at) => {}
                () = self.app.sharing.entry_changed.notified() => {}
                () = self.app.trust.crls_changed() => {}
            }
            self.register().await;
            self.update_turn().await;
        }
    }

    /// A drain that is withheld may apply once another member is available.
    async fn apply_withheld(&self) {
        let withheld = self.app.membership.withheld();
        if !withheld.is_empty() {
            let members = self.app.locks.members.lock().await;
            let audit = self.app.membership.apply_records(withheld);
            drop(members);
            if !audit.is_empty() {
                self.app.membership.store_states().await;
                self.app.audit.write(audit).await;
            }
        }
    }

    /// Applies all that the watches have received as one change of this proxy's records.
    async fn apply(&mut self, received: impl Iterator<Item = (usize, News)>) {
        let (mut records, mut is_listed) = (Vec::new(), false);
        for (number, news) in received {
            match news {
                News::Listed(listing) => {
                    self.watching[number] = true;
                    is_listed = true;
                    records.extend(self.view.replace(listing));
                }
                News::Changed(changes) => records.extend(self.view.change(changes)),
                News::Failed(error) => {
                    self.watching[number] = false;
                    if !self.watching.contains(&true) {
                        self.app.sharing.watch_failed(&error);
                    }
                }
            }
            // Noted now, because the next news may be that another proxy has put all records back.
            self.note_lost();
        }
        self.view.is_followed = self.watching.contains(&true);
        if is_listed && self.view.is_followed {
            self.app.sharing.listed();
            self.sweep_at
                .get_or_insert_with(|| Instant::now() + random_part_of(PUT_BACK_WITHIN));
        }
        self.take_over(records).await;
    }

    /// Raises the alarm about lost records at once, because they may be put back within the time of a tick.
    fn note_lost(&mut self) {
        let alarms = &self.app.lasting.metrics.alarms;
        let is_raised = || alarms.get(Alarm::FleetStoreOlder, "").is_some();
        if !self.view.lost().is_empty() && !is_raised() {
            self.alarms.update(self.app, &self.view);
        }
    }

    async fn take_over(&mut self, records: Vec<Record>) {
        self.app.take_over(records).await;
        self.publish();
        if self.put_back_at.is_none() {
            let missed = self.missed();
            let are_overwritten = missed.iter().all(|(key, _)| self.view.is_refused(key));
            if !missed.is_empty() {
                let within = put_back_within(if are_overwritten { self.overwrites } else { 0 });
                self.put_back_at = Some(Instant::now() + random_part_of(within));
                self.overwrites = self.overwrites.saturating_add(u32::from(are_overwritten));
            }
        }
    }

    fn publish(&mut self) {
        self.app.sharing.publish(&mut self.view);
        self.app.trust.hear(self.view.proxies().cloned().collect());
    }

    /// Applies records that were refused because the clock was ahead or there was no room. Deletes blocks that ended long ago
    /// from the store.
    async fn sweep(&mut self) {
        self.sweep_at = Some(Instant::now() + SWEEP_INTERVAL);
        let records = self.view.records();
        self.take_over(records).await;
        if let Err(error) = self.try_delete_ended().await {
            self.failed(&error);
        }
    }

    async fn try_delete_ended(&mut self) -> Result<(), StoreError> {
        self.connect().await?;
        let Some(writer) = &self.writer else {
            return Ok(());
        };
        for (key, revision) in self.view.over(view::milliseconds_now()) {
            // If another proxy was faster, the watch shows it.
            writer.put_if(&key, revision, Put::Delete).await?;
        }
        Ok(())
    }

    /// Keeps the entry of this proxy up to date, once the store has been listed.
    async fn register(&mut self) {
        if self.retry_at.is_some() || self.app.sharing.status.borrow().first_list.is_none() {
            return;
        }
        if let Err(error) = self.try_register().await {
            self.failed(&error);
        }
    }

    async fn try_register(&mut self) -> Result<(), StoreError> {
        self.connect().await?;
        let Some(writer) = &self.writer else {
            return Ok(());
        };
        let lease = self.connection.lease;
        let is_put = self
            .registration
            .update(self.app, &**writer, &mut self.view, lease)
            .await?;
        if is_put {
            self.failures = 0;
            self.app.sharing.written();
        }
        self.publish();
        Ok(())
    }

    /// Removes this proxy from the fleet.
    async fn leave(&mut self, is_stopped: bool) {
        let left = async {
            if is_stopped {
                self.keep_turn_while_stopped().await?;
            }
            self.connect().await?;
            match &self.writer {
                Some(writer) => self.registration.end(&**writer).await,
                None => Ok(()),
            }
        };
        if let Err(error) = left.await {
            tracing::info!("the store keeps the entry of this proxy until its lease ends: {error}");
        }
    }
}

/// The maximum wait before records are put back. It grows while other proxies replace the records each time. Otherwise, two
/// proxies with different key files would fill the store in an hour.
fn put_back_within(overwrites: u32) -> Duration {
    PUT_BACK_WITHIN * (1 << overwrites.min(11))
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_others_replace_again_and_again_are_put_back_less_and_less_often() {
        for (overwrites, expected) in [(0, 2), (1, 4), (2, 8), (11, 4096), (u32::MAX, 4096)] {
            assert_eq!(put_back_within(overwrites).as_secs(), expected);
        }
    }
}
