//! `--user`: runs the same command again with the rights of another account.

use std::{
    env, io,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use rustix::{
    process::{Gid, Uid},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

use crate::failure::Failure;

/// Continues this command as the account `name`; only the rights of the process change. Must be called before the
/// process has a second thread. Returns only if the process already runs as that account.
pub(crate) fn become_user(name: &str) -> Result<(), Failure> {
    let account = Account::find(name)?;
    let us = rustix::process::geteuid();
    if us == account.uid {
        return Ok(());
    }
    if !us.is_root() {
        return Err(Failure::because(format!(
            "only root can test the rights of {name}: run `sudo proscenium check --user {name}`"
        )));
    }
    account.adopt().map_err(|error| {
        Failure::because(format!("cannot switch to the account {name}: {error}"))
    })?;
    // Executing the program again makes the kernel compute the dumpable flag and the capabilities for the new account.
    let mut command = Command::new("/proc/self/exe");
    let error = command.args(env::args_os().skip(1)).exec();
    Err(Failure::because(format!(
        "cannot execute this program as {name}: {error}; the account needs execute permission for it"
    )))
}

struct Account {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl Account {
    /// Uses `id`, which also finds accounts in directory services (LDAP, SSSD).
    fn find(name: &str) -> Result<Self, Failure> {
        let ids = |option| id(option, name);
        let unknown = || {
            Failure::because(format!(
                "the account {name} does not exist: create it, or correct --user"
            ))
        };
        let uid = ids("-u")?.first().copied().ok_or_else(unknown)?;
        let gid = ids("-g")?.first().copied().ok_or_else(unknown)?;
        Ok(Self {
            uid: Uid::from_raw(uid),
            gid: Gid::from_raw(gid),
            groups: ids("-G")?.into_iter().map(Gid::from_raw).collect(),
        })
    }

    fn adopt(&self) -> io::Result<()> {
        set_thread_groups(&self.groups)?;
        set_thread_res_gid(self.gid, self.gid, self.gid)?;
        set_thread_res_uid(self.uid, self.uid, self.uid)?;
        Ok(())
    }
}

/// The numbers that `id` prints; empty if the account does not exist.
fn id(option: &str, name: &str) -> Result<Vec<u32>, Failure> {
    let output = Command::new("id")
        .args([option, "--", name])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::because(format!("cannot run `id {option} {name}`: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = text.split_whitespace().map(str::parse);
    Ok(numbers.collect::<Result<_, _>>().unwrap_or_default())
}
