//! Changes that the proxy refused because their account may only read. The audit log gets one line for the first change, and
//! then one line a minute with the count, so that such an account cannot fill the disk.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::time::sleep;
use tracing::error;

use crate::{AuditEntry, Caller, Control};

/// How often an account's refused changes are written to the audit log.
const PERIOD: Duration = Duration::from_secs(60);

/// Maximum number of accounts that are counted separately in a period. An account may have thousands of subordinate
/// uids; the refused changes of all further accounts are counted together.
const ACCOUNTS_MAX: usize = 64;

/// The number of refused changes that are not in the audit log yet. An entry exists from the first refused change to the end of
/// a period without any.
#[derive(Debug, Default)]
pub(crate) struct RefusedChanges(Mutex<HashMap<Refused, u64>>);

/// The account, or the group of accounts, that a count is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Refused {
    Account(Option<u32>),
    FurtherAccounts,
}

impl RefusedChanges {
    /// Writes a refused change of the account `by` to the audit log, or counts it if another one was written in this period.
    /// `refused` has the subject and the reason.
    pub(crate) async fn note(
        self: &Arc<Self>,
        control: &Arc<dyn Control>,
        by: Caller,
        refused: (Value, String),
    ) {
        let Some(of) = self.count(by) else {
            return;
        };
        let (subject, why) = refused;
        audit(&**control, by.uid, subject, why).await;
        let (all, control) = (Arc::clone(self), Arc::clone(control));
        // The task ends with the runtime of the admin API.
        let counting = tokio::spawn(async move { all.write_counts(&*control, of).await });
        tokio::spawn(async move {
            if let Err(error) = counting.await {
                error!(%error, "refused changes of an account are no longer counted");
            }
        });
    }

    /// Writes the number of refused changes after each period, until there is a period without any.
    async fn write_counts(&self, control: &dyn Control, of: Refused) {
        loop {
            sleep(PERIOD).await;
            let Some(count) = self.take(of) else {
                return;
            };
            let (uid, whose) = match of {
                Refused::Account(uid) => (uid, "this account"),
                Refused::FurtherAccounts => (None, "further accounts"),
            };
            let result = format!("{count} more refused changes of {whose} in a minute");
            audit(control, uid, Value::Null, result).await;
        }
    }

    /// Counts a refused change. Returns the key of its count if the change is the first of a period.
    fn count(&self, by: Caller) -> Option<Refused> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let account = Refused::Account(by.uid);
        let of = if counts.contains_key(&account) || counts.len() < ACCOUNTS_MAX {
            account
        } else {
            Refused::FurtherAccounts
        };
        match counts.get_mut(&of) {
            Some(count) => {
                *count += 1;
                None
            }
            None => {
                counts.insert(of, 0);
                Some(of)
            }
        }
    }

    /// Takes the count of the last period. If it is 0, removes it and returns `None`, so that the next refused change is
    /// written at once.
    fn take(&self, of: Refused) -> Option<u64> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = std::mem::take(counts.get_mut(&of)?);
        if count == 0 {
            counts.remove(&of);
            return None;
        }
        Some(count)
    }
}

async fn audit(control: &dyn Control, uid: Option<u32>, subject: Value, result: String) {
    let by = control.account(Caller { uid, gid: None }).await;
    let entry = AuditEntry::new(&by, "refused", subject);
    control.audit(AuditEntry { result, ..entry }).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::stand_in::Fake;

    /// A stand-in for the proxy, and a function that refuses a change of the account with this uid.
    fn refusals() -> (Arc<Fake>, impl AsyncFn(u32)) {
        let fake = Arc::new(Fake::default());
        let control: Arc<dyn Control> = Arc::clone(&fake) as _;
        let refused = Arc::new(RefusedChanges::default());
        let note = async move |uid| {
            let by = Caller {
                uid: Some(uid),
                gid: None,
            };
            refused
                .note(&control, by, (Value::Null, "refused".to_owned()))
                .await;
        };
        (fake, note)
    }

    #[tokio::test(start_paused = true)]
    async fn refused_changes_of_an_account_are_one_line_a_minute_with_their_count() {
        let (fake, note) = refusals();
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

    /// One account may have thousands of subordinate uids.
    #[tokio::test(start_paused = true)]
    async fn refused_changes_of_many_accounts_are_counted_together() {
        let (fake, note) = refusals();
        for uid in 0..1_000 {
            note(uid).await;
            note(uid).await;
        }
        let audit = || fake.audit.lock().unwrap().clone();
        assert_eq!(audit().len(), ACCOUNTS_MAX + 1);
        sleep(PERIOD + PERIOD / 2).await;
        let lines = audit().split_off(ACCOUNTS_MAX + 1);
        assert_eq!(lines.len(), ACCOUNTS_MAX + 1);
        let together: Vec<_> = lines.iter().filter(|line| line.uid.is_none()).collect();
        let [together] = together[..] else {
            panic!("{together:?}");
        };
        let count = 2 * (1_000 - ACCOUNTS_MAX) - 1;
        let expected = format!("{count} more refused changes of further accounts in a minute");
        assert_eq!(together.result, expected);
    }
}
