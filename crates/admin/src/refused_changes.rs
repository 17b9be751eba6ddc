//! Changes that the proxy refused an account that may only read. The audit log gets one line at once, and then one a
//! minute with the count, so that such an account cannot fill the disk.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::time::sleep;

use crate::{AuditEntry, Caller, Control};

/// How often an account's refused changes are written to the audit log.
const PERIOD: Duration = Duration::from_secs(60);

/// Refused changes that are not in the audit log yet, by account. Each account has an entry for a period.
#[derive(Debug, Default)]
pub(crate) struct RefusedChanges(Mutex<HashMap<Option<u32>, u64>>);

impl RefusedChanges {
    /// Writes or counts a refused change of the account `by`.
    pub(crate) async fn note(
        self: &Arc<Self>,
        control: &Arc<dyn Control>,
        by: Caller,
        entry: AuditEntry,
    ) {
        if !self.is_first(by.uid) {
            return;
        }
        control.audit(entry).await;
        let (all, control) = (Arc::clone(self), Arc::clone(control));
        // It ends with the runtime of the admin API.
        tokio::spawn(async move {
            loop {
                sleep(PERIOD).await;
                let Some(count) = all.take(by.uid) else {
                    return;
                };
                let mut entry = AuditEntry::new(by, "refused", Value::Null);
                entry.result = format!("{count} more refused changes of this account in a minute");
                control.audit(entry).await;
            }
        });
    }

    /// Counts a refusal. `true` for the first one of a period.
    fn is_first(&self, uid: Option<u32>) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.get_mut(&uid) {
            Some(count) => {
                *count += 1;
                false
            }
            None => {
                counts.insert(uid, 0);
                true
            }
        }
    }

    /// The count of the last period. `None` if there was no refusal: the next one is written at once.
    fn take(&self, uid: Option<u32>) -> Option<u64> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = std::mem::take(counts.get_mut(&uid)?);
        if count == 0 {
            counts.remove(&uid);
            return None;
        }
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::stand_in::Fake;

    #[tokio::test(start_paused = true)]
    async fn refused_changes_of_an_account_are_one_line_a_minute_with_their_count() {
        let fake = Arc::new(Fake::default());
        let control: Arc<dyn Control> = Arc::clone(&fake) as _;
        let refused = Arc::new(RefusedChanges::default());
        let note = async |uid| {
            let by = Caller {
                uid: Some(uid),
                gid: None,
            };
            let entry = AuditEntry::new(by, "refused", Value::Null);
            refused.note(&control, by, entry).await;
        };
        let lines = || fake.audit.lock().unwrap().len();
        for _ in 0..5 {
            note(1).await;
        }
        note(2).await;
        assert_eq!(lines(), 2, "the first of each account");
        sleep(PERIOD + PERIOD / 2).await;
        assert_eq!(lines(), 3);
        let counted = fake.audit.lock().unwrap()[2].clone();
        assert_eq!(counted.uid, Some(1));
        assert!(counted.result.starts_with("4 more refused"), "{counted:?}");
        sleep(PERIOD).await;
        assert_eq!(lines(), 3, "no refusal, no line");
        note(1).await;
        assert_eq!(lines(), 4);
    }
}
