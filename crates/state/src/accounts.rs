//! Accounts and groups of the machine, as its name services (NSS) know them: files, LDAP, SSSD.

use std::ffi::CString;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

/// The number of a group with this name, or the number itself.
pub fn group_id(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    Some(Group::from_name(name).ok()??.gid.as_raw())
}

/// The name of an account. Blocks while name services answer, except for root.
pub fn account_name(uid: u32) -> Option<String> {
    match uid {
        0 => Some("root".to_owned()),
        uid => Some(User::from_uid(Uid::from_raw(uid)).ok()??.name),
    }
}

/// Whether a process of this account and primary group is in the group `wanted`.
pub fn is_in_group(uid: u32, gid: Option<u32>, wanted: u32) -> bool {
    if gid == Some(wanted) {
        return true;
    }
    let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) else {
        return false;
    };
    let Ok(name) = CString::new(user.name) else {
        return false;
    };
    let groups = getgrouplist(&name, user.gid).unwrap_or_default();
    groups.contains(&Gid::from_raw(wanted))
}

/// The name of the account of this process, for commands in reports.
pub fn user() -> String {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut accounts = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    accounts
        .find(|fields| fields.get(2) == Some(&uid.as_str()))
        .map_or_else(|| uid.clone(), |fields| fields[0].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_in_its_group_and_in_no_unknown_group() {
        assert_eq!(group_id("root"), Some(0));
        assert_eq!(group_id("4711"), Some(4711));
        assert_eq!(group_id("no-such-group"), None);
        assert_eq!(account_name(0).as_deref(), Some("root"));
        assert_eq!(account_name(4_000_000), None);
        assert!(is_in_group(0, None, 0));
        assert!(is_in_group(4_000_000, Some(4711), 4711));
        assert!(!is_in_group(4_000_000, Some(1), 4711));
        assert!(!is_in_group(0, Some(0), 4711));
    }
}
