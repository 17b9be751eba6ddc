//! Shares operators' records with the other proxies of the fleet while `[fleet]` is configured.
//!
//! The records of this process decide ([`OperatorRecords`](crate::operator_records::OperatorRecords)), and the store only
//! carries them: no request, start, reload or hand-over waits for it, and nothing is learned from a record that it lacks.

mod alarms;
pub(crate) mod audit;
mod connection;
mod outcome;
mod registry;
pub(crate) mod state;
mod status;
mod turn;
pub(crate) mod view;
mod watcher;
mod writer;

use std::{sync::Arc, time::Duration};

use fleet::Record;
use fleet_store::{CHANGES_MAX, KeyChange, Put, Session, StoreError};
use telemetry::Alarm;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, interval, sleep, sleep_until, timeout},
};

use crate::{random::random_part_of, shared_state::App};
use alarms::FleetAlarms;
use connection::FleetConnection;
pub(crate) use connection::etcd;
use registry::Registration;
use view::View;
use watcher::{News, watch_endpoint};
use writer::Writer;

/// News of the store that wait to be applied. Those that wait together are applied together.
const NEWS_MAX: usize = 64;
/// Maximum length of records that are written together. etcd's default for a request (`--max-request-bytes`) is 1.5 MiB.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Endpoints that are watched at the same time: a frozen one is noticed only after seconds.
const WATCHES_MAX: usize = 2;
/// Maximum time before records that the store lacks are put back: of several proxies, the first to come does it.
const PUT_BACK_WITHIN: Duration = Duration::from_secs(2);
/// How often blocks that ended long ago are deleted from the store, and records that were refused are tried again. A proxy whose
/// clock is wrong deletes some that the others put back, so it must not do so often.
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);
/// How often the entry of this proxy is compared with what it is, and it is tried to apply a drain that is withheld.
const TICK: Duration = Duration::from_secs(1);
/// How long a process that stops waits for the store to remove its entry.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// Maximum time of a call at the first attempt, in place of the limits of the store: a member that is frozen does not answer, and
/// another one does. The next attempts have more.
const PATIENCE: Duration = Duration::from_millis(300);
/// Maximum time until the store has an act of an operator, who then sees that it was not sent.
const SENT_WITHIN: Duration = Duration::from_secs(5);
/// How often the store is listed because it has refused a change, in one attempt to send. Another proxy is faster a few times.
const LISTS_MAX: usize = 50;
/// First and maximum wait before another attempt to reach the store.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The task that shares records. Dropping it ends the task without a word to the other proxies, as after a hand-over.
pub(crate) struct SharingTask {
    task: JoinSet<()>,
    stop: oneshot::Sender<()>,
}

impl SharingTask {
    pub(crate) fn start(app: &Arc<App>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let mut task = JoinSet::new();
        task.spawn(share_records(Arc::clone(app), stopped));
        Self { task, stop }
    }

    /// Removes this proxy from the fleet and ends the task.
    pub(crate) async fn leave(mut self) {
        let _ = self.stop.send(());
        let _ = timeout(LEAVE_WITHIN, self.task.join_next()).await;
    }
}

async fn share_records(app: Arc<App>, mut stop: oneshot::Receiver<()>) {
    app.withhold_again();
    loop {
        let configured = FleetConnection::of(&app);
        let reloaded = app.sharing.reloaded.notified();
        let Some(connection) = configured else {
            alarms::clear(&app);
            tokio::select! {
                () = reloaded => continue,
                _ = &mut stop => return,
            }
        };
        let settings = |app: &App| app.state().foundation.config.fleet.clone();
        let before = settings(&app);
        let mut member = Member::new(&app, connection);
        let is_stopped = tokio::select! {
            () = member.run() => false,
            () = until_changed(&app) => false,
            _ = &mut stop => true,
        };
        // With another certificate it stays in the fleet.
        if is_stopped || settings(&app) != before {
            member.leave(is_stopped).await;
        }
        if is_stopped {
            return;
        }
    }
}

