//! The incidents: how each begins, what must be shown, and how it ends.

use std::{
    fs,
    net::TcpStream,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{Ca, NameServer, Reply, StandIn, srv_records};

use super::{CONFIG, LIMIT, Stage, catalog_of};
use crate::workspace::run;

/// Something that goes wrong.
pub(super) struct Incident {
    pub(super) name: &'static str,
    /// Makes it go wrong, and returns when it did.
    pub(super) begins: fn(&mut Stage<'_>) -> Result<Instant>,
    pub(super) shown: Shown,
    /// The exit code of `proscenium status --exit-code`.
    pub(super) exit_code: i32,
    /// Takes it back. The service is then restarted.
    pub(super) ends: fn(&mut Stage<'_>) -> Result<()>,
}

/// What must be shown first.
#[derive(Clone, Copy)]
pub(super) enum Shown {
    /// An alarm of one of these kinds (and objects), and all these alerts with their severities.
    Alarm {
        kinds: &'static [&'static str],
        alerts: &'static [&'static str],
    },
    /// The proxy does not answer.
    Stopped,
    /// One agent is refused, which is right.
    Refusal,
}

const fn alarm(kinds: &'static [&'static str], alerts: &'static [&'static str]) -> Shown {
    Shown::Alarm { kinds, alerts }
}

