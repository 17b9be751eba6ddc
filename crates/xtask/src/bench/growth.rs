//! `cargo xtask bench growth`: user instructions of a small request while the data that the proxy holds grows.
//!
//! Each row changes one quantity. Everything that grows is in place before the count starts, and the same ten
//! connections send the counted requests. The other connections are open and idle, and the other certnames have
//! connected once. Keys are P-256, and valgrind does not count before the requests start, so that tens of thousands of
//! handshakes take only minutes. Members are not probed, because the cost of probes depends on time and not on
//! requests.

use std::{fmt::Write as _, fs, net::SocketAddr, process::Command};

use anyhow::{Context, Result, ensure};
use clap::Args;
use testkit::Ca;
use tokio::runtime;

use super::{
    callgrind,
    cores::Cores,
    load::{self, Errand, Load},
    members::Members,
    peers::Peer,
    pki::Pki,
    requests::Mix,
    shape::Shape,
};
use crate::workspace;

/// The rows to measure, and the number of requests.
#[derive(Args)]
pub(crate) struct Options {
    /// Rows whose names contain this
    #[arg(long)]
    only: Option<String>,
    /// Requests that are counted
    #[arg(long, default_value_t = 4_000)]
    requests: u64,
}

/// The quantities that grow.
#[derive(Clone, Copy)]
struct Size {
    connections: usize,
    members: usize,
    routes: usize,
    crl_entries: u64,
    certnames: usize,
}

/// The starting size of all rows.
const SMALL: Size = Size {
    connections: BUSY,
    members: 2,
    routes: 5,
    crl_entries: 0,
    certnames: 1,
};

/// One quantity and its larger size.
struct Row {
    name: &'static str,
    quantity: fn(&Size) -> u64,
    large: Size,
    /// Maximum growth of the cost of a request.
    growth_max: f64,
}

const ROWS: [Row; 5] = [
    Row {
        name: "connections",
        quantity: |size| size.connections as u64,
        large: Size {
            connections: 10_000,
            ..SMALL
        },
        growth_max: GROWTH_MAX,
    },
    Row {
        name: "members",
        quantity: |size| size.members as u64,
        large: Size {
            members: 100,
            ..SMALL
        },
        growth_max: GROWTH_MAX_MEMBERS,
    },
    Row {
        name: "routes",
        quantity: |size| size.routes as u64,
        large: Size {
            routes: 500,
            ..SMALL
        },
        growth_max: GROWTH_MAX,
    },
    Row {
        name: "crl-entries",
        quantity: |size| size.crl_entries,
        large: Size {
            crl_entries: 1_000_000,
            ..SMALL
        },
        growth_max: GROWTH_MAX,
    },
    Row {
        name: "certnames",
        quantity: |size| size.certnames as u64,
        large: Size {
            certnames: 50_000,
            ..SMALL
        },
        growth_max: GROWTH_MAX,
    },
];

/// Measures and prints the rows. Exits with 1 if the cost of a request grows too much.
pub(super) fn run(options: &Options) -> Result<()> {
    if cfg!(debug_assertions) {
        return workspace::run_optimised();
    }
    for (program, package) in [("valgrind", "valgrind"), ("vgdb", "valgrind")] {
        ensure!(
            workspace::is_installed(program),
            "{program} is not installed: apt install {package}"
        );
    }
    let wanted = |row: &&Row| {
        let only = options.only.as_ref();
        only.is_none_or(|only| row.name.contains(only))
    };
    let rows: Vec<_> = ROWS.iter().filter(wanted).collect();
    ensure!(!rows.is_empty(), "no row has such a name");
    let cores = Cores::here()?;
    let small = instructions(&SMALL, &cores, options.requests)?;
    println!(
        "| what grows | from | to | user instructions a request, before | after | growth | |\n\
         | --- | --- | --- | --- | --- | --- | --- |"
    );
    let mut exceeded = Vec::new();
    for row in rows {
        let large = instructions(&row.large, &cores, options.requests)?;
        println!("{}", row.line(small, large));
        if !row.is_flat(small, large) {
            exceeded.push(format!("{} ({:.0} %)", row.name, 100.0 * row.growth_max));
        }
    }
    ensure!(
        exceeded.is_empty(),
        "the cost of a request exceeds its bound with more of: {}",
        exceeded.join(", ")
    );
    Ok(())
}

impl Row {
    fn line(&self, small: f64, large: f64) -> String {
        format!(
            "| {} | {} | {} | {small:.0} | {large:.0} | {:+.1} % | {} |",
            self.name,
            (self.quantity)(&SMALL),
            (self.quantity)(&self.large),
            100.0 * (large / small - 1.0),
            if self.is_flat(small, large) {
                "flat"
            } else {
                "grows"
            },
        )
    }

    fn is_flat(&self, small: f64, large: f64) -> bool {
        large <= small * (1.0 + self.growth_max)
    }
}