/// Waits until the configuration of the fleet, its keys or its certificate are others.
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
    /// The connection for writes, and the endpoint after which the next is tried.
    writer: Option<Box<dyn Session>>,
    next_endpoint: usize,
    /// Maximum number of records that are written together.
    batch_max: usize,
    failures: u32,
    registration: Registration,
    /// When the lease of the turn was extended.
    turn_extended_at: Option<Instant>,
    alarms: FleetAlarms,
    /// How often records were put back that others had replaced by ones that are ignored here.
    overwrites: u32,
    /// When records that the store lacks are put back.
    put_back_at: Option<Instant>,
    /// When the store and the own records are compared as a whole.
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
        let mut watches = JoinSet::new();
        let count = self.connection.store.endpoints().len();
        for number in 0..self.watching.len() {
            let store = Arc::clone(&self.connection.store);
            let first = (self.next_endpoint + number) % count;
            watches.spawn(watch_endpoint(store, (number, first), sender.clone()));
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
                () = self.app.sharing.acted.notified() => self.send().await,
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
            }
            self.register().await;
            self.update_turn().await;
        }
    }

    /// A drain that is withheld may apply once another member is available.
    async fn apply_withheld(&self) {
        let withheld = self.app.sharing.withheld();
        if !withheld.is_empty() {
            let members = self.app.locks.members.lock().await;
            let audit = self.app.apply_foreign_states(withheld);
            drop(members);
            if !audit.is_empty() {
                self.app.store_member_states().await;
                self.app.audit(audit).await;
            }
        }
    }

    /// Takes over what the watches have received, with one change of what applies here.
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
            // The next news may be that another proxy has put all back.
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

    /// Raises the alarm about lost records at once: they may be put back within the time of a tick.
    fn note_lost(&mut self) {
        let alarms = &self.app.lasting.metrics.alarms;
        let is_raised = || alarms.get(Alarm::FleetStoreOlder, "").is_some();
        if !self.view.lost().is_empty() && !is_raised() {
            self.alarms.update(self.app, &self.view);
        }
    }

    async fn take_over(&mut self, records: Vec<Record>) {
        self.app.take_over(records).await;
        self.app.sharing.publish(&mut self.view);
        if self.put_back_at.is_none() {
            let missed = self.missed();
            let overwrites = missed.iter().all(|(key, _)| self.view.is_refused(key));
            if !missed.is_empty() {
                let within = put_back_within(if overwrites { self.overwrites } else { 0 });
                self.put_back_at = Some(Instant::now() + random_part_of(within));
                self.overwrites = self.overwrites.saturating_add(u32::from(overwrites));
            }
        }
    }

    /// Writes the records that the store lacks. An act of an operator is tried at each endpoint before it fails.
    async fn send(&mut self) {
        self.retry_at = None;
        let acts = self.app.sharing.acts();
        let is_new = self.app.sharing.status.borrow().sent.0 < acts;
        let sent = match is_new {
            true => self.send_acts(acts).await,
            false => self.try_send(acts, self.patience()).await,
        };
        if let Err(error) = sent {
            self.app.sharing.not_sent(acts, &error);
            self.failed(&error);
        }
    }

    /// Tries each endpoint, and all again if one was late: it may be frozen, or etcd elects a leader. A call that came before the
    /// election has ended is not answered afterwards either, so the first ones are short. On a slow network, the last ones succeed.
    async fn send_acts(&mut self, acts: u64) -> Result<(), StoreError> {
        let began = Instant::now();
        loop {
            let patience = match began.elapsed() < SENT_WITHIN / 2 {
                true => PATIENCE,
                false => PATIENCE * 5,
            };
            match self.try_endpoints(acts, patience).await {
                Err(StoreError::Late { .. }) if began.elapsed() < SENT_WITHIN => {}
                sent => return sent,
            }
        }
    }

    /// Returns the last error, or that an endpoint was late.
    async fn try_endpoints(&mut self, acts: u64, patience: Duration) -> Result<(), StoreError> {
        // A connection that was opened before may be broken, which says nothing about its endpoint.
        let attempts = self.connection.store.endpoints().len() + usize::from(self.writer.is_some());
        let mut result = Ok(());
        for _ in 0..attempts {
            match self.try_send(acts, patience).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.drop_writer();
                    if !matches!(result, Err(StoreError::Late { .. })) {
                        result = Err(error);
                    }
                }
            }
        }
        result
    }

    /// The records that the store lacks, as far as is known.
    fn missed(&self) -> Vec<(String, Record)> {
        self.app.records.missed(|key| self.view.record(key))
    }

    /// The next attempt is made at another endpoint.
    fn drop_writer(&mut self) {
        if self.writer.take().is_some() {
            self.next_endpoint += 1;
        }
    }

    /// Notes that the store was not reached, and tries the next endpoint after a while.
    fn failed(&mut self, error: &StoreError) {
        self.app.sharing.write_failed(error);
        // The store may have nothing else to get, so this shows when it accepts changes again.
        self.registration.put_again();
        self.drop_writer();
        self.failures += 1;
        let (first, max) = RETRY;
        let wait = first.saturating_mul(1 << self.failures.min(10)).min(max);
        self.retry_at = Some(Instant::now() + random_part_of(wait));
    }

    /// How long a call may take for which no operator waits. While it lasts, no record of another proxy is applied.
    fn patience(&self) -> Duration {
        PATIENCE.saturating_mul(1 << self.failures.min(10))
    }

    /// Opens a connection for calls for which no operator waits.
    async fn connect(&mut self) -> Result<(), StoreError> {
        self.connect_within(self.patience()).await
    }

    async fn connect_within(&mut self, patience: Duration) -> Result<(), StoreError> {
        if self.writer.is_none() {
            let store = &*self.connection.store;
            let endpoint = self.next_endpoint % store.endpoints().len();
            let writer = Writer::connect(store, endpoint, patience).await;
            self.writer = Some(Box::new(writer.inspect_err(|_| self.next_endpoint += 1)?));
        }
        Ok(())
    }

    async fn try_send(&mut self, acts: u64, patience: Duration) -> Result<(), StoreError> {
        self.connect_within(patience).await?;
        let mut lists = 0;
        while !self.send_once().await? {
            lists += 1;
            if lists == LISTS_MAX {
                let names = self.connection.store.endpoints();
                return Err(StoreError::Failed {
                    endpoint: names[self.next_endpoint % names.len()].clone(),
                    text: format!(
                        "it has refused {LISTS_MAX} changes to what it had listed before"
                    ),
                });
            }
            if self.app.sharing.status.borrow().sent.0 == acts {
                // It is put back later, if no other proxy has done so.
                return Ok(());
            }
        }
        self.app.sharing.publish(&mut self.view);
        self.app.sharing.sent(acts, self.view.written_at());
        Ok(())
    }

    /// Returns whether the store has all records now. Otherwise it was listed again.
    async fn send_once(&mut self) -> Result<bool, StoreError> {
        let Some(writer) = &self.writer else {
            return Ok(true);
        };
        let missed = self.missed();
        let mut rest = &missed[..];
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(batch_len(rest, self.batch_max));
            let sealed = batch
                .iter()
                .map(|(key, record)| self.view.sealed(key, record.bytes()));
            let sealed: Vec<_> = sealed.collect();
            let changes = batch.iter().zip(&sealed);
            let changes = changes.map(|((key, _), sealed)| KeyChange {
                key,
                expected: self.view.revision(key),
                put: Put::Value(sealed),
            });
            let changes: Vec<_> = changes.collect();
            let written = writer.put_all_if(&changes).await;
            self.batch_max = next_batch_max(self.batch_max, matches!(written, Ok(Some(_))));
            match written? {
                Some(revision) => {
                    for (key, record) in batch {
                        self.view.put(key, revision, record.clone());
                    }
                    self.failures = 0;
                    self.app.sharing.written();
                }
                // Another proxy was faster, or the store was restored: the list shows what it has now.
                None => {
                    let listing = writer.list().await?;
                    let records = self.view.replace(listing);
                    self.note_lost();
                    self.take_over(records).await;
                    return Ok(false);
                }
            }
            rest = later;
        }
        Ok(true)
    }

    /// Takes over records that were refused because the clock was ahead or there was no room, and deletes the blocks from the
    /// store that ended long ago.
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
        self.app.sharing.publish(&mut self.view);
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

