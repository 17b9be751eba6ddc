//! `cargo xtask dist --check`: installs, runs, upgrades and removes each package on a test machine, and checks what
//! remains.

mod booted;
mod emulated;
mod incidents;
mod installed;
mod load;
mod served;

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Result, anyhow, bail};

use self::installed::Service;
use super::{
    debian,
    packages::Packages,
    root::Root,
    tools::{output, require, skip},
};
use crate::test::are_tools_required;
use testkit::Servers;

const CONFIG: &str = "/etc/proscenium/proscenium.toml";
const DATA: [&str; 2] = ["/var/lib/proscenium", "/var/log/proscenium"];

/// Fails if a program for the check is missing, and names the package to install.
pub(super) fn require_programs() -> Result<()> {
    require(&[
        "unshare",
        "nsenter",
        "setpriv",
        "systemd-sysusers",
        "systemd-tmpfiles",
        "logrotate",
    ])?;
    if fs::metadata("/proc/self")?.uid() != 0 {
        bail!("`dist --check` mounts file systems and changes accounts: run it as root");
    }
    Ok(())
}

/// Checks the packages on this machine, in Debian's releases, from repositories, for the other processor, and last in a
/// system that runs.
pub(super) fn run(first: &Packages, second: &Packages, aarch64: Option<&Packages>) -> Result<()> {
    in_root("this machine", Path::new("/"), first, second)?;
    for release in debian::RELEASES {
        let name = format!("Debian {release}");
        match debian::root(release) {
            Ok(lower) => in_root(&name, &lower, first, second)?,
            // Mirrors remove old releases.
            Err(why) if release == debian::OLDEST => skip(&format!("the packages in {name}"), &why),
            Err(why) => unless_required(&format!("the packages in {name}"), why)?,
        }
    }
    let lower = debian::root(debian::BOOTED);
    optional(
        "the repositories",
        served::require_programs(),
        &lower,
        |lower| served::check(&Root::new(lower)?),
    )?;
    match aarch64 {
        Some(packages) => optional(
            "the arm64 program",
            require(&[emulated::PROGRAM]),
            &emulated::libraries(),
            |libraries| emulated::check(packages, libraries),
        )?,
        None => println!("skipped: the arm64 program: it is not built"),
    }
    optional(
        "the service under systemd",
        require(&BOOT),
        &lower,
        |lower| booted::check(lower, &first.deb, &second.deb),
    )
}

/// Tests the life of the service in a system that runs.
pub(super) fn run_booted(first: &Path, second: &Path) -> Result<()> {
    require(&BOOT)?;
    require(&["strip"])?;
    booted::check(&debian::root(debian::BOOTED)?, first, second)
}

/// Plays the incidents in a system that runs.
pub(super) fn play_incidents(package: &Path, only: &[String]) -> Result<()> {
    require(&BOOT)?;
    require(&["chromedriver", "prometheus", "knotd", "mount", "cc"])?;
    incidents::play(&debian::root(debian::BOOTED)?, package, only)
}

/// Runs a check that needs these programs and this directory, or prints what is missing.
fn optional(
    part: &str,
    programs: Result<()>,
    directory: &Result<PathBuf>,
    check: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    println!("\n{part}");
    match (programs, directory) {
        (Err(why), _) => unless_required(part, why),
        (_, Err(why)) => unless_required(part, anyhow!("{why:#}")),
        (Ok(()), Ok(directory)) => check(directory),
    }
}

/// Reports that a part is skipped; this is an error with `PROSCENIUM_TOOLS=required`.
fn unless_required(part: &str, why: anyhow::Error) -> Result<()> {
    if are_tools_required()? {
        return Err(why.context(format!("{part} is required")));
    }
    skip(part, &why);
    Ok(())
}

/// Installs, runs, upgrades, removes and purges both packages in a view of this root.
fn in_root(name: &str, lower: &Path, first: &Packages, second: &Packages) -> Result<()> {
    for (manager, first, second) in [
        (&Manager::DPKG, &first.deb, &second.deb),
        (&Manager::RPM, &first.rpm, &second.rpm),
    ] {
        println!("\n{} on {name}", manager.name);
        let root = Root::new(lower)?;
        Check { manager, root }.run(first, second)?;
    }
    Ok(())
}

/// The programs that start a system.
const BOOT: [&str; 5] = ["systemd-nspawn", "setpriv", "unshare", "nsenter", "ip"];

/// Without this option, rpm does not run beside dpkg. The rpm of Debian 13 runs, and does not know the option.
const FORCE: &str = "--force-debian";

