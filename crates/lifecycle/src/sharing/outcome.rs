//! Which other proxies an operator's act applies to.

use std::time::Duration;

use admin::{FleetOutcome, FleetProxyOutcome};
use tokio::time::{Instant, timeout, timeout_at};

use super::{registry::place, sending::SENT_WITHIN, state::SharingStatus};
use crate::shared_state::App;

/// Maximum additional time until the other proxies have applied the act. Each proxy reports this at most once a second.
const APPLIED_WITHIN: Duration = Duration::from_secs(3);

impl App {
    /// Which other proxies have applied the acts that were made until now.
    pub async fn applied_elsewhere(&self, members: &[(String, String)]) -> Option<FleetOutcome> {
        self.foundation().config.fleet.as_ref()?;
        let began = Instant::now();
        let acts = self.records.acts();
        let mut status = self.sharing.status.subscribe();
        let is_settled = |status: &SharingStatus| status.sent.0.max(status.not_sent.0) >= acts;
        let settled = timeout(SENT_WITHIN, status.wait_for(is_settled))
            .await
            .is_ok();
        let now = self.sharing.status();
        if now.sent.0 < acts {
            let why = match settled {
                true => now.not_sent.1.clone(),
                false => format!("the store has not answered within {SENT_WITHIN:?}"),
            };
            return Some(FleetOutcome {
                not_sent: Some(why),
                revision: 0,
                proxies: self.others(&now),
            });
        }
        let revision = now.sent.1;
        let mut proxies = self.others(&now);
        let end = Instant::now() + APPLIED_WITHIN;
        while !self.note_applied(&mut proxies, revision, members, began) {
            if !matches!(timeout_at(end, status.changed()).await, Ok(Ok(()))) {
                break;
            }
        }
        let delays = proxies
            .iter()
            .map(|proxy| proxy.applied_after_milliseconds)
            .collect::<Option<Vec<_>>>();
        let slowest = delays.map(|delays| delays.into_iter().max());
        if let Some(slowest) = slowest {
            self.sharing
                .status
                .send_modify(|status| status.apply_delay = slowest);
        }
        Some(FleetOutcome {
            not_sent: None,
            revision,
            proxies,
        })
    }

    /// Notes which proxies have applied a revision. Returns whether all have.
    fn note_applied(
        &self,
        proxies: &mut [FleetProxyOutcome],
        revision: i64,
        members: &[(String, String)],
        began: Instant,
    ) -> bool {
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let status = self.sharing.status.borrow();
        for heard in &status.proxies {
            let mut same = proxies.iter_mut();
            let same = same.find(|proxy| proxy.name == heard.entry.name);
            if let Some(proxy) = same
                && proxy.applied_after_milliseconds.is_none()
                && heard.entry.applied >= revision
            {
                proxy.applied_after_milliseconds = Some(took);
                let changed = members.iter().map(place);
                let withheld = &heard.entry.withheld;
                proxy.withheld = changed.filter(|place| withheld.contains(place)).collect();
            }
        }
        let mut proxies = proxies.iter();
        proxies.all(|proxy| proxy.applied_after_milliseconds.is_some())
    }

    /// The other proxies that are registered.
    fn others(&self, status: &SharingStatus) -> Vec<FleetProxyOutcome> {
        let names = status.proxies.iter().map(|proxy| &proxy.entry.name);
        let others = names.filter(|name| **name != *self.records.proxy());
        let others = others.map(|name| FleetProxyOutcome {
            name: name.clone(),
            ..FleetProxyOutcome::default()
        });
        others.collect()
    }
}