pub(super) const INCIDENTS: [Incident; 12] = [
    Incident {
        name: "wrong clock",
        begins: |stage| {
            let library = stage.check.root.path(CLOCK);
            let source = library.with_extension("c");
            fs::write(&source, WRONG_CLOCK)?;
            let mut compiler = Command::new("cc");
            compiler.args(["-shared", "-fPIC", "-o"]);
            run(compiler.arg(&library).arg(&source))?;
            stage.restarts_with_unit(&format!("Environment=LD_PRELOAD={CLOCK}"))?;
            Ok(Instant::now())
        },
        shown: alarm(&["clock-offset"], &["ProsceniumClockOffset (critical)"]),
        exit_code: 2,
        ends: |stage| stage.has_own_unit_again(),
    },
    Incident {
        name: "descriptors",
        begins: |stage| {
            stage.restarts_with_unit("LimitNOFILE=256")?;
            stage.service.answers()?;
            let begun = Instant::now();
            let connect = || TcpStream::connect(stage.service.address());
            let held = (0..300).map(|_| connect()).collect::<Result<Vec<_>, _>>()?;
            stage.held.push(Box::new(held));
            Ok(begun)
        },
        shown: alarm(&["descriptors"], &["ProsceniumDescriptors (critical)"]),
        exit_code: 2,
        ends: |stage| stage.has_own_unit_again(),
    },
    Incident {
        name: "CA's end",
        begins: |stage| {
            stage.service.trust_too(&Ca::expiring_in(5))?;
            Ok(Instant::now())
        },
        shown: alarm(&["ca-expiring"], &["ProsceniumCaExpiring (critical)"]),
        exit_code: 2,
        ends: new_certificate,
    },
    Incident {
        name: "own certificate",
        begins: |stage| {
            let leaf = stage
                .servers
                .ca
                .leaf("puppet")
                .dns("puppet")
                .ip("127.0.0.1");
            let expiring = leaf.dns("localhost").valid_seconds(-86_400, 15).issue();
            stage.service.write_files(&expiring)?;
            Ok(Instant::now())
        },
        shown: alarm(
            &["certificate-invalid"],
            &["ProsceniumCertificateInvalid (critical)"],
        ),
        exit_code: 2,
        ends: new_certificate,
    },
    Incident {
        name: "slow compiler",
        begins: |stage| {
            let [fast, slow] = [0, 1].map(|n| &stage.servers.compilers[n]);
            fast.answer(|request| catalog(request.path(), 50));
            slow.answer(|request| catalog(request.path(), 50));
            // A compiler is compared when it is warm.
            let is_warm = |member: &Value| member["warming"].is_null();
            compile_catalogs(stage, |status| {
                let pools = status["pools"].as_array();
                let pools = pools.into_iter().flatten();
                let members = pools.filter_map(|pool| pool["members"].as_array());
                members.flatten().all(is_warm)
            })?;
            slow.answer(|request| catalog(request.path(), 800));
            let begun = Instant::now();
            compile_catalogs(stage, |status| !status["alarms"][0].is_null())?;
            Ok(begun)
        },
        shown: alarm(&["slow-member"], &["ProsceniumSlowMember (warning)"]),
        exit_code: 1,
        ends: |stage| {
            stage
                .servers
                .compilers
                .iter()
                .for_each(|one| one.answer(|_| None));
            Ok(())
        },
    },
    Incident {
        name: "all compilers down",
        begins: |stage| {
            stage.servers.compilers.iter().for_each(StandIn::kill);
            Ok(Instant::now())
        },
        shown: alarm(
            &["pool-unavailable:compilers"],
            &["ProsceniumPoolUnavailable (critical)"],
        ),
        exit_code: 2,
        ends: |stage| {
            stage.servers.compilers.iter().for_each(StandIn::restart);
            Ok(())
        },
    },
    Incident {
        name: "CA down",
        begins: |stage| {
            stage.servers.ca_server.kill();
            Ok(Instant::now())
        },
        shown: alarm(
            &["pool-unavailable:ca"],
            &["ProsceniumPoolUnavailable (critical)"],
        ),
        exit_code: 2,
        ends: |stage| {
            stage.servers.ca_server.restart();
            Ok(())
        },
    },
    Incident {
        name: "disk full",
        begins: |stage| {
            for directory in DISKS {
                let mount = format!(
                    "mount -t tmpfs -o size=256k,mode=0750,uid=proscenium,gid=proscenium disk {directory}"
                );
                stage.check.call(&["sh", "-c", &mount])?;
            }
            stage.restarts_with(&stage.healthy)?;
            stage.service.answers()?;
            for directory in DISKS {
                // The file cannot have this size: the command fills the disk, and fails.
                let fill = format!("head -c 1M /dev/zero >{directory}/filling || true");
                stage.check.call(&["sh", "-c", &fill])?;
            }
            Ok(Instant::now())
        },
        shown: alarm(
            // Both have the same time.
            &["access-log", "state-directory"],
            &[
                "ProsceniumAccessLog (warning)",
                "ProsceniumStateDirectory (warning)",
            ],
        ),
        exit_code: 1,
        ends: |stage| {
            stage.check.call(&["systemctl", "stop", "proscenium"])?;
            DISKS
                .iter()
                .try_for_each(|directory| stage.check.call(&["umount", directory]))
        },
    },
    Incident {
        name: "broken edit",
        begins: |stage| {
            let broken = format!("{}\n[listeners.agents\n", stage.healthy);
            fs::write(stage.check.root.path(CONFIG), broken)?;
            let begun = Instant::now();
            let reloaded = stage.check.call(&["systemctl", "reload", "proscenium"]);
            ensure!(reloaded.is_err(), "a reload of a broken file succeeds");
            Ok(begun)
        },
        shown: alarm(&["reload-refused"], &["ProsceniumReloadRefused (critical)"]),
        exit_code: 2,
        ends: |_| Ok(()),
    },
    Incident {
        name: "refused agent",
        begins: |stage| {
            let begun = Instant::now();
            let answer = stage.service.revoked_agent().try_request(
                "GET",
                "/puppet/v3/catalog/web02?environment=production",
                &[],
                b"",
            );
            let answer = answer.map_err(|error| anyhow::anyhow!("{error}"))?;
            let refusal = format!("{} {}", answer.status, answer.text());
            ensure!(answer.status == 403, "{refusal}");
            stage.agents.state().failure = Some((Instant::now(), refusal));
            let who = stage.check.in_root("proscenium", &["who", "web02"])?;
            println!("  proscenium who web02:\n{who}");
            ensure!(who.contains("revoked"), "{who}");
            Ok(begun)
        },
        shown: Shown::Refusal,
        exit_code: 0,
        ends: |_| Ok(()),
    },
    Incident {
        name: "proxy stopped",
        begins: |stage| {
            let begun = Instant::now();
            stage.check.call(&["systemctl", "stop", "proscenium"])?;
            Ok(begun)
        },
        shown: Shown::Stopped,
        exit_code: 3,
        ends: |_| Ok(()),
    },
    Incident {
        name: "DNS gone",
        begins: |stage| {
            let compiler = StandIn::start("big");
            let records = srv_records(
                "_x-puppet._tcp",
                &[(0, 1, compiler.socket_address().port(), "big")],
            );
            let names =
                NameServer::start(&format!("{records}big A 127.0.0.1")).context("Knot DNS")?;
            let address = stage.servers.compilers[0].address();
            let text = stage
                .healthy
                .lines()
                .map(|line| match line.contains(&address) {
                    true => "members = [\"srv:_x-puppet._tcp.example.com\"]\nscheme = \"http\"\n"
                        .to_owned(),
                    false => format!("{line}\n"),
                });
            let dns = format!("[dns]\nservers = [\"{}\"]\n", names.address());
            stage.restarts_with(&format!("{}{dns}", text.collect::<String>()))?;
            stage.service.answers()?;
            names.stop();
            // The compiler serves on while the names are gone.
            stage.held.push(Box::new(compiler));
            Ok(Instant::now())
        },
        shown: alarm(&["dns-answer"], &["ProsceniumDnsAnswer (warning)"]),
        exit_code: 1,
        ends: |_| Ok(()),
    },
];