/// The commands of a package manager.
struct Manager {
    name: &'static str,
    install: &'static [&'static str],
    upgrade: &'static [&'static str],
    /// Compares the installed files with the package.
    verify: &'static [&'static str],
    remove: &'static [&'static str],
    /// Path of the administrator's configuration after the package is removed.
    configuration_left: &'static str,
    purge: Option<&'static [&'static str]>,
}

impl Manager {
    const DPKG: Self = Self {
        name: "dpkg",
        install: &["dpkg", "--install"],
        upgrade: &["dpkg", "--install"],
        verify: &["dpkg", "--verify", "proscenium"],
        remove: &["dpkg", "--remove", "proscenium"],
        configuration_left: CONFIG,
        purge: Some(&["dpkg", "--purge", "proscenium"]),
    };
    // Debian's rpm does not know the libraries that dpkg has installed, so it runs without dependency checks.
    const RPM: Self = Self {
        name: "rpm",
        install: &["rpm", FORCE, "--nodeps", "--install"],
        upgrade: &["rpm", FORCE, "--nodeps", "--upgrade"],
        verify: &["rpm", "--verify", "--nodeps", "proscenium"],
        remove: &["rpm", FORCE, "--erase", "proscenium"],
        configuration_left: "/etc/proscenium/proscenium.toml.rpmsave",
        purge: None,
    };
}

struct Check<'a> {
    manager: &'a Manager,
    root: Root,
}

