//! The turn of the fleet: at most one proxy is restarted or upgraded at a time (`proscenium fleet turn`).
//!
//! The turn is a key of the store with a lease of its own. The lease is extended as long as the command line repeats its request,
//! so it ends with the proxy and with the command line. A process that stops while it has the turn gives the key a longer lease,
//! and a new process finds the turn by the name of its proxy in the record: between the two it stays taken.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use admin::{OperatorAccount, Timestamp, TurnAnswer, TurnError, TurnRequest};
use fleet::{ProxyEntry, TURN_KEY, TurnRecord};
use fleet_store::{LeaseId, Put, StoreError};
use proxy::LifecyclePhase;
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

use super::{Member, state::SharingStatus, view::milliseconds_now};
use crate::shared_state::App;

/// How long a request stays pending without a repetition. The command line repeats it several times a second, except while the
/// proxy is restarted.
const SILENT_MAX: Duration = Duration::from_secs(10);
/// Maximum time for the store to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);

/// The turn that an operator of this proxy has requested.
#[derive(Debug, Default)]
pub(crate) struct TurnRequests {
    standing: Mutex<Option<StandingRequest>>,
    /// How often operators have requested or ended a turn.
    count: AtomicU64,
    /// Notified whenever `count` grows.
    pub(super) asked: Notify,
}

/// A request for the turn.
#[derive(Clone, Debug)]
struct StandingRequest {
    request: TurnRequest,
    by: String,
    repeated_at: Instant,
    is_ending: bool,
}

/// The progress of an operator's request.
#[derive(Clone, Debug, Default)]
pub(crate) struct TurnProgress {
    /// The value of `TurnRequests::count` when this progress was noted.
    seen: u64,
    /// The request that the proxy has the turn for.
    has_turn_for: Option<String>,
    /// What the request waits for.
    waits_for: Vec<String>,
    /// Whether the entry of this proxy in the store says that it is ready.
    is_registered: bool,
}

impl TurnRequests {
    /// Notes a request. Returns its number, or the other request that is pending.
    fn ask(&self, request: TurnRequest, by: String) -> Result<u64, StandingRequest> {
        let mut standing = self.standing();
        match &*standing {
            // A command that runs takes precedence over one that waits, even if the waiting one reaches a new process first.
            Some(other)
                if other.request.request != request.request
                    && !other.is_ending
                    && (other.request.had_turn || !request.had_turn) =>
            {
                Err(other.clone())
            }
            _ => {
                *standing = Some(StandingRequest {
                    request,
                    by,
                    repeated_at: Instant::now(),
                    is_ending: false,
                });
                Ok(self.notify())
            }
        }
    }

    /// Ends a request. Returns the number of this change.
    fn end(&self, request: &str) -> u64 {
        let mut standing = self.standing();
        match &mut *standing {
            Some(standing) if standing.request.request == request => standing.is_ending = true,
            Some(_) => {}
            // A new process may have the turn for a request that has not reached it yet.
            None => {
                *standing = Some(StandingRequest {
                    request: TurnRequest {
                        request: request.to_owned(),
                        ..TurnRequest::default()
                    },
                    by: String::new(),
                    repeated_at: Instant::now(),
                    is_ending: true,
                });
            }
        }
        self.notify()
    }

    /// Forgets a request that has ended.
    fn forget(&self, request: &str) {
        let mut standing = self.standing();
        if let Some(known) = &*standing
            && known.request.request == request
            && known.is_ending
        {
            *standing = None;
        }
    }

    fn notify(&self) -> u64 {
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        self.asked.notify_one();
        number
    }

    /// The pending request. A request that was not repeated in time is dropped.
    fn standing(&self) -> MutexGuard<'_, Option<StandingRequest>> {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_silent = |standing: &StandingRequest| standing.repeated_at.elapsed() >= SILENT_MAX;
        if standing.as_ref().is_some_and(is_silent) {
            *standing = None;
        }
        standing
    }
}