/// A library that sets the clock of one process back by three days. The one of Debian and the allocator of the program wait for
/// each other.
const WRONG_CLOCK: &str = "\
    #define _GNU_SOURCE\n\
    #include <sys/syscall.h>\n\
    #include <time.h>\n\
    #include <unistd.h>\n\
    int clock_gettime(clockid_t clock, struct timespec *now) {\n\
        int failed = syscall(SYS_clock_gettime, clock, now);\n\
        if (!failed && clock == CLOCK_REALTIME) now->tv_sec -= 3 * 86400;\n\
        return failed;\n\
    }\n";
const CLOCK: &str = "/usr/local/lib/wrong-clock.so";

/// The directories on the disk that becomes full.
const DISKS: [&str; 2] = ["/var/lib/proscenium", "/var/log/proscenium"];

/// A new certificate for the proxy, with the CA and the CRL of the agents alone.
fn new_certificate(stage: &mut Stage<'_>) -> Result<()> {
    stage
        .service
        .write_files(&stage.servers.ca.server("puppet"))
}

fn catalog(path: &str, milliseconds: u64) -> Option<Reply> {
    let reply = || Reply::json(&json!({"name": "web01", "resources": []}));
    let delayed = || reply().delay(Duration::from_millis(milliseconds));
    path.contains("/catalog/").then(delayed)
}

/// Sends catalog requests of several agents at once, until the proxy's status is as wanted.
fn compile_catalogs(stage: &Stage<'_>, wanted: impl Fn(&Value) -> bool) -> Result<()> {
    let agents: Vec<_> = stage.service.agents(16).into_iter().enumerate().collect();
    let deadline = Instant::now() + 2 * LIMIT;
    while !wanted(&stage.status()) {
        ensure!(Instant::now() < deadline, "{:#}", stage.status()["pools"]);
        thread::scope(|scope| {
            for (number, agent) in &agents {
                let catalog = catalog_of(*number);
                scope.spawn(move || {
                    (0..10).for_each(|_| drop(agent.try_request("GET", &catalog, &[], b"")));
                });
            }
        });
    }
    Ok(())
}
