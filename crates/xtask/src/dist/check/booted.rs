//! Upgrades the package in a system with a running systemd while agents send requests.

use std::{path::Path, thread, time::Duration};

use anyhow::{Context, Result, anyhow};
use testkit::{Servers, wait_until};

use super::{Check, Manager, Root, installed::Service};
use crate::uninterrupted::Load;

/// Agents that run in a loop.
const AGENTS: usize = 20;
/// Requests of an agent on one connection.
const REQUESTS: usize = 5;
/// Longer than the former process takes to finish its connections.
const END: Duration = Duration::from_secs(90);

/// Starts the service of the first package, and upgrades to the second one.
pub(super) fn check(lower: &Path, first: &Path, second: &Path) -> Result<()> {
    let check = Check {
        manager: &Manager::DPKG,
        root: Root::boot(lower)?,
    };
    // Only a new thread can leave the network of the others.
    thread::scope(|scope| {
        let checked = scope.spawn(|| {
            check.root.join_network()?;
            check.upgrade_under_load(first, second)
        });
        checked
            .join()
            .unwrap_or_else(|_| Err(anyhow!("it broke off; the reason is above")))
    })
}

impl Check<'_> {
    fn upgrade_under_load(&self, first: &Path, second: &Path) -> Result<()> {
        self.install(self.manager.install, first)?;
        self.neither_enabled_nor_started()?;
        let servers = Servers::start("booted");
        let service = Service::new(&self.root, &servers)?;
        service.fill_in()?;
        self.call(&["systemctl", "enable", "--now", "proscenium"])?;
        let former = self.property("MainPID")?;

        let load = Load::default();
        load.during(service.agents(AGENTS), REQUESTS, || {
            self.install(self.manager.upgrade, second)?;
            load.wait_for_more(AGENTS as u64 * 2)
        })?;
        load.end("  an upgrade by hand-over")?;
        let main = self.property("MainPID")?;
        self.expect(
            &format!("systemd has the new process {main} as main process, in place of {former}"),
            main != former && main != "0",
            &main,
        )?;
        let state = self.property("ActiveState")?;
        self.expect("the service is active", state == "active", &state)?;
        let is_gone = || (!self.root.path(&format!("/proc/{former}")).exists()).then_some(());
        wait_until(END, is_gone).context("the former process does not end")?;
        self.say("✓ the former process has ended");
        self.call(&["systemctl", "reload", "proscenium"])?;

        self.call(&["systemctl", "stop", "proscenium"])?;
        let (state, result) = (self.property("ActiveState")?, self.property("Result")?);
        self.expect(
            "the service stops in order",
            state == "inactive" && result == "success",
            &format!("{state} {result}\n{}", self.journal()?),
        )
    }

    fn property(&self, name: &str) -> Result<String> {
        let shown = self.in_root("systemctl", &["show", "--value", "-p", name, "proscenium"])?;
        Ok(shown.trim().to_owned())
    }

    fn journal(&self) -> Result<String> {
        self.in_root(
            "journalctl",
            &["--no-pager", "--lines=40", "--unit=proscenium"],
        )
    }
}
