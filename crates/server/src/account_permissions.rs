//! What accounts may do, as the name services say. Such a service can be slow, and no account may delay another one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use admin::{Caller, Permission, settings::AdminSettings};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout},
};

use crate::operators::{known_permission, permission};

/// How many look-ups run at a time, each in a thread of its own.
const LOOK_UPS_MAX: usize = 2;
/// How long a caller waits for a look-up. Without an answer, the account has no right.
const DEADLINE: Duration = Duration::from_secs(2);
/// How long an answer is used.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// Maximum number of accounts whose look-ups run, wait or are kept.
const KNOWN_MAX: usize = 1_024;

/// Looks up what an account may do. Blocks.
type LookUp = fn(&AdminSettings, Caller) -> Permission;

/// The permissions of accounts. Each account has one look-up at a time, whatever the number of its connections.
pub(crate) struct AccountPermissions {
    threads: Arc<Semaphore>,
    known: Mutex<HashMap<Account, Known>>,
    look_up: LookUp,
    deadline: Duration,
}

/// An account, and the groups that decided.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Account {
    uid: Option<u32>,
    gid: Option<u32>,
    groups: [Option<String>; 2],
}

struct Known {
    since: Instant,
    answer: watch::Receiver<Option<Permission>>,
}

impl Known {
    fn is_usable(&self) -> bool {
        let is_running = self.answer.borrow().is_none() && self.answer.has_changed().is_ok();
        is_running || self.since.elapsed() < KEPT_FOR
    }
}

impl Default for AccountPermissions {
    fn default() -> Self {
        Self::new(permission)
    }
}

impl AccountPermissions {
    fn new(look_up: LookUp) -> Self {
        Self {
            threads: Arc::new(Semaphore::new(LOOK_UPS_MAX)),
            known: Mutex::default(),
            look_up,
            deadline: DEADLINE,
        }
    }

    /// What an account may do. Root and the account of the proxy are known without a look-up.
    pub(crate) fn of(
        &self,
        settings: AdminSettings,
        caller: Caller,
    ) -> impl Future<Output = Permission> + Send + use<> {
        let known = known_permission(&settings, caller);
        let answer = match known {
            Some(_) => None,
            None => self.answer(settings, caller),
        };
        let deadline = self.deadline;
        async move {
            if let Some(known) = known {
                return known;
            }
            let Some(mut answer) = answer else {
                return Permission::None;
            };
            let answered = timeout(deadline, answer.wait_for(Option::is_some)).await;
            match answered {
                Ok(Ok(permission)) => permission.unwrap_or(Permission::None),
                Ok(Err(_)) | Err(_) => {
                    tracing::warn!(
                        uid = caller.uid,
                        "refused an account on the admin socket: the name service (NSS) did not say in {deadline:?} \
                         which groups it has; check `getent group` and `id`"
                    );
                    Permission::None
                }
            }
        }
    }

    /// The answer of the look-up that runs or has run, or of a new one. `None`: too many accounts are known.
    fn answer(
        &self,
        settings: AdminSettings,
        caller: Caller,
    ) -> Option<watch::Receiver<Option<Permission>>> {
        let account = Account {
            uid: caller.uid,
            gid: caller.gid,
            groups: [settings.read_group.clone(), settings.operate_group.clone()],
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, known| known.is_usable());
        if let Some(known) = known.get(&account) {
            return Some(known.answer.clone());
        }
        if known.len() >= KNOWN_MAX {
            return None;
        }
        let (answers, answer) = watch::channel(None);
        let entry = Known {
            since: Instant::now(),
            answer: answer.clone(),
        };
        known.insert(account, entry);
        let (threads, look_up) = (Arc::clone(&self.threads), self.look_up);
        // A caller that disconnects does not stop the look-up: the next one gets its answer.
        tokio::spawn(async move {
            let Ok(thread) = threads.acquire_owned().await else {
                return;
            };
            let looked_up =
                std::thread::Builder::new()
                    .name("groups".to_owned())
                    .spawn(move || {
                        answers.send_replace(Some(look_up(&settings, caller)));
                        drop(thread);
                    });
            if let Err(error) = looked_up {
                tracing::error!(%error, "cannot start a thread that looks up groups");
            }
        });
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, LazyLock};

    use super::*;

    /// Accounts from 5000 on wait for this.
    static RELEASED: LazyLock<(Mutex<bool>, Condvar)> = LazyLock::new(Default::default);
    static LOOKED_UP: Mutex<Vec<u32>> = Mutex::new(Vec::new());

    fn look_up(_: &AdminSettings, caller: Caller) -> Permission {
        let uid = caller.uid.unwrap_or_default();
        LOOKED_UP.lock().unwrap().push(uid);
        if uid >= 5_000 {
            let released = RELEASED.0.lock().unwrap();
            drop(RELEASED.1.wait_while(released, |released| !*released));
        }
        Permission::Operate
    }

    fn count(uid: u32) -> usize {
        let looked_up = LOOKED_UP.lock().unwrap();
        looked_up.iter().filter(|of| **of == uid).count()
    }

    fn of(permissions: &AccountPermissions, uid: u32) -> impl Future<Output = Permission> + use<> {
        let settings = AdminSettings {
            operate_group: Some("ops".to_owned()),
            ..AdminSettings::default()
        };
        let caller = Caller {
            uid: Some(uid),
            gid: Some(uid),
        };
        permissions.of(settings, caller)
    }

    #[tokio::test]
    async fn an_account_with_a_slow_look_up_delays_no_other_account() {
        let permissions = AccountPermissions {
            deadline: Duration::from_secs(3_600),
            ..AccountPermissions::new(look_up)
        };
        // Many connections of one account share a look-up.
        let slow: Vec<_> = (0..32).map(|_| of(&permissions, 5_000)).collect();
        for _ in 0..2 {
            assert_eq!(of(&permissions, 0).await, Permission::Operate);
            assert_eq!(of(&permissions, 1_000).await, Permission::Operate);
        }
        assert_eq!((count(0), count(1_000)), (0, 1), "answers are remembered");
        *RELEASED.0.lock().unwrap() = true;
        RELEASED.1.notify_all();
        for slow in slow {
            assert_eq!(slow.await, Permission::Operate);
        }
        assert_eq!(count(5_000), 1);
        tokio::time::pause();
        tokio::time::advance(KEPT_FOR).await;
        tokio::time::resume();
        assert_eq!(of(&permissions, 1_000).await, Permission::Operate);
        assert_eq!(count(1_000), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_whose_groups_no_service_names_in_time_has_no_right() {
        let permissions = AccountPermissions::new(|_, _| {
            loop {
                std::thread::park();
            }
        });
        let began = Instant::now();
        assert_eq!(of(&permissions, 2_000).await, Permission::None);
        assert_eq!(began.elapsed(), DEADLINE);
    }
}
