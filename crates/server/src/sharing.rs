//! Shares operators' records with the other proxies of the fleet while `[fleet]` is configured.
//!
//! The records of this process decide ([`OperatorRecords`](crate::operator_records::OperatorRecords)), and the store only
//! carries them: no request, start, reload or hand-over waits for it, and nothing is learned from a record that it lacks.

mod connection;
mod view;
mod watcher;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use balancing::MemberName;
use fleet_store::{Session, StoreError};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use crate::{random::random_part_of, shared_state::App};
use connection::FleetConnection;
pub(crate) use view::{Refused, View};
use watcher::{News, watch_endpoint};

/// News of the store that wait to be applied.
const NEWS_MAX: usize = 64;
/// Endpoints that are watched at the same time: a frozen one is noticed only after seconds.
const WATCHES_MAX: usize = 2;
/// Maximum time before records that the store lacks are put back: of several proxies, the first to come does it.
const PUT_BACK_WITHIN: Duration = Duration::from_secs(2);
/// How often it is tried to apply a drain that is withheld.
const WITHHELD_INTERVAL: Duration = Duration::from_secs(1);
/// First and maximum wait before another attempt to reach the store.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// What the tasks of the process share about the fleet.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// Notified after a local change of the records.
    pub(crate) changed: Notify,
    /// Notified after each reload, because the configuration or a certificate may be another.
    pub(crate) reloaded: Notify,
    status: Mutex<SharingStatus>,
    /// Members that another proxy has drained, and that are the last available ones here.
    withheld: Mutex<BTreeSet<MemberName>>,
}

/// What is known about the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharingStatus {
    /// When a list or a change was last received.
    pub(crate) heard_at: Option<SystemTime>,
    /// Why the store was not reached, since this time.
    pub(crate) unreached: Option<(SystemTime, String)>,
    /// Keys of the store that are ignored.
    pub(crate) refused: Vec<Refused>,
}

impl Sharing {
    /// Notes whether the drain of a member by another proxy is withheld.
    pub(crate) fn withhold(&self, member: MemberName, is_withheld: bool) {
        let mut withheld = self.withheld.lock().unwrap_or_else(PoisonError::into_inner);
        match is_withheld {
            true => withheld.insert(member),
            false => withheld.remove(&member),
        };
    }

    /// The members whose drain by another proxy is withheld.
    pub(crate) fn withheld(&self) -> BTreeSet<MemberName> {
        self.withheld
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn status(&self) -> SharingStatus {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, SharingStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self, view: &View) {
        let mut status = self.lock();
        status.heard_at = Some(SystemTime::now());
        status.unreached = None;
        status.refused = view.refused().collect();
    }

    fn unreached(&self, why: &StoreError) {
        let mut status = self.lock();
        let why = why.to_string();
        match &mut status.unreached {
            Some((_, known)) => *known = why,
            None => {
                tracing::warn!("the fleet's store is not reached: {why}");
                status.unreached = Some((SystemTime::now(), why));
            }
        }
    }
}

/// Shares records until this future is dropped.
pub(crate) async fn share_records(app: Arc<App>) {
    loop {
        let configured = FleetConnection::of(&app);
        let reloaded = app.sharing.reloaded.notified();
        match configured {
            None => reloaded.await,
            Some(connection) => {
                tokio::select! {
                    () = Member::new(&app, connection).run() => {}
                    () = until_changed(&app) => {}
                }
            }
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
    /// The connection for writes, and the endpoint after which the next is tried.
    writer: Option<Box<dyn Session>>,
    next_endpoint: usize,
    failures: u32,
    /// When records that the store lacks are put back.
    put_back_at: Option<Instant>,
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
            writer: None,
            next_endpoint: random_part_of(Duration::from_millis(count as u64 - 1)).as_millis()
                as usize,
            failures: 0,
            put_back_at: None,
            retry_at: None,
            connection,
        }
    }

    async fn run(mut self) {
        let (sender, mut news) = mpsc::channel(NEWS_MAX);
        let mut watches = JoinSet::new();
        let count = self.connection.store.endpoints().len();
        for offset in 0..count.min(WATCHES_MAX) {
            let store = Arc::clone(&self.connection.store);
            let first = (self.next_endpoint + offset) % count;
            watches.spawn(watch_endpoint(store, first, sender.clone()));
        }
        loop {
            let put_back_at = self.put_back_at;
            let retry_at = self.retry_at;
            tokio::select! {
                // The sender lives as long as this loop.
                Some(received) = news.recv() => self.apply(received).await,
                () = self.app.sharing.changed.notified(), if retry_at.is_none() => self.send().await,
                // A drain that is withheld may apply once another member is available.
                () = sleep(WITHHELD_INTERVAL), if !self.app.sharing.withheld().is_empty() => {
                    self.app.apply_foreign_states(self.app.sharing.withheld());
                    self.app.store_member_states().await;
                }
                () = at(put_back_at) => {
                    self.put_back_at = None;
                    self.send().await;
                }
                () = at(retry_at) => {
                    self.retry_at = None;
                    self.send().await;
                }
            }
        }
    }

    /// Takes over what the store has.
    async fn apply(&mut self, news: News) {
        let records = match news {
            News::Listed(listing) => self.view.replace(listing),
            News::Changed(changes) => self.view.change(changes),
            News::Failed(error) => return self.app.sharing.unreached(&error),
        };
        self.app.sharing.heard(&self.view);
        self.app.take_over(records).await;
        if self.put_back_at.is_none() && !self.app.records.missed(&self.view).is_empty() {
            self.put_back_at = Some(Instant::now() + random_part_of(PUT_BACK_WITHIN));
        }
    }

    /// Writes the records that the store lacks.
    async fn send(&mut self) {
        if let Err(error) = self.try_send().await {
            self.app.sharing.unreached(&error);
            self.writer = None;
            self.next_endpoint += 1;
            self.failures += 1;
            let (first, max) = RETRY;
            let wait = first.saturating_mul(1 << self.failures.min(10)).min(max);
            self.retry_at = Some(Instant::now() + random_part_of(wait));
        }
    }

    async fn try_send(&mut self) -> Result<(), StoreError> {
        if self.writer.is_none() {
            let store = &self.connection.store;
            let endpoint = self.next_endpoint % store.endpoints().len();
            self.writer = Some(store.connect(endpoint).await?);
        }
        let Some(writer) = &self.writer else {
            return Ok(());
        };
        for (key, record) in self.app.records.missed(&self.view) {
            let sealed = self.view.sealed(&key, record.bytes());
            let expected = self.view.revision(&key);
            match writer
                .put_if(&key, expected, fleet_store::Put::Value(&sealed))
                .await?
            {
                Some(revision) => self.view.put(&key, revision, record),
                // Another proxy was faster, or the store was restored: the list shows what it has now.
                None => {
                    let listing = writer.list().await?;
                    let records = self.view.replace(listing);
                    self.app.take_over(records).await;
                    self.put_back_at = Some(Instant::now() + random_part_of(PUT_BACK_WITHIN));
                    break;
                }
            }
        }
        self.failures = 0;
        Ok(())
    }
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
