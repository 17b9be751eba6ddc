//! Which accounts may use the admin socket.

use admin::{Caller, Permission, settings::AdminSettings};
use state::accounts::{group_id, is_in_group};

/// Whether a caller is root or the account of the proxy.
pub(crate) fn is_owner(caller: Caller) -> bool {
    let own = rustix::process::geteuid().as_raw();
    caller.uid.is_some_and(|uid| uid == 0 || uid == own)
}

/// What an account may do, if that is known without a look-up of its groups.
pub(crate) fn known_permission(settings: &AdminSettings, caller: Caller) -> Option<Permission> {
    if caller.uid.is_none() {
        return Some(Permission::None);
    }
    if is_owner(caller) {
        return Some(Permission::Operate);
    }
    let has_groups = settings.operate_group.is_some() || settings.read_group.is_some();
    (!has_groups).then_some(Permission::None)
}

/// What the account of a caller may do. Blocks while name services answer.
pub(crate) fn permission(settings: &AdminSettings, caller: Caller) -> Permission {
    if let Some(known) = known_permission(settings, caller) {
        return known;
    }
    let Some(uid) = caller.uid else {
        return Permission::None;
    };
    let belongs = |group: &Option<String>| {
        let group = group.as_deref().and_then(group_id);
        group.is_some_and(|group| is_in_group(uid, caller.gid, group))
    };
    if belongs(&settings.operate_group) {
        Permission::Operate
    } else if belongs(&settings.read_group) {
        Permission::Read
    } else {
        Permission::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(read: Option<&str>, operate: Option<&str>) -> AdminSettings {
        AdminSettings {
            read_group: read.map(str::to_owned),
            operate_group: operate.map(str::to_owned),
            ..AdminSettings::default()
        }
    }

    #[test]
    fn root_and_the_account_of_the_proxy_operate_and_groups_do_what_they_may() {
        let other = |gid| Caller {
            uid: Some(4_000_000),
            gid: Some(gid),
        };
        let root = Caller {
            uid: Some(0),
            gid: Some(0),
        };
        let nothing = settings(None, None);
        let both = settings(Some("4711"), Some("4712"));
        for (settings, caller, expected) in [
            (&nothing, root, Permission::Operate),
            (&nothing, other(0), Permission::None),
            (&both, other(4711), Permission::Read),
            (&both, other(4712), Permission::Operate),
            (&both, other(4713), Permission::None),
            (
                &settings(Some("no-such-group"), None),
                other(4711),
                Permission::None,
            ),
            (
                &both,
                Caller {
                    uid: None,
                    gid: Some(4712),
                },
                Permission::None,
            ),
        ] {
            assert_eq!(
                permission(settings, caller),
                expected,
                "{settings:?} {caller:?}"
            );
        }
    }
}
