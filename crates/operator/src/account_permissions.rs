//! What accounts may do, by their groups in the name services (NSS). Such a service can be slow, and no account may delay
//! another one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use admin::{Caller, Permission, settings::AdminSettings};
use state::{ReaderThreads, supervise::outliving};
use tokio::{
    join,
    sync::{Mutex as AsyncMutex, watch},
    time::{Instant, timeout},
};

use crate::permissions::{known_permission, permission};

/// How many look-ups run at a time, each in a thread of its own.
const LOOK_UPS_MAX: usize = 2;
/// How long a caller waits for a look-up. An account without an answer by then has no right.
const DEADLINE: Duration = Duration::from_secs(2);
/// How long an answer is used.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// Maximum number of accounts whose look-ups run, wait or are kept. One account may have many subordinate uids, so at
/// the limit the oldest account without a right makes room.
const KNOWN_MAX: usize = 1_024;

/// Looks up what an account may do. Blocks.
type LookUp = fn(&AdminSettings, Caller) -> Permission;

/// The permissions of accounts. Each account has one look-up at a time, whatever the number of its connections and its
/// groups.
pub(crate) struct AccountPermissions {
    threads: ReaderThreads,
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
    /// Held by the running look-up of this uid.
    turn: Arc<AsyncMutex<()>>,
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
            threads: ReaderThreads::new("groups", LOOK_UPS_MAX),
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
            let answered = answered.ok().and_then(|answer| *answer.ok()?);
            answered.unwrap_or(Permission::None)
        }
    }

    /// The answer of the current look-up of an account, or of a new one. `None` if too many accounts are known that have a
    /// right or whose look-up runs or waits.
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
        if known.len() >= KNOWN_MAX && !forget_one_without_right(&mut known) {
            return None;
        }
        let mut of_uid = known.iter().filter(|(other, _)| other.uid == caller.uid);
        let turn = of_uid.next().map(|(_, known)| Arc::clone(&known.turn));
        let turn = turn.unwrap_or_default();
        let (answers, answer) = watch::channel(None);
        let entry = Known {
            since: Instant::now(),
            answer: answer.clone(),
            turn: Arc::clone(&turn),
        };
        known.insert(account, entry);
        let look_up = self.look_up;
        let looked_up = self.threads.run(move || look_up(&settings, caller));
        let begin = async move {
            let _turn = turn.lock_owned().await;
            if let Some(permission) = looked_up.await {
                answers.send_replace(Some(permission));
            }
        };
        let (deadline, mut awaited) = (self.deadline, answer.clone());
        let warn = async move {
            let answered = timeout(deadline, awaited.wait_for(Option::is_some));
            if answered.await.is_err() {
                tracing::warn!(
                    uid = caller.uid,
                    "the name service (NSS) did not return the groups of an account on the admin socket within \
                     {deadline:?}; the account is refused until it does; check `getent group` and `id`"
                );
            }
        };
        // A caller that disconnects does not stop the look-up: the next one gets its answer.
        drop(outliving("groups", async { join!(begin, warn) }));
        Some(answer)
    }
}

/// Forgets the account without a right whose look-up is the oldest. Returns false if there is no such account.
fn forget_one_without_right(known: &mut HashMap<Account, Known>) -> bool {
    let is_without = |known: &Known| *known.answer.borrow() == Some(Permission::None);
    let without = known.iter().filter(|(_, known)| is_without(known));
    let oldest = without.min_by_key(|(_, known)| known.since);
    let oldest = oldest.map(|(account, _)| account.clone());
    oldest.is_some_and(|account| known.remove(&account).is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, LazyLock};

    use super::*;

    /// Accounts from 5000 to 5999 wait for this.
    static RELEASED: LazyLock<(Mutex<bool>, Condvar)> = LazyLock::new(Default::default);
    static LOOKED_UP: Mutex<Vec<u32>> = Mutex::new(Vec::new());

    fn look_up(_: &AdminSettings, caller: Caller) -> Permission {
        let uid = caller.uid.unwrap_or_default();
        LOOKED_UP.lock().unwrap().push(uid);
        // The look-ups of these accounts answer once, and hang after that.
        while (6_000..7_000).contains(&uid) && count(uid) > 1 {
            std::thread::park();
        }
        while (7_000..8_000).contains(&uid) {
            std::thread::park();
        }
        if uid >= 8_000 {
            return Permission::None;
        }
        if (5_000..6_000).contains(&uid) {
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
        of_group(permissions, uid, uid)
    }

    fn of_group(
        permissions: &AccountPermissions,
        uid: u32,
        gid: u32,
    ) -> impl Future<Output = Permission> + use<> {
        let settings = AdminSettings {
            operate_group: Some("ops".to_owned()),
            ..AdminSettings::default()
        };
        let caller = Caller {
            uid: Some(uid),
            gid: Some(gid),
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

    /// Without this, one account that changes its group would use up the threads.
    #[tokio::test]
    async fn an_account_has_one_look_up_at_a_time_whatever_its_group() {
        let permissions = AccountPermissions {
            deadline: Duration::from_secs(10),
            ..AccountPermissions::new(look_up)
        };
        let _hang = [1, 2, 3].map(|gid| tokio::spawn(of_group(&permissions, 7_000, gid)));
        let began = async {
            while count(7_000) == 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(20), began)
            .await
            .expect("a look-up");
        assert_eq!(of(&permissions, 1_001).await, Permission::Operate);
        assert_eq!(count(7_000), 1);
    }

    #[tokio::test]
    async fn an_answer_is_used_for_ten_seconds_and_no_longer_if_the_name_service_hangs() {
        let permissions = AccountPermissions::new(look_up);
        assert_eq!(of(&permissions, 6_000).await, Permission::Operate);
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(of(&permissions, 6_000).await, Permission::Operate);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(of(&permissions, 6_000).await, Permission::None);
    }

    #[tokio::test]
    async fn accounts_without_a_right_make_room_for_a_further_account_at_the_limit() {
        let permissions = AccountPermissions::new(look_up);
        let count_known = || permissions.known.lock().unwrap().len();
        for number in 0..=KNOWN_MAX {
            let uid = 8_000 + u32::try_from(number).expect("a uid");
            assert_eq!(of(&permissions, uid).await, Permission::None);
        }
        assert!(count_known() <= KNOWN_MAX);
        assert_eq!(of(&permissions, 1_002).await, Permission::Operate);
        assert!(count_known() <= KNOWN_MAX);
    }
}