impl App {
    /// Requests the turn, or repeats a request for it.
    pub async fn ask_for_turn(
        &self,
        request: TurnRequest,
        by: OperatorAccount,
    ) -> Result<TurnAnswer, TurnError> {
        self.check_fleet()?;
        request.check()?;
        let name = request.request.clone();
        match self.sharing.turn.ask(request, by.name) {
            Ok(number) => Ok(self.turn_answer(number, &name).await),
            Err(other) => {
                let (command, by) = (&other.request.command, &other.by);
                Ok(TurnAnswer {
                    waits_for: vec![format!(
                        "another command of this proxy, which has the turn or waits for it: {command} ({by})"
                    )],
                    ..TurnAnswer::default()
                })
            }
        }
    }

    /// Ends a request for the turn.
    pub async fn end_turn(&self, request: &str) -> Result<TurnAnswer, TurnError> {
        self.check_fleet()?;
        let number = self.sharing.turn.end(request);
        Ok(self.turn_answer(number, request).await)
    }

    fn check_fleet(&self) -> Result<(), TurnError> {
        match self.foundation().config.fleet {
            Some(_) => Ok(()),
            None => Err(TurnError::NoFleet),
        }
    }

    /// Waits until the task that has the store has seen a request.
    async fn turn_answer(&self, number: u64, request: &str) -> TurnAnswer {
        let mut status = self.sharing.status.subscribe();
        let is_seen = |status: &SharingStatus| status.turn_progress.seen >= number;
        let is_seen = timeout(ANSWER_WITHIN, status.wait_for(is_seen))
            .await
            .is_ok();
        let status = self.sharing.status();
        let progress = &status.turn_progress;
        let late = || match (is_seen, status.first_list) {
            (true, Some(_)) => None,
            (true, None) => Some("it has not answered since the start of the proxy".to_owned()),
            (false, _) => Some(format!("it has not answered within {ANSWER_WITHIN:?}")),
        };
        let unreached = status.unreached().map(|(_, why)| why.clone());
        let not_registered = || {
            let why = "its entry in the store does not say so yet";
            (!progress.is_registered).then(|| why.to_owned())
        };
        TurnAnswer {
            has_turn: progress.has_turn_for.as_deref() == Some(request),
            waits_for: progress.waits_for.clone(),
            unreached: unreached.or_else(|| status.no_space.clone()).or_else(late),
            unready: self.unready_for_turn().or_else(not_registered),
        }
    }
}

