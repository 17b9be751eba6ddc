//! The entry of this proxy in the store: which version it runs, and which changes it has applied. The key of the entry has a
//! lease, so that a proxy that has died is not listed for long.

use std::time::Duration;

use fleet::{ActiveCrlEntry, ProxyEntry, WithdrawnMember};
use fleet_store::{LeaseId, Put, Revision, Session, StoreError};
use proxy::LifecyclePhase;
use state::{digest, operator_records::milliseconds};
use tokio::time::Instant;

use super::view::{View, milliseconds_now};
use crate::shared_state::App;

/// Minimum time between two versions of the entry.
const PUT_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Maximum time between two versions of the entry. etcd stores each version until it compacts, and the lease alone shows that
/// the proxy runs.
const PUT_INTERVAL_MAX: Duration = Duration::from_secs(300);
/// How often another proxy must replace the entry before that proxy is assumed to have the same name.
const REPLACED_MAX: u32 = 3;
/// How long the other proxy is assumed to have the same name after the last replacement.
const SAME_NAME_SHOWN_FOR: Duration = Duration::from_secs(10);

/// The registration of this proxy.
#[derive(Debug, Default)]
pub(super) struct Registration {
    lease: Option<LeaseId>,
    keep_alive_at: Option<Instant>,
    put: Option<(Instant, ProxyEntry)>,
    /// How often another proxy has replaced the entry, and when it did so last.
    replaced: u32,
    replaced_at: Option<Instant>,
    /// When the entry may be put again after the last attempt.
    due_at: Option<Instant>,
}

impl Registration {
    /// Puts the entry if it has changed, and extends its lease when that is due. Returns whether it was put.
    pub(super) async fn update(
        &mut self,
        app: &App,
        session: &dyn Session,
        view: &mut View,
        lease_length: Duration,
    ) -> Result<bool, StoreError> {
        let lease = match self.lease {
            Some(lease) if self.keep_alive_at > Some(Instant::now()) => lease,
            Some(lease) if session.keep_alive(lease).await? => lease,
            _ => {
                self.put = None;
                session.grant(lease_length).await?
            }
        };
        if self.lease != Some(lease) || self.keep_alive_at <= Some(Instant::now()) {
            self.lease = Some(lease);
            self.keep_alive_at = Some(Instant::now() + lease_length / 3);
        }
        let key = ProxyEntry::key_of(app.records.proxy());
        let is_lost = view.revision(&key) == 0;
        if let Some((at, _)) = &self.put
            && at.elapsed() < PUT_INTERVAL_MIN
        {
            self.due_at = Some(*at + PUT_INTERVAL_MIN);
            return Ok(false);
        }
        self.due_at = None;
        let entry = app.proxy_entry(view.records_at());
        let is_replaced = self.put.as_ref().is_some_and(|(_, put)| {
            let mut proxies = view.proxies();
            proxies.any(|heard| heard.entry.name == put.name && heard.entry != *put)
        });
        // The count is not reset at once, because a watch may show a replacement only after this check.
        if self
            .replaced_at
            .is_some_and(|at| at.elapsed() > SAME_NAME_SHOWN_FOR)
        {
            self.replaced = 0;
        }
        if is_replaced {
            self.replaced += 1;
            self.replaced_at = Some(Instant::now());
        }
        if is_replaced && self.replaced >= REPLACED_MAX {
            view.same_name_until = Some(Instant::now() + SAME_NAME_SHOWN_FOR);
        }
        if let Some((at, put)) = &self.put
            && !is_lost
            && !is_replaced
            && put.is_same(&entry)
            && at.elapsed() < PUT_INTERVAL_MAX
        {
            return Ok(false);
        }
        let sealed = view.sealed(&key, &entry.to_bytes());
        let put = Put::Leased(&sealed, lease);
        let put = session.put_if(&key, view.revision(&key), put).await;
        // A store that was emptied or restored does not have the lease, so the next attempt requests a new one.
        let put = put.inspect_err(|_| self.keep_alive_at = None);
        match put? {
            Some(revision) => {
                view.put_entry(&key, revision, entry.clone());
                self.put = Some((Instant::now(), entry));
                Ok(true)
            }
            // The former process wrote the entry first, or the watch has not shown its last version yet.
            None => {
                view.take_over_key(session.list().await?, &key);
                Ok(false)
            }
        }
    }

