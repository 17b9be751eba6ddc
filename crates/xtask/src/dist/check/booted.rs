//! The life of the service in a system with a running systemd, while agents send requests. No request that a drain
//! would complete is ever cut.

use std::{
    fs, os::unix::fs::PermissionsExt as _, path::Path, sync::atomic::Ordering, thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use testkit::{Client, Servers, wait_until};

use super::{Check, Manager, Root, installed::Service, load::Load};

/// Agents that run in a loop.
const AGENTS: usize = 20;
/// Requests of an agent on one connection.
const REQUESTS: usize = 5;
/// Agents whose catalogs take long.
const SLOW_AGENTS: usize = 8;
/// Longer than the former process needs to complete its requests.
const END: Duration = Duration::from_secs(90);
const PROGRAM: &str = "/usr/bin/proscenium";

/// Installs the first package, upgrades to the second one, and stops and restarts the service in every way.
pub(super) fn check(lower: &Path, first: &Path, second: &Path) -> Result<()> {
    in_system(lower, |check| check.life(first, second))
}

/// Starts a system in a copy of this root, and does this there.
pub(super) fn in_system(
    lower: &Path,
    act: impl FnOnce(&mut Check<'_>) -> Result<()> + Send,
) -> Result<()> {
    let mut check = Check {
        manager: &Manager::DPKG,
        root: Root::boot(lower)?,
    };
    // Only a new thread can leave the network of the others.
    thread::scope(|scope| {
        let done = scope.spawn(|| {
            check.root.join_network()?;
            act(&mut check)
        });
        done.join()
            .unwrap_or_else(|_| Err(anyhow!("it broke off; the reason is above")))
    })
}

impl Check<'_> {
    fn life(&mut self, first: &Path, second: &Path) -> Result<()> {
        self.install(self.manager.install, first)?;
        self.neither_enabled_nor_started()?;
        let servers = Servers::start("booted");
        let service = Service::new(&self.root, &servers)?;
        service.fill_in()?;
        let agents = || service.agents(AGENTS);
        self.call(&["systemctl", "enable", "--now", "proscenium"])?;
        let former = self.property("MainPID")?;
        self.handshake_threads_are_idle(&former)?;

        let load = Load::default();
        load.during(agents(), REQUESTS, || {
            self.call(&["systemctl", "reload", "proscenium"])?;
            load.wait_for_more(AGENTS as u64 * 2)?;
            self.install(self.manager.upgrade, second)?;
            load.wait_for_more(AGENTS as u64 * 2)
        })?;
        load.end("  a reload, and an upgrade by hand-over")?;
        let main = self.property("MainPID")?;
        self.expect(
            &format!("systemd has the new process {main} as main process, in place of {former}"),
            main != former && main != "0",
            &main,
        )?;
        let parent = self.parent(&main)?;
        self.expect("systemd is its parent", parent == "1", &parent)?;
        self.expect_active()?;
        let is_gone = || (!self.root.path(&format!("/proc/{former}")).exists()).then_some(());
        wait_until(END, is_gone).context("the former process does not end")?;
        self.say("✓ the former process has ended");

        self.finishes_requests(
            "a stop after the upgrade",
            &service,
            &servers,
            "stop",
            || Ok(()),
        )?;
        self.expect_stopped()?;
        self.call(&["systemctl", "start", "proscenium"])?;
        self.finishes_requests(
            "a stop while the former process drains",
            &service,
            &servers,
            "stop",
            || self.hand_over(),
        )?;
        self.expect_stopped()?;
        self.call(&["systemctl", "start", "proscenium"])?;
        self.hand_over()?;
        self.finishes_requests("a restart", &service, &servers, "restart", || Ok(()))?;
        self.expect_active()?;

        let load = Load::default();
        load.is_restarted.store(true, Ordering::SeqCst);
        load.during(agents(), REQUESTS, || {
            self.hand_over()?;
            load.wait_for_more(AGENTS as u64 * 2)?;
            self.call(&["systemctl", "restart", "proscenium"])?;
            load.wait_for_more(AGENTS as u64 * 2)
        })?;
        load.end("  a hand-over, and a restart under load")?;

        self.hand_over()?;
        self.is_started_again_after_a_crash(&service)?;
        self.keeps_the_program_that_runs(&service)?;
        drop(service);
        self.call(&["proscenium", "block", "web77", "--why", "stolen"])?;
        println!("  # systemctl reboot");
        self.root.reboot()?;
        self.expect_active()?;
        let blocks = self.in_root("proscenium", &["blocks"])?;
        self.expect("blocks survive it", blocks.contains("web77"), &blocks)
    }

    /// Asserts that running requests are completed, also those that the process from before `before` handles.
    fn finishes_requests(
        &self,
        what: &str,
        service: &Service<'_>,
        servers: &Servers,
        verb: &str,
        before: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let clients: Vec<_> = service
            .agents(2 * SLOW_AGENTS)
            .into_iter()
            .enumerate()
            .collect();
        let (early, late) = clients.split_at(SLOW_AGENTS);
        for compiler in &servers.compilers {
            compiler.hold();
            compiler.forget();
        }
        let arrived = |count: usize| {
            let requests = || {
                servers
                    .compilers
                    .iter()
                    .map(|one| one.requests().len())
                    .sum::<usize>()
            };
            wait_until(END, || (requests() >= count).then_some(()))
                .with_context(|| format!("{count} requests do not arrive"))
        };
        let answers = thread::scope(|scope| -> Result<Vec<String>> {
            let ask = |(number, client): &(usize, Client)| {
                let catalog = format!("/puppet/v3/catalog/web{number}?environment=production");
                match client.try_request("GET", &catalog, &[], b"") {
                    Ok(answer) => answer.status.to_string(),
                    Err(error) => error.to_string(),
                }
            };
            let mut asking: Vec<_> = early
                .iter()
                .map(|one| scope.spawn(move || ask(one)))
                .collect();
            let result = arrived(early.len()).and_then(|()| before()).and_then(|()| {
                asking.extend(late.iter().map(|one| scope.spawn(move || ask(one))));
                arrived(clients.len())?;
                // The command returns when the service has stopped.
                let stopping = scope.spawn(|| self.call(&["systemctl", verb, "proscenium"]));
                let is_draining = || {
                    let state = self.property("SubState").ok()?;
                    (state != "running" || stopping.is_finished()).then_some(())
                };
                wait_until(END, is_draining).context("it does not stop")?;
                Ok(stopping)
            });
            for compiler in &servers.compilers {
                compiler.release();
            }
            let stopping = result?;
            let joined = stopping.join();
            joined.unwrap_or_else(|_| Err(anyhow!("systemctl was not run")))?;
            let answers = asking.into_iter().map(|one| one.join());
            Ok(answers
                .map(|one| one.unwrap_or_else(|_| "panic".to_owned()))
                .collect())
        })?;
        let cut: Vec<_> = answers.iter().filter(|answer| *answer != "200").collect();
        self.expect(
            &format!("{what} finishes {} requests", answers.len()),
            cut.is_empty(),
            &format!("{cut:?}\n{}", self.journal()?),
        )
    }

    /// Makes another build take over; returns when it has.
    fn hand_over(&self) -> Result<()> {
        self.replace_program(|program| program.push(0))?;
        self.call(&["systemctl", "reload", "proscenium"])
    }

    fn replace_program(&self, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let path = self.root.path(PROGRAM);
        let mut program = fs::read(&path)?;
        change(&mut program);
        let new = path.with_extension("new");
        fs::write(&new, program)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
        Ok(fs::rename(new, path)?)
    }

    fn is_started_again_after_a_crash(&self, service: &Service<'_>) -> Result<()> {
        let main = self.property("MainPID")?;
        self.call(&["sh", "-c", &format!("kill -KILL {main}")])?;
        wait_until(END, || {
            let now = self.property("MainPID").ok()?;
            (now != main && now != "0").then_some(())
        })
        .context("systemd does not start it again after SIGKILL")?;
        service.answers()?;
        self.say("✓ systemd starts it again after SIGKILL");
        Ok(())
    }

    /// Replaces the program by one that crashes, and by one that is never ready. The running program must continue.
    fn keeps_the_program_that_runs(&self, service: &Service<'_>) -> Result<()> {
        let main = self.property("MainPID")?;
        let program = fs::read(self.root.path(PROGRAM))?;
        self.replace_program(|new| *new = b"#!/bin/sh\nkill -SEGV $$\n".to_vec())?;
        let postinst = "/var/lib/dpkg/info/proscenium.postinst";
        let upgrade = self
            .root
            .command(postinst)
            .args(["configure", "0.1"])
            .output()?;
        let printed = String::from_utf8_lossy(&upgrade.stderr).into_owned();
        self.expect(
            "an upgrade to a program that crashes says so",
            printed.contains("crashed with exit code 139"),
            &printed,
        )?;

        // systemd ends the reload before the program is ready.
        let settings = self.root.path("/run/systemd/system/proscenium.service.d");
        fs::create_dir_all(&settings)?;
        fs::write(settings.join("time.conf"), "[Service]\nTimeoutStartSec=3\n")?;
        self.call(&["systemctl", "daemon-reload"])?;
        self.replace_program(|new| *new = b"#!/bin/sh\nexec sleep 1000\n".to_vec())?;
        let reload = self.call(&["systemctl", "reload", "proscenium"]);
        self.expect(
            "a reload to a program that is never ready fails",
            reload.is_err(),
            &"it succeeds",
        )?;
        self.replace_program(|new| *new = program)?;
        wait_until(END, || {
            let group = self
                .root
                .path("/sys/fs/cgroup/system.slice/proscenium.service/cgroup.procs");
            let processes = fs::read_to_string(group).ok()?;
            (processes.lines().count() == 1).then_some(())
        })
        .context("the new process does not end")?;
        let now = self.property("MainPID")?;
        self.expect("the program that runs serves on", now == main, &now)?;
        service.answers()?;
        self.call(&["systemctl", "reload", "proscenium"])
    }

    /// Asserts that the threads that compute handshakes have the class `SCHED_IDLE`, although the unit permits few
    /// system calls.
    fn handshake_threads_are_idle(&self, pid: &str) -> Result<()> {
        let threads = fs::read_dir(self.root.path(&format!("/proc/{pid}/task")))?;
        let stats = threads.flatten();
        let stats = stats.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
        // Field 41 of proc(5); 5 is SCHED_IDLE.
        let class =
            |stat: String| Some(stat.rsplit_once(") ")?.1.split(' ').nth(41 - 3)?.to_owned());
        let of_handshakes = stats.filter(|stat| stat.contains("(handshake-"));
        let classes: Vec<_> = of_handshakes.filter_map(class).collect();
        self.expect(
            "the threads for handshakes have the class SCHED_IDLE",
            !classes.is_empty() && classes.iter().all(|class| class == "5"),
            &classes.join(" "),
        )
    }

    fn expect_active(&self) -> Result<()> {
        let (state, journal) = (self.property("ActiveState")?, self.supervised()?);
        let found = format!("{state}\n{journal}");
        self.expect("the service is active", state == "active", &found)
    }

    fn expect_stopped(&self) -> Result<()> {
        let (state, result) = (self.property("ActiveState")?, self.property("Result")?);
        let found = format!("{state} {result}\n{}", self.supervised()?);
        self.expect(
            "the service stops in order",
            state == "inactive" && result == "success",
            &found,
        )
    }

    /// Returns the journal. Fails if systemd complains there that it cannot wait for the main process.
    fn supervised(&self) -> Result<String> {
        let journal = self.journal()?;
        ensure!(!journal.contains("which is not our child"), "{journal}");
        Ok(journal)
    }

    /// The parent of a process, by the process ids inside the system.
    fn parent(&self, pid: &str) -> Result<String> {
        let status = fs::read_to_string(self.root.path(&format!("/proc/{pid}/status")))?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        Ok(parent.context("a line")?.trim().to_owned())
    }

    fn property(&self, name: &str) -> Result<String> {
        let shown = self.in_root("systemctl", &["show", "--value", "-p", name, "proscenium"])?;
        Ok(shown.trim().to_owned())
    }

    fn journal(&self) -> Result<String> {
        self.in_root(
            "journalctl",
            &["--no-pager", "--lines=60", "--unit=proscenium"],
        )
    }
}