impl Member<'_> {
    /// Handles the requests of operators of this proxy, and ends the turn of a request that is no longer repeated.
    pub(super) async fn update_turn(&mut self) {
        let turns = &self.app.sharing.turn;
        let seen = turns.count.load(Ordering::SeqCst);
        let standing = turns.standing().clone();
        let is_reached = || {
            let status = self.app.sharing.status.borrow();
            self.retry_at.is_none() && status.first_list.is_some()
        };
        let mut waits_for = Vec::new();
        if (standing.is_some() || self.own_turn().is_some()) && is_reached() {
            match self.try_update_turn(standing.as_ref()).await {
                Ok(found) => waits_for = found,
                Err(error) => self.failed(&error),
            }
            self.app.sharing.publish(&mut self.view);
        }
        let own = self.own_turn();
        let progress = TurnProgress {
            seen,
            has_turn_for: own.map(|turn| turn.request),
            waits_for,
            is_registered: self.registration.is_current(self.app, &self.view),
        };
        let status = &self.app.sharing.status;
        status.send_modify(|status| status.turn_progress = progress);
    }

    /// Returns what the request waits for.
    async fn try_update_turn(
        &mut self,
        standing: Option<&StandingRequest>,
    ) -> Result<Vec<String>, StoreError> {
        let Some(turn) = self.own_turn() else {
            return match standing {
                Some(standing) if standing.is_ending => {
                    self.app.sharing.turn.forget(&standing.request.request);
                    Ok(Vec::new())
                }
                Some(standing) => self.take_turn(standing).await,
                None => Ok(Vec::new()),
            };
        };
        let same = standing.filter(|standing| standing.request.request == turn.request);
        match same {
            Some(standing) if standing.is_ending => {
                self.end_turn(&turn).await?;
                self.app.sharing.turn.forget(&turn.request);
                Ok(Vec::new())
            }
            Some(_) => {
                self.extend_turn(&turn).await?;
                Ok(Vec::new())
            }
            // The command line may not have reached a new process yet. A machine that restarts ends the command line before the
            // proxy, and the stopping proxy then keeps the turn.
            None if self.app.active.uptime() < SILENT_MAX || self.is_stopping() => {
                self.extend_turn(&turn).await?;
                Ok(vec![described(&turn)])
            }
            None => {
                tracing::warn!(
                    command = turn.command,
                    "the command of the turn is no longer heard of, so the turn ends"
                );
                self.end_turn(&turn).await?;
                Ok(Vec::new())
            }
        }
    }

    /// The turn, if this proxy has it.
    fn own_turn(&self) -> Option<TurnRecord> {
        let turn = self.view.turn();
        let own = turn.filter(|turn| turn.proxy == self.app.records.proxy());
        own.cloned()
    }

    fn is_stopping(&self) -> bool {
        self.app.shared.signals.borrow().phase != LifecyclePhase::Serving
    }

    /// Takes the turn if no proxy has it and all others are ready. Otherwise returns what the request waits for.
    async fn take_turn(&mut self, standing: &StandingRequest) -> Result<Vec<String>, StoreError> {
        let waits_for = self.turn_waits_for(standing);
        if !waits_for.is_empty() {
            return Ok(waits_for);
        }
        self.connect().await?;
        let Some(writer) = &self.writer else {
            return Ok(Vec::new());
        };
        // The state that the watch has shown may be a second old.
        let listing = writer.list().await?;
        let records = self.view.replace(listing);
        self.take_over(records).await;
        let waits_for = self.turn_waits_for(standing);
        let Some(writer) = self.writer.as_ref().filter(|_| waits_for.is_empty()) else {
            return Ok(waits_for);
        };
        let lease = writer.grant(self.connection.lease).await?;
        let turn = TurnRecord {
            proxy: self.app.records.proxy().to_owned(),
            request: standing.request.request.clone(),
            by: standing.by.clone(),
            command: standing.request.command.clone(),
            since: milliseconds_now(),
            timeout: standing.request.timeout_seconds,
            lease,
        };
        if self.put_turn(turn, lease).await? {
            self.turn_extended_at = Some(Instant::now());
            tracing::info!(
                command = standing.request.command,
                by = standing.by,
                "this proxy has the turn of the fleet"
            );
            return Ok(Vec::new());
        }
        self.revoke(lease).await;
        Ok(vec!["another proxy has just taken the turn".to_owned()])
    }

    /// What a request waits for.
    fn turn_waits_for(&self, standing: &StandingRequest) -> Vec<String> {
        if let Some(turn) = self.view.turn() {
            return vec![described(turn)];
        }
        let mut refused: Vec<_> = self.view.refused().collect();
        if let Some(turn) = refused.iter().find(|refused| refused.key == TURN_KEY) {
            return vec![format!(
                "the key {TURN_KEY} of the store, which counts as a turn of another proxy although it is ignored: {}",
                turn.why
            )];
        }
        if standing.request.had_turn {
            return Vec::new();
        }
        refused.retain(|refused| ProxyEntry::name_in(&refused.key).is_some());
        let ignored = refused.iter().map(|refused| {
            format!(
                "the key {} of the store is ignored: {}",
                refused.key, refused.why
            )
        });
        let proxies = self.view.proxies().map(|proxy| &proxy.entry);
        let not_ready = fleet::not_ready(proxies, self.app.records.proxy()).into_iter();
        let not_ready = not_ready.map(|(name, why)| format!("{name} is not ready: {why}"));
        not_ready.chain(ignored).collect()
    }

    /// Writes the turn with this lease. Returns whether it was possible.
    async fn put_turn(&mut self, turn: TurnRecord, lease: LeaseId) -> Result<bool, StoreError> {
        let sealed = self.view.sealed(TURN_KEY, &turn.to_bytes());
        let expected = self.view.revision(TURN_KEY);
        let Some(writer) = &self.writer else {
            return Ok(false);
        };
        let put = Put::Leased(&sealed, lease);
        let put = writer.put_if(TURN_KEY, expected, put).await?;
        if let Some(revision) = put {
            self.view.put_turn(revision, turn);
        }
        Ok(put.is_some())
    }

    /// Extends the lease of the turn when that is due.
    async fn extend_turn(&mut self, turn: &TurnRecord) -> Result<(), StoreError> {
        let is_due = |at: Instant| at.elapsed() >= self.connection.lease / 3;
        if !self.turn_extended_at.is_none_or(is_due) {
            return Ok(());
        }
        self.connect().await?;
        let Some(writer) = &self.writer else {
            return Ok(());
        };
        match writer.keep_alive(turn.lease).await? {
            true => self.turn_extended_at = Some(Instant::now()),
            // The key has ended with its lease: the store was emptied, or was not reached for too long.
            false => self.view.end_turn(0),
        }
        Ok(())
    }

    async fn end_turn(&mut self, turn: &TurnRecord) -> Result<(), StoreError> {
        self.connect().await?;
        let Some(writer) = &self.writer else {
            return Ok(());
        };
        let expected = self.view.revision(TURN_KEY);
        match writer.put_if(TURN_KEY, expected, Put::Delete).await? {
            Some(revision) => {
                self.view.end_turn(revision);
                self.revoke(turn.lease).await;
                tracing::info!(command = turn.command, "the turn of this proxy has ended");
                Ok(())
            }
            // The turn has ended already, or another proxy has it.
            None => {
                let listing = writer.list().await?;
                let records = self.view.replace(listing);
                self.take_over(records).await;
                Ok(())
            }
        }
    }

    /// Keeps the turn for its timeout while the proxy is stopped, because its command may start the proxy again.
    pub(super) async fn keep_turn_while_stopped(&mut self) -> Result<(), StoreError> {
        let Some(turn) = self.own_turn() else {
            return Ok(());
        };
        self.connect().await?;
        let Some(writer) = &self.writer else {
            return Ok(());
        };
        let lease = writer
            .grant(turn.timeout().max(self.connection.lease))
            .await?;
        let kept = TurnRecord {
            lease,
            ..turn.clone()
        };
        match self.put_turn(kept, lease).await? {
            true => self.revoke(turn.lease).await,
            false => self.revoke(lease).await,
        }
        Ok(())
    }

    /// Ends a lease that no longer has a key. If this fails, the lease ends by itself.
    async fn revoke(&self, lease: LeaseId) {
        if let Some(writer) = &self.writer {
            let _ = writer.revoke(lease).await;
        }
    }
}