impl Check<'_> {
    fn run(&self, first: &Path, second: &Path) -> Result<()> {
        let before = self.root.changed("proscenium")?;
        self.expect(
            "nothing of the package is on this machine",
            before.is_empty(),
            &before,
        )?;
        self.install(self.manager.install, first)?;
        self.has_owners_and_modes()?;
        self.neither_enabled_nor_started()?;

        let servers = Servers::start("dist");
        let service = Service::new(&self.root, &servers)?;
        self.is_refused_until_filled_in()?;
        let edited = service.fill_in()?;
        self.report(
            "check --user proscenium accepts the filled-in configuration",
            service.check()?,
        )?;
        self.serves(&service, "the installed program")?;

        self.say("the installed program runs during the upgrade");
        let running = service.start()?;
        self.install(self.manager.upgrade, second)?;
        self.configuration_is(CONFIG, &edited, "the upgrade")?;
        for (claim, found) in running.hand_over()? {
            self.report(claim, found)?;
        }
        self.neither_enabled_nor_started()?;
        self.serves(&service, "the upgraded program")?;

        self.call(self.manager.remove)?;
        self.configuration_is(self.manager.configuration_left, &edited, "the removal")?;
        for path in [
            "/usr/bin/proscenium",
            "/usr/lib/systemd/system/proscenium.service",
            "/run/proscenium",
        ] {
            self.expect(
                &format!("{path} is removed"),
                !self.root.path(path).exists(),
                &"it exists",
            )?;
        }
        for path in DATA {
            self.expect(
                &format!("{path} stays"),
                self.root.path(path).is_dir(),
                &"it is gone",
            )?;
        }
        if let Some(purge) = self.manager.purge {
            self.call(purge)?;
            let left = self.root.changed("proscenium")?;
            self.expect("nothing is left behind", left.is_empty(), &left)?;
        } else {
            self.only_data_is_left()?;
        }
        let account = self.in_root("getent", &["passwd", "proscenium"])?;
        self.say(&format!("the account stays: {}", account.trim()));
        Ok(())
    }

    /// rpm cannot purge a package, so the data must remain.
    fn only_data_is_left(&self) -> Result<()> {
        let left = self.root.changed("proscenium")?;
        let is_data = |path: &&String| {
            let data = DATA.iter().any(|data| path.starts_with(data));
            data || *path == "/etc/proscenium" || *path == self.manager.configuration_left
        };
        let others: Vec<_> = left.iter().filter(|path| !is_data(path)).collect();
        self.expect(
            "only the configuration, the state and the logs are left",
            others.is_empty(),
            &others,
        )?;
        self.say(&format!("    {}", left.join(" ")));
        Ok(())
    }

    fn install(&self, words: &[&str], package: &Path) -> Result<()> {
        let inside = self.root.bring(package)?;
        self.call(&[words, &[&inside]].concat())?;
        let changed = self.in_root(self.manager.verify[0], &self.manager.verify[1..]);
        // The administrator has edited the configuration. Both package managers print a line for it, and rpm also
        // fails.
        let unexpected: Vec<_> = match changed {
            Ok(text) => text.lines().map(str::to_owned).collect(),
            Err(error) => format!("{error:#}")
                .lines()
                .skip(1)
                .map(str::to_owned)
                .collect(),
        };
        let unexpected: Vec<_> = unexpected
            .iter()
            .filter(|line| !line.is_empty() && !line.ends_with(CONFIG))
            .collect();
        self.expect(
            "the installed files are those of the package",
            unexpected.is_empty(),
            &unexpected,
        )
    }

    fn has_owners_and_modes(&self) -> Result<()> {
        let account = self.in_root("getent", &["passwd", "proscenium"])?;
        let expected = ":Proscenium reverse proxy:/var/lib/proscenium:/usr/sbin/nologin";
        self.expect(
            &format!("account {}", account.trim()),
            account.trim_end().ends_with(expected),
            &expected,
        )?;
        for (path, expected) in [
            ("/usr/bin/proscenium", "root:root 755"),
            (
                "/usr/lib/systemd/system/proscenium.service",
                "root:root 644",
            ),
            ("/etc/proscenium", "root:root 755"),
            (CONFIG, "root:root 644"),
            ("/etc/default/proscenium", "root:root 644"),
            ("/etc/logrotate.d/proscenium", "root:root 644"),
            ("/run/proscenium", "proscenium:proscenium 755"),
            ("/var/lib/proscenium", "proscenium:proscenium 700"),
            ("/var/log/proscenium", "proscenium:proscenium 750"),
        ] {
            let found = self.in_root("stat", &["--format", "%U:%G %a", path])?;
            self.expect(
                &format!("{path} {expected}"),
                found.trim() == expected,
                &found.trim(),
            )?;
        }
        Ok(())
    }

    fn neither_enabled_nor_started(&self) -> Result<()> {
        let enabled = self
            .root
            .command("systemctl")
            .args(["is-enabled", "proscenium"])
            .output()?;
        let enabled = String::from_utf8_lossy(&enabled.stdout).trim().to_owned();
        self.expect(
            "the service is not enabled",
            enabled == "disabled",
            &enabled,
        )?;
        let runs = self.root.path("/run/proscenium/admin.sock").exists();
        self.expect(
            "the service is not started",
            !runs,
            &"it has an admin socket",
        )
    }

    fn is_refused_until_filled_in(&self) -> Result<()> {
        let mut check = self.root.command("proscenium");
        let refused = check.args(["check", "--user", "proscenium"]).output()?;
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        let wanted: Vec<_> = stderr
            .lines()
            .filter(|line| line.contains("FILL IN"))
            .collect();
        self.expect(
            "check refuses the installed configuration (exit code 78) and shows what to fill in:",
            refused.status.code() == Some(78) && wanted.len() == 2,
            &stderr,
        )?;
        for line in wanted {
            self.say(&format!("    {line}"));
        }
        Ok(())
    }

    /// Runs the service and checks its responses; `service` returns the results.
    fn serves(&self, service: &Service<'_>, what: &str) -> Result<()> {
        self.say(&format!("{what} starts as proscenium"));
        for (claim, found) in service.serve()? {
            self.report(claim, found)?;
        }
        Ok(())
    }

    fn configuration_is(&self, path: &str, expected: &str, after: &str) -> Result<()> {
        let found = fs::read_to_string(self.root.path(path)).unwrap_or_default();
        let claim = format!("the edited configuration survives {after}: {path}");
        self.expect(&claim, found == expected, &found)
    }

    fn call(&self, words: &[&str]) -> Result<()> {
        let mut words = words.to_owned();
        if words.contains(&FORCE) && self.in_root("rpm", &[FORCE, "--version"]).is_err() {
            words.retain(|word| *word != FORCE);
        }
        println!("  # {}", words.join(" "));
        self.in_root(words[0], &words[1..]).map(drop)
    }

    fn in_root(&self, program: &str, arguments: &[&str]) -> Result<String> {
        output(self.root.command(program).args(arguments))
    }

    fn report(&self, claim: &str, fault: Option<String>) -> Result<()> {
        self.expect(claim, fault.is_none(), &fault)
    }

    fn expect(&self, claim: &str, holds: bool, found: &dyn std::fmt::Debug) -> Result<()> {
        if !holds {
            bail!("{}: {claim}; found: {found:?}", self.manager.name);
        }
        self.say(&format!("✓ {claim}"));
        Ok(())
    }

    fn say(&self, text: &str) {
        println!("  {text}");
    }
}