    /// Makes the next update put the entry, even if it has not changed.
    pub(super) fn put_again(&mut self) {
        self.put = None;
    }

    /// Whether the store has an entry of this proxy, which shows that the proxy is ready and serves.
    pub(super) fn is_current(&self, app: &App, view: &View) -> bool {
        let is_there = view.revision(&ProxyEntry::key_of(app.records.proxy())) != 0;
        let put = self.put.as_ref();
        is_there && put.is_some_and(|(_, put)| put.unready.is_none() && put.phase == "serving")
    }

    /// When the entry must be updated without any other reason, because the other proxies wait for it.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.due_at
    }

    /// Ends the lease, and with it the entry.
    pub(super) async fn end(&mut self, session: &dyn Session) -> Result<(), StoreError> {
        match self.lease.take() {
            Some(lease) => session.revoke(lease).await,
            None => Ok(()),
        }
    }
}

impl App {
    /// The entry of this proxy, with the highest revision of the store whose records it has applied.
    pub(crate) fn proxy_entry(&self, applied: Revision) -> ProxyEntry {
        let sections = self.foundation().section_digests().clone();
        let generation = self.generation();
        let crls = generation.trust.newest_crls().map(|crl| {
            let entry = ActiveCrlEntry {
                issuer: crl.issuer,
                number: crl.number,
                digest: crl.digest.to_string(),
            };
            (crl.key.to_string(), entry)
        });
        let alarms = self.lasting.metrics.alarms.active();
        let build = &self.options.build;
        ProxyEntry {
            name: self.records.proxy().to_owned(),
            version: format!("{} ({})", build.version, build.commit),
            started: milliseconds(self.active.started().1),
            clock: milliseconds_now(),
            phase: match self.shared.signals.borrow().phase {
                LifecyclePhase::Serving => "serving",
                LifecyclePhase::Draining | LifecyclePhase::Cutting => "draining",
            }
            .to_owned(),
            unready: self.unready_for_turn(),
            sections,
            crls: crls.collect(),
            alarms: alarms.iter().map(telemetry::ActiveAlarm::key).collect(),
            withdrawn: self.withdrawn(),
            withheld: self.membership.withheld().iter().map(place).collect(),
            records: self
                .records
                .read(|all| digest(all.iter().map(|(_, record)| record.bytes()))),
            applied,
        }
    }

    /// Why another proxy must not be restarted now. `None` if this proxy is ready.
    pub(super) fn unready_for_turn(&self) -> Option<String> {
        let preparing = || {
            let process = self.hand_over.preparing();
            process.map(|_| "a new process is about to take over")
        };
        self.unready().or_else(preparing).map(str::to_owned)
    }

    /// The members that get no new requests, with the requests that they still process, including those of former processes.
    fn withdrawn(&self) -> Vec<WithdrawnMember> {
        let generation = self.generation();
        let members = generation.pools.iter().flat_map(|runtime| {
            let entries = runtime.pool.entries().iter().enumerate();
            let withdrawn = entries.filter(|(_, entry)| {
                entry.member.operator_state() != balancing::Administrative::Ready
            });
            withdrawn.map(move |(index, _)| {
                let status = self.member_status(runtime, index);
                WithdrawnMember {
                    pool: runtime.pool.name().to_string(),
                    member: status.address,
                    in_flight: status.in_flight,
                }
            })
        });
        members.collect()
    }
}

/// A member in the form in which an entry names it.
pub(super) fn place((pool, member): &(String, String)) -> String {
    format!("{pool}/{member}")
}
