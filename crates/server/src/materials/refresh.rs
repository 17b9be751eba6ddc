//! Materials that change on disk are taken by themselves: noticed, waited out, read, and put in force or complained of.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use config::{Watch, Watching};
use telemetry::{Alarm, Alarms};
use tokio::time::{Instant, sleep_until, timeout};

use crate::{
    app::App,
    materials::{notifier::Notifier, stamps::Stamps},
    reload::Refreshed,
};

/// Keeps the materials in force those on disk, until it is dropped.
pub(crate) async fn keep(app: Arc<App>) {
    let mut keeper = Keeper {
        app,
        notifier: None,
        refused: None,
        looked: None,
    };
    loop {
        let watching = keeper.watching();
        if watching.watch == Watch::Off {
            (keeper.notifier, keeper.refused) = (None, None);
            keeper.app.watched_by(Watch::Off);
            keeper.alarms().clear(Alarm::MaterialsWatch, "");
            keeper.app.reloaded.notified().await;
            continue;
        }
        let seen = keeper.look(watching).await;
        if keeper.app.is_in_force(&seen) {
            keeper.refused = None;
            keeper.app.materials_are_good();
        } else if keeper.refused.as_ref() == Some(&seen) {
            // What was wrong may have been the moment: no descriptor left, a certificate that begins at noon.
            keeper.try_again().await;
        } else {
            keeper.wait_out(seen).await;
            continue;
        }
        keeper.wait(watching).await;
    }
}

struct Keeper {
    app: Arc<App>,
    /// None where the kernel is not asked, or gives no descriptor.
    notifier: Option<Notifier>,
    /// What was found on disk and is not right.
    refused: Option<Stamps>,
    /// When it looked last.
    looked: Option<Instant>,
}

impl Keeper {
    fn watching(&self) -> Watching {
        self.app.state().foundation.config.materials
    }

    /// Watches what is to be watched, then looks: in this order nothing is missed in between.
    async fn look(&mut self, watching: Watching) -> Stamps {
        if let Some(looked) = self.looked {
            sleep_until(looked + LOOKS_APART).await;
        }
        self.looked = Some(Instant::now());
        self.app.lasting.metrics.materials_checks.inc();
        if watching.watch == Watch::Poll {
            self.notifier = None;
        } else if self.notifier.is_none() {
            match Notifier::new() {
                Ok(notifier) => self.notifier = Some(notifier),
                Err(error) => self.complain(&error),
            }
        }
        let draft = self.app.state().foundation.draft.clone();
        let mut notifier = self.notifier.take();
        let looked = tokio::task::spawn_blocking(move || {
            let paths = draft.wanted().iter().map(|wanted| Path::new(&wanted.path));
            let watched = notifier.as_mut().map_or(Ok(()), |n| n.watch(paths));
            (notifier, watched, Stamps::of(&draft))
        });
        let Ok((notifier, watched, stamps)) = looked.await else {
            return Stamps::default();
        };
        self.notifier = notifier;
        match watched {
            Err(full) => self.complain(&full),
            Ok(()) if self.notifier.is_some() || watching.watch == Watch::Poll => {
                self.alarms().clear(Alarm::MaterialsWatch, "");
            }
            Ok(()) => {}
        }
        self.app.watched_by(match self.notifier {
            Some(_) => Watch::Notify,
            None => Watch::Poll,
        });
        stamps
    }

    /// Waits until what changes stands still and is right, and has it put in force; what is not right in the end is an
    /// alarm.
    async fn wait_out(&mut self, mut seen: Stamps) {
        let began = Instant::now();
        let mut refusal = None;
        loop {
            let watching = self.watching();
            let deadline = began + watching.settle_max;
            sleep_until(deadline.min(Instant::now() + watching.settle)).await;
            let is_late = Instant::now() >= deadline;
            let found = self.look(watching).await;
            // An operator's reload has applied it meanwhile, or the files are what they were.
            if self.app.is_in_force(&found) {
                return;
            }
            if found != seen {
                (seen, refusal) = (found, None);
                if !is_late {
                    continue;
                }
            }
            // The same bytes are refused again: only other ones are worth reading.
            if refusal.is_none() {
                match self.app.refresh(is_late).await {
                    Refreshed::Taken => return,
                    Refreshed::Moving => continue,
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
            Refreshed::Taken => self.refused = None,
            Refreshed::Moving => {}
            Refreshed::Refused(report) => self.app.refuse_materials(report),
        }
    }

    /// Looking goes on as often as before.
    fn complain(&self, why: &dyn std::fmt::Display) {
        let message = format!(
            "the kernel does not report every change of materials, so the proxy also checks them every [materials] interval: {why}"
        );
        self.alarms()
            .raise(Alarm::MaterialsWatch, "", message, SystemTime::now());
    }

    fn alarms(&self) -> &Alarms {
        &self.app.lasting.metrics.alarms
    }

    /// Until something may have changed: the kernel says so, a reload names other files, or it is time to look.
    async fn wait(&self, watching: Watching) {
        let told = async {
            match &self.notifier {
                Some(notifier) => notifier.changed().await,
                None => std::future::pending().await,
            }
        };
        let _ = timeout(watching.interval, async {
            tokio::select! {
                () = told => {}
                () = self.app.reloaded.notified() => {}
            }
        })
        .await;
    }
}

/// Least time from one look at the materials to the next, whatever the kernel tells of: who writes beside them all the
/// time costs little.
const LOOKS_APART: Duration = Duration::from_millis(50);