/// User instructions per request for a proxy of this size.
fn instructions(size: &Size, cores: &Cores, requests: u64) -> Result<f64> {
    let folder = tempfile::tempdir().context("no folder to work in")?;
    let ca = Ca::new();
    if size.crl_entries > 0 {
        ca.revoke_strangers(size.crl_entries);
    }
    let server = ca.server("puppet.example.com");
    let agents = vec![ca.agent("agent.example.com")];
    let (bundle, crl) = (ca.bundle_pem(), ca.crl_pem());
    let pki = Pki::of(folder.path(), bundle, &crl, "puppet", &server, agents)?;
    let members = Members::with_compilers(size.members)?;
    let edit = |config| size.edit(config, &members.compilers);
    let peer = Peer::proscenium(folder.path(), &members, &Shape::PLAIN, edit)?;
    let out = folder.path().join("callgrind");
    let file = format!("--callgrind-out-file={}", out.display());
    let tool = ["valgrind", "--quiet", "--tool=callgrind", OFF, &file];
    let proxy = peer.start_under(&tool, cores)?;

    connect_agents(proxy.address(), &pki, &ca, size.certnames)?;
    let connect = |count| Load::connect(proxy.address(), &pki, &pki.agents, count);
    let mut idle = Vec::new();
    for _ in 0..(size.connections - BUSY).div_ceil(BATCH) {
        let mut batch = connect(BATCH)?;
        batch.run(&Mix::small(), BATCH as u64)?;
        idle.push(batch);
    }
    let mut busy = connect(BUSY)?;
    busy.run(&Mix::small(), WARM_UP)?;
    command_valgrind(proxy.id(), &["instrumentation", "on"])?;
    let answers = busy.run(&Mix::small(), requests)?;
    command_valgrind(proxy.id(), &["dump"])?;
    answers.ensure_good(peer.name())?;
    let mut sum = callgrind::Sum::default();
    // callgrind adds `.1` to the name of the first dump.
    sum.read(&fs::read_to_string(out.with_extension("1"))?);
    Ok(sum.total as f64 / answers.good as f64)
}

/// Connects each of the agents once, for one request. One of them has already connected.
fn connect_agents(address: SocketAddr, pki: &Pki, ca: &Ca, certnames: usize) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    for n in 1..certnames {
        let agent = ca.agent(&format!("agent{n}.example.com"));
        let client = load::client_config(pki, &agent, rustls::ALL_VERSIONS)?;
        runtime.block_on(client.connect_once(address, Errand::Ask))?;
    }
    Ok(())
}

/// Sends a command to a program that runs under valgrind.
fn command_valgrind(process: u32, command: &[&str]) -> Result<()> {
    let mut vgdb = Command::new("vgdb");
    vgdb.arg(format!("--pid={process}")).args(command);
    let output = vgdb.output().context("vgdb does not start")?;
    ensure!(
        output.status.success(),
        "vgdb: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

impl Size {
    /// The configuration of the other benchmarks, with this number of members and routes and a sufficient connection
    /// limit.
    fn edit(&self, config: String, compilers: &[SocketAddr]) -> String {
        let members: Vec<_> = compilers.iter().map(ToString::to_string).collect();
        let mut config = config
            .replace(MEMBERS, &format!("members = {members:?}"))
            .replace("type = \"tcp\"", "type = \"none\"")
            .replace(
                "idle_timeout = \"300s\"",
                "idle_timeout = \"24h\"\nconnections_max_per_address = 20000",
            );
        for n in 0..self.routes {
            // Writing to a String cannot fail.
            let _ = write!(
                config,
                "\n[[routes]]\nname = \"route{n}\"\npath = {{ prefix = \"/puppet/v3/route{n}/\" }}\npool = \"compilers\"\n"
            );
        }
        config
    }
}

/// Number of connections that send the counted requests.
const BUSY: usize = 10;
/// Number of idle connections that are opened and used at the same time.
const BATCH: usize = 90;
const WARM_UP: u64 = 1_000;
const GROWTH_MAX: f64 = 0.10;
/// With fewer requests in flight than members, no request visits all members.
const GROWTH_MAX_MEMBERS: f64 = 0.03;
/// Starts callgrind without counting.
const OFF: &str = "--instr-atstart=no";
const MEMBERS: &str = "members = [\"127.0.0.1:9002\", \"127.0.0.1:9003\"]";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_grows_by_members_and_routes() {
        let template = Shape::PLAIN.fill(include_str!("../../../../bench/proscenium.toml"));
        let compilers: Vec<_> = (1..=100)
            .map(|port| ([127, 0, 0, 1], port).into())
            .collect();
        let size = Size {
            routes: 500,
            ..SMALL
        };
        let config = size.edit(template, &compilers);
        assert!(config.contains("\"127.0.0.1:1\", \"127.0.0.1:2\""));
        assert!(config.contains("\"127.0.0.1:100\"]"));
        assert!(!config.contains("127.0.0.1:9002") && !config.contains("\"tcp\""));
        assert_eq!(config.matches("\n[[routes]]\n").count(), 500);
        assert!(config.contains("connections_max_per_address"));
    }

    #[test]
    fn growth_up_to_the_bound_of_the_row_is_accepted() {
        for (row, largest) in [("members", 1_030.0), ("routes", 1_100.0)] {
            let row = ROWS.iter().find(|known| known.name == row).expect("a row");
            assert!(row.line(1_000.0, largest).ends_with(" % | flat |"));
            assert!(row.line(1_000.0, largest + 1.0).ends_with(" % | grows |"));
        }
    }
}
