//! Applies materials that change on disk, without a reload by an operator: the proxy notices a change, waits until the files
//! stop changing, and applies the valid ones. Materials that stay invalid raise an alarm.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use config::{ChangeDetection, MaterialWatching};
use state::{stamps::Stamps, supervise::blocking};
use telemetry::{Alarm, Alarms};
use tokio::time::{Instant, sleep_until, timeout};

use crate::{materials::notifier::Notifier, reload::Refreshed, shared_state::App};

/// Applies changes of materials, until this future is dropped.
pub(crate) async fn apply_changes(app: Arc<App>) {
    let mut watcher = MaterialsWatcher {
        app,
        notifier: None,
        refused: None,
        checked: None,
    };
    loop {
        let watching = watcher.watching();
        if watching.watch == ChangeDetection::Off {
            (watcher.notifier, watcher.refused) = (None, None);
            watcher.app.watched_by(ChangeDetection::Off);
            watcher.alarms().clear(Alarm::MaterialsWatch, "");
            watcher.app.reloaded.notified().await;
            continue;
        }
        let seen = watcher.check(watching).await;
        if watcher.app.is_active(&seen) {
            watcher.refused = None;
            watcher.app.clear_refused_materials();
        } else if watcher.refused.as_ref() == Some(&seen) {
            // The fault may pass without a change of the files: no descriptor was free, or a certificate was not valid yet.
            watcher.try_again().await;
        } else {
            watcher.settle(seen).await;
            continue;
        }
        watcher.wait(watching).await;
    }
}

struct MaterialsWatcher {
    app: Arc<App>,
    /// `None` if the proxy only polls, or if the kernel provides no descriptor.
    notifier: Option<Notifier>,
    /// The stamps of the materials that were refused last.
    refused: Option<Stamps>,
    /// When the stamps were read last.
    checked: Option<Instant>,
}

impl MaterialsWatcher {
    fn watching(&self) -> MaterialWatching {
        self.app.foundation().config.materials
    }

    /// Watches all paths and then reads their stamps. In this order, no change in between is missed.
    async fn check(&mut self, watching: MaterialWatching) -> Stamps {
        if let Some(checked) = self.checked {
            sleep_until(checked + CHECKS_APART).await;
        }
        self.checked = Some(Instant::now());
        self.app.lasting.metrics.materials_checks.inc();
        if watching.watch == ChangeDetection::Poll {
            self.notifier = None;
        } else if self.notifier.is_none() {
            match Notifier::new() {
                Ok(notifier) => self.notifier = Some(notifier),
                Err(error) => self.raise_watch_alarm(&error),
            }
        }
        let draft = self.app.foundation().draft.clone();
        let mut notifier = self.notifier.take();
        let checked = blocking("check-files", move || {
            let paths = draft.wanted().iter().map(|wanted| Path::new(&wanted.path));
            let watched = notifier.as_mut().map_or(Ok(()), |n| n.watch(paths));
            (notifier, watched, Stamps::of(&draft))
        });
        let Some((notifier, watched, stamps)) = checked.await else {
            return Stamps::default();
        };
        self.notifier = notifier;
        match watched {
            Err(full) => self.raise_watch_alarm(&full),
            Ok(()) if self.notifier.is_some() || watching.watch == ChangeDetection::Poll => {
                self.alarms().clear(Alarm::MaterialsWatch, "");
            }
            Ok(()) => {}
        }
        self.app.watched_by(match self.notifier {
            Some(_) => ChangeDetection::Notify,
            None => ChangeDetection::Poll,
        });
        stamps
    }

    /// Waits until the materials stop changing, and applies them. Materials that are still invalid after `settle_max` raise an
    /// alarm.
    async fn settle(&mut self, mut seen: Stamps) {
        let began = Instant::now();
        let mut refusal = None;
        loop {
            let watching = self.watching();
            let deadline = began + watching.settle_max;
            sleep_until(deadline.min(Instant::now() + watching.settle)).await;
            let is_late = Instant::now() >= deadline;
            let found = self.check(watching).await;
            // An operator's reload has applied the changes meanwhile, or the files are as before.
            if self.app.is_active(&found) {
                return;
            }
            if found != seen {
                (seen, refusal) = (found, None);
                if !is_late {
                    continue;
                }
            }
            // The same bytes would be refused again.
            if refusal.is_none() {
                match self.app.refresh(is_late).await {
                    Refreshed::Applied => return,
                    Refreshed::Changing => continue,
                    Refreshed::Refused(report) => refusal = Some(report),
                }
                if !is_late {
                    tracing::info!(
                        "materials have changed on disk but are not valid yet: waiting for further changes"
                    );
                }
            }
            if is_late {
                self.app.refuse_materials(refusal.unwrap_or_default());
                self.refused = Some(seen);
                return;
            }
        }
    }

    async fn try_again(&mut self) {
        match self.app.refresh(true).await {
            Refreshed::Applied => self.refused = None,
            Refreshed::Changing => {}
            Refreshed::Refused(report) => self.app.refuse_materials(report),
        }
    }

    /// Raises the alarm that the kernel does not report every change. The proxy checks at intervals in any case.
    fn raise_watch_alarm(&self, why: &dyn std::fmt::Display) {
        let message = format!(
            "the kernel does not report every change of materials, so the proxy also checks them every [materials] interval: {why}"
        );
        self.alarms()
            .raise(Alarm::MaterialsWatch, "", message, SystemTime::now());
    }

    fn alarms(&self) -> &Alarms {
        &self.app.lasting.metrics.alarms
    }

    /// Waits until something may have changed: the kernel reports a change, a reload names other files, or a check is due.
    async fn wait(&self, watching: MaterialWatching) {
        let notified = async {
            match &self.notifier {
                Some(notifier) => notifier.changed().await,
                None => std::future::pending().await,
            }
        };
        let _ = timeout(watching.interval, async {
            tokio::select! {
                () = notified => {}
                () = self.app.reloaded.notified() => {}
            }
        })
        .await;
    }
}

/// Minimum time between two checks, so that frequent writes to the same directories cost little.
const CHECKS_APART: Duration = Duration::from_millis(50);
