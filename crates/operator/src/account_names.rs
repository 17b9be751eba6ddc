//! The names of accounts that change something. Root is known; others are looked up in the name services (NSS), which can be
//! slow.

use std::time::Duration;

use admin::OperatorAccount;
use state::{ReaderThreads, accounts::account_name};
use tokio::time::timeout;

/// How many look-ups run at a time, each in a thread of its own.
const NAME_LOOK_UPS_MAX: usize = 2;
/// How long a change waits for the name of its account. Then its records have the number.
const NAME_WAIT_MAX: Duration = Duration::from_secs(1);

/// Looks up the names of accounts.
pub(crate) struct AccountNames {
    threads: ReaderThreads,
    /// Blocks.
    look_up: fn(u32) -> Option<String>,
}

impl Default for AccountNames {
    fn default() -> Self {
        Self::new(account_name)
    }
}

impl AccountNames {
    fn new(look_up: fn(u32) -> Option<String>) -> Self {
        Self {
            threads: ReaderThreads::new("account-name", NAME_LOOK_UPS_MAX),
            look_up,
        }
    }

    /// The account with this number.
    pub(crate) async fn of(&self, uid: Option<u32>) -> OperatorAccount {
        let name = match uid {
            None => None,
            Some(0) => account_name(0),
            Some(uid) => {
                let look_up = self.look_up;
                let name = self.threads.run(move || look_up(uid));
                let name = timeout(NAME_WAIT_MAX, name).await;
                name.ok().flatten().flatten()
            }
        };
        OperatorAccount::new(uid, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_account_without_a_name_is_shown_by_its_number() {
        let names = AccountNames::new(|uid| (uid == 1).then(|| "puppet".to_owned()));
        for (uid, name) in [
            (Some(0), "root"),
            (Some(1), "puppet"),
            (Some(2), "uid 2"),
            (None, "unknown"),
        ] {
            assert_eq!(names.of(uid).await.to_string(), name);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_service_that_hangs_delays_changes_for_a_limited_time() {
        let names = AccountNames::new(|_| {
            loop {
                std::thread::park();
            }
        });
        for uid in 1..=4 {
            let name = names.of(Some(uid)).await.to_string();
            assert_eq!(name, format!("uid {uid}"));
        }
        assert_eq!(names.of(Some(0)).await.to_string(), "root");
    }
}