/// Describes the turn of a proxy to an operator who waits for it.
fn described(turn: &TurnRecord) -> String {
    let (proxy, command, by) = (&turn.proxy, &turn.command, &turn.by);
    let since = Timestamp::from_unix_seconds(i64::try_from(turn.since / 1000).unwrap_or(i64::MAX));
    format!("{proxy} has the turn since {since}: {command} ({by})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str, had_turn: bool) -> TurnRequest {
        TurnRequest {
            request: name.to_owned(),
            had_turn,
            ..TurnRequest::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_request_stands_until_it_ends_or_is_silent() {
        let turns = TurnRequests::default();
        let ask = |name: &str, had_turn| {
            let asked = turns.ask(request(name, had_turn), "uid 0".to_owned());
            asked.map_err(|other| other.request.request)
        };
        assert_eq!(ask("a", false), Ok(1));
        assert_eq!(ask("b", false), Err("a".to_owned()));
        // The command of the former process runs, and its request reaches this process later.
        assert_eq!(ask("c", true), Ok(2));
        for other in [false, true] {
            assert_eq!(ask("b", other), Err("c".to_owned()));
        }
        tokio::time::advance(SILENT_MAX / 2).await;
        assert_eq!(ask("c", true), Ok(3));
        tokio::time::advance(SILENT_MAX / 2).await;
        assert_eq!(ask("b", false), Err("c".to_owned()));
        tokio::time::advance(SILENT_MAX / 2).await;
        assert_eq!(ask("b", false), Ok(4));
        // The end of another request changes nothing.
        turns.end("c");
        assert_eq!(ask("a", false), Err("b".to_owned()));
        turns.end("b");
        assert_eq!(ask("a", false), Ok(7));
        turns.forget("a");
        assert_eq!(ask("b", false), Err("a".to_owned()), "it has not ended");
        turns.end("a");
        turns.forget("a");
        assert!(turns.standing().is_none());
        // A new process has the turn of a command that ends before its request has reached this process.
        turns.end("d");
        assert!(turns.standing().as_ref().is_some_and(|one| one.is_ending));
    }
}