/// How many of these records are written together: at most `count_max`, and not more than etcd accepts in a request.
fn batch_len(records: &[(String, Record)], count_max: usize) -> usize {
    let mut bytes = 0;
    let fits = records.iter().take(count_max).take_while(|(_, record)| {
        bytes += record.bytes().len();
        bytes <= BATCH_BYTES_MAX
    });
    fits.count().max(1)
}

/// The maximum for the next batch. One record that another proxy changes must not keep out the others for long, and etcd may
/// be configured for less.
fn next_batch_max(before: usize, is_written: bool) -> usize {
    match is_written {
        true => (before * 2).min(CHANGES_MAX),
        false => (before / 2).max(1),
    }
}

/// The maximum wait before records are put back. It grows if others replace them each time: two proxies with other key files would
/// fill the store in an hour.
fn put_back_within(overwrites: u32) -> Duration {
    PUT_BACK_WITHIN * (1 << overwrites.min(11))
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Waits before another attempt, with full jitter.
async fn back_off(failures: u32) {
    let (first, max) = RETRY;
    sleep(random_part_of(
        first.saturating_mul(1 << failures.min(10)).min(max),
    ))
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet::{BlockRecord, RECORD_BYTES_MAX};

    fn record(why: usize) -> (String, Record) {
        let block = BlockRecord {
            id: "p1-1".to_owned(),
            blocked: serde_json::json!({ "certname": "web01" }),
            by: "uid 0".to_owned(),
            proxy: "p1".to_owned(),
            why: "x".repeat(why),
            since: 1000,
            until: None,
            lifted: None,
        };
        ("blocks/p1-1".to_owned(), Record::of_block(block))
    }

    #[test]
    fn records_that_others_replace_again_and_again_are_put_back_less_and_less_often() {
        for (overwrites, expected) in [(0, 2), (1, 4), (2, 8), (11, 4096), (u32::MAX, 4096)] {
            assert_eq!(put_back_within(overwrites).as_secs(), expected);
        }
    }

    #[test]
    fn a_batch_has_as_many_records_as_etcd_accepts_and_at_least_one() {
        for (count, why, count_max, expected) in [
            (1, 9, 100, 1),
            (1000, 9, 100, 100),
            (7, 9, 100, 7),
            (7, 9, 1, 1),
            (1000, RECORD_BYTES_MAX, 100, 63),
            (3, BATCH_BYTES_MAX, 100, 1),
        ] {
            let records = vec![record(why); count];
            let found = batch_len(&records, count_max);
            assert_eq!(found, expected, "{count} {why} {count_max}");
        }
    }

    #[test]
    fn a_batch_that_is_refused_is_followed_by_shorter_ones_down_to_one_record() {
        let mut batch_max = CHANGES_MAX;
        for expected in [50, 25, 12, 6, 3, 1, 1] {
            batch_max = next_batch_max(batch_max, false);
            assert_eq!(batch_max, expected);
        }
        for expected in [2, 4, 8, 16, 32, 64, CHANGES_MAX, CHANGES_MAX] {
            batch_max = next_batch_max(batch_max, true);
            assert_eq!(batch_max, expected);
        }
    }
}
