//! The documented costs: the rows of `cargo xtask bench table`, each with its workload and its bounds.

use std::{cell::RefCell, collections::HashMap, path::PathBuf, thread, time::Duration};

use anyhow::{Context, Result};
use rustls::version;

use super::{
    callgrind,
    comparison::Cost,
    cores::Cores,
    counts::{self, Footprint},
    cpu, h2,
    kept::{self, Work},
    l4,
    load::Load,
    overload,
    peers::Peer,
    pki::Pki,
    programs::Rival,
    requests::Mix,
    resume::{self, Series},
    shape::{Division, Shape},
    storm,
};

/// One documented cost.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// Bounds of the compared value.
    pub(super) must: Bound,
    pub(super) aim: Bound,
    /// Whether the aim is the cost of a signature with the server's key plus [`MORE_THAN_A_SIGNATURE`], instead of
    /// `aim`.
    pub(super) aims_at_signature: bool,
    pub(super) compared: ComparedValue,
    /// The proxies that are compared; the best of them is the best peer.
    pub(super) rivals: &'static [Rival],
    /// Whether the figure varies from round to round.
    pub(super) varies: bool,
    pub(super) shape: Shape,
    pub(super) certificates: Certificates,
    /// A program that the measurement needs, and the Debian package that contains it.
    pub(super) needs: Option<(&'static str, &'static str)>,
    pub(super) measure: fn(&Setting<'_>, &Peer) -> Result<Cost>,
}

/// The bounds for a plain build and for a build with profile-guided optimization.
pub(super) struct Bound {
    pub(super) plain: f64,
    pub(super) pgo: f64,
}

impl Bound {
    const fn of(plain: f64, pgo: f64) -> Self {
        Self { plain, pgo }
    }

    const fn both(bound: f64) -> Self {
        Self::of(bound, bound)
    }
}

/// The value that is compared with the bounds of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ComparedValue {
    /// The figure of Proscenium.
    Figure,
    /// The figure of Proscenium divided by that of the best peer.
    Ratio,
}

/// The certificates of a row. Rows about handshakes use those of a Puppet CA. Other rows use certificates that cost the
/// load generator little.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Certificates {
    /// P-256 for all keys.
    Quick,
    /// RSA 4096 for all keys.
    Puppet,
    /// RSA 4096, except a P-256 key of the server.
    PuppetEc,
}

/// The environment of a measurement.
pub(super) struct Setting<'a> {
    pub(super) folder: PathBuf,
    pub(super) pki: &'a Pki,
    pub(super) cores: &'a Cores,
    /// The footprints of proxies that are already measured, by their names.
    pub(super) footprints: &'a RefCell<HashMap<String, Footprint>>,
}

impl Setting<'_> {
    /// The footprint of a proxy, measured once for all rows: it takes a minute.
    fn footprint(&self, peer: &Peer) -> Result<Footprint> {
        let known = self.footprints.borrow().get(peer.name()).copied();
        if let Some(footprint) = known {
            return Ok(footprint);
        }
        let footprint = counts::footprint_of(&self.counts(32), peer, callgrind::ADDRESSES)?;
        let mut footprints = self.footprints.borrow_mut();
        footprints.insert(peer.name().to_owned(), footprint);
        Ok(footprint)
    }

    fn work(&self, work: &Work, peer: &Peer) -> Result<Cost> {
        work.measure(peer, self.pki, self.cores).map(Cost::from)
    }

    fn counts(&self, connections: usize) -> counts::Setting<'_> {
        counts::Setting {
            folder: &self.folder,
            pki: self.pki,
            cores: self.cores,
            requests: 2_000,
            connections,
            keep: None,
        }
    }

    fn handshakes(&self, peer: &Peer, series: &Series) -> Result<Cost> {
        resume::measure(peer, self.pki, series, self.cores).map(Cost::from)
    }
}

/// Defaults of a row: W1, with the ratio of its CPU time to that of the best peer.
const ROW: Row = Row {
    name: "w1",
    unit: "us of CPU a request",
    must: Bound::of(0.95, 0.85),
    aim: Bound::both(0.78),
    aims_at_signature: false,
    compared: ComparedValue::Ratio,
    rivals: Rival::ALL,
    varies: true,
    shape: Shape::PLAIN,
    certificates: Certificates::Quick,
    needs: None,
    measure: |setting, peer| setting.work(&kept::W1, peer),
};

/// The rows. docs/performance.md explains the bounds.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "instructions",
        unit: "user instructions a request",
        must: Bound::of(41_000.0, 36_000.0),
        aim: Bound::of(38_000.0, 33_000.0),
        measure: |setting, peer| {
            let (total, _) = counts::instructions_of(&setting.counts(32), peer)?;
            Ok(total.into())
        },
        ..INSTRUCTIONS
    },
    Row {
        name: "l1d-misses",
        unit: "simulated misses of 48 KiB of L1 for data a request",
        must: Bound::of(1_138.0, 600.0),
        aim: Bound::both(477.0),
        measure: |setting, peer| Ok(setting.footprint(peer)?.data_misses.into()),
        ..INSTRUCTIONS
    },
    Row {
        name: "l1i-misses",
        unit: "simulated misses of 32 KiB of L1 for instructions a request",
        must: Bound::of(3_111.0, 1_700.0),
        aim: Bound::of(3_111.0, 1_700.0),
        measure: |setting, peer| Ok(setting.footprint(peer)?.instruction_misses.into()),
        ..INSTRUCTIONS
    },
    Row {
        name: "hot-code",
        unit: "KiB of code that requests execute",
        must: Bound::of(188.0, 100.0),
        aim: Bound::of(188.0, 100.0),
        measure: |setting, peer| {
            let hot = setting.footprint(peer)?.hot_kib();
            Ok(hot.context("no addresses")?.into())
        },
        ..INSTRUCTIONS
    },
    Row {
        name: "syscalls-1",
        unit: "system calls a request, 1 connection",
        must: Bound::both(6.06),
        aim: Bound::both(6.06),
        needs: Some(("strace", "strace")),
        measure: |setting, peer| counts::syscalls_of(&setting.counts(1), peer).map(Cost::from),
        ..COUNT
    },
    Row {
        name: "syscalls-32",
        unit: "system calls a request, 32 connections",
        must: Bound::both(4.27),
        aim: Bound::both(4.27),
        needs: Some(("strace", "strace")),
        measure: |setting, peer| counts::syscalls_of(&setting.counts(32), peer).map(Cost::from),
        ..COUNT
    },
    ROW,
    Row {
        name: "w1-log",
        unit: "us of CPU a request, nginx writes as full an access log",
        must: Bound::of(0.86, 0.82),
        aim: Bound::both(0.65),
        rivals: &[Rival::Nginx],
        shape: Shape {
            peer_log: true,
            ..Shape::PLAIN
        },
        ..ROW
    },
    Row {
        name: "w1-2",
        unit: "us of CPU a request, two workers beside the load",
        must: Bound::of(0.95, 0.82),
        aim: Bound::both(0.75),
        shape: Shape {
            workers: 2,
            cores: Division::Shared,
            ..Shape::PLAIN
        },
        ..ROW
    },
    Row {
        name: "w1-rate",
        unit: "us of CPU a request, 5,000 requests a second",
        must: Bound::both(0.72),
        aim: Bound::both(0.65),
        measure: |setting, peer| setting.work(&kept::W1_RATE, peer),
        ..ROW
    },
    Row {
        name: "w1-cert",
        unit: "us of CPU a request, certificate forwarded",
        must: Bound::both(0.62),
        aim: Bound::both(0.55),
        shape: Shape {
            forward_cert: true,
            ..Shape::PLAIN
        },
        ..ROW
    },
    Row {
        name: "w2-full",
        unit: "us of CPU a full handshake, RSA-4096, TLS 1.3",
        must: Bound::both(0.735),
        aim: Bound::both(0.735),
        aims_at_signature: true,
        measure: |setting, peer| setting.handshakes(peer, &FULL),
        ..HANDSHAKE
    },
    Row {
        name: "w2-full-ec",
        unit: "us of CPU a full handshake, P-256 server, RSA-4096 agents, TLS 1.3",
        must: Bound::both(0.389),
        aim: Bound::both(0.389),
        certificates: Certificates::PuppetEc,
        measure: |setting, peer| setting.handshakes(peer, &FULL),
        ..HANDSHAKE
    },
    Row {
        name: "w2-resumed-1.3",
        unit: "us of CPU a resumed connection, TLS 1.3",
        must: Bound::both(0.315),
        aim: Bound::both(0.315),
        measure: |setting, peer| setting.handshakes(peer, &RESUMED13),
        ..HANDSHAKE
    },
    Row {
        name: "w2-resumed-1.2",
        unit: "us of CPU a resumed connection, TLS 1.2",
        must: Bound::both(0.34),
        aim: Bound::both(0.15),
        measure: |setting, peer| setting.handshakes(peer, &RESUMED12),
        ..HANDSHAKE
    },
    Row {
        name: "w3-down",
        unit: "us of CPU a download of 10 MB",
        must: Bound::both(0.68),
        aim: Bound::both(0.66),
        measure: |setting, peer| setting.work(&kept::W3_DOWN, peer),
        ..ROW
    },
    Row {
        name: "w3-up",
        unit: "us of CPU an upload of 4 MB",
        must: Bound::both(0.60),
        aim: Bound::both(0.57),
        measure: |setting, peer| setting.work(&kept::W3_UP, peer),
        ..ROW
    },
    Row {
        name: "w4",
        unit: "KiB an idle connection after a request",
        must: Bound::both(22.0),
        aim: Bound::both(16.0),
        measure: idle_memory,
        ..COUNT
    },
    Row {
        name: "w5",
        unit: "us of CPU a request, a catalog for 40 small ones",
        must: Bound::both(0.85),
        aim: Bound::both(0.80),
        measure: |setting, peer| setting.work(&kept::W5, peer),
        ..ROW
    },
    Row {
        name: "w6",
        unit: "us of CPU a request over HTTP/2, no client certificate",
        must: Bound::both(1.00),
        aim: Bound::both(0.85),
        shape: Shape {
            http2: true,
            ..Shape::PLAIN
        },
        needs: Some(("h2load", "nghttp2-client")),
        measure: |setting, peer| h2::measure(peer, setting.cores).map(Cost::from),
        ..ROW
    },
    Row {
        name: "l4",
        unit: "us of CPU for 10 MB of a passed-through connection",
        must: Bound::both(1.0),
        aim: Bound::both(0.77),
        measure: |setting, peer| l4::download_cost(peer, setting.cores).map(Cost::from),
        ..PASSTHROUGH
    },
    Row {
        name: "l4-idle",
        unit: "KiB an idle passed-through connection",
        must: Bound::both(12.0),
        aim: Bound::both(12.0),
        compared: ComparedValue::Figure,
        varies: false,
        measure: |setting, peer| l4::idle_kib(peer, setting.cores).map(Cost::from),
        ..PASSTHROUGH
    },
    Row {
        name: "w7",
        unit: "p99 of 1,000 requests a second beside 100 full handshakes a second, divided by p99 without them, two workers on one core",
        must: Bound::both(4.0),
        aim: Bound::both(3.0),
        compared: ComparedValue::Figure,
        shape: Shape {
            workers: 2,
            ..Shape::PLAIN
        },
        measure: |setting, peer| storm::measure(peer, setting.pki, setting.cores).map(Cost::from),
        ..HANDSHAKE
    },
    Row {
        name: "overload",
        unit: "ms, p99 of 256 connections in a closed loop beside 32 clients that connect again and again, two workers on two cores",
        must: Bound::both(1.0),
        aim: Bound::both(0.5),
        rivals: &[Rival::Nginx],
        shape: Shape {
            workers: 2,
            cores: Division::Shared,
            ..Shape::PLAIN
        },
        measure: |setting, peer| overload::measure(peer, setting.pki, setting.cores),
        ..HANDSHAKE
    },
];

/// Defaults of a row whose figure does not vary.
const COUNT: Row = Row {
    compared: ComparedValue::Figure,
    varies: false,
    ..ROW
};
/// Defaults of a row that callgrind counts.
const INSTRUCTIONS: Row = Row {
    needs: Some(("valgrind", "valgrind")),
    ..COUNT
};
/// Defaults of a row about handshakes.
const HANDSHAKE: Row = Row {
    certificates: Certificates::Puppet,
    ..ROW
};
/// Defaults of a row about passed-through connections.
const PASSTHROUGH: Row = Row {
    shape: Shape {
        passthrough: true,
        ..Shape::PLAIN
    },
    ..ROW
};
/// The cost of a full handshake in addition to its signature, as a share of the signature's cost.
pub(super) const MORE_THAN_A_SIGNATURE: f64 = 0.10;
const FULL: Series = Series::full(&version::TLS13);
const RESUMED13: Series = Series::resumed(&version::TLS13);
const RESUMED12: Series = Series::resumed(&version::TLS12);

/// Memory of an idle connection that has had one request.
fn idle_memory(setting: &Setting<'_>, peer: &Peer) -> Result<Cost> {
    const FEW: usize = 100;
    const MANY: usize = 1_000;
    let proxy = peer.start(setting.cores)?;
    let connect = |count| {
        let pki = setting.pki;
        let mut load = Load::connect(proxy.address(), pki, &pki.agents, count)?;
        load.run(&Mix::small(), count as u64)?;
        anyhow::Ok(load)
    };
    let _first = connect(FEW)?;
    let before = cpu::resident_kib(proxy.id());
    let _more = connect(MANY)?;
    // A connection releases its buffers after a second of silence, and the allocator their pages a second later.
    thread::sleep(Duration::from_secs(3));
    let more = cpu::resident_kib(proxy.id()).saturating_sub(before);
    Ok((more as f64 / MANY as f64).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aims_and_bounds_for_a_profile_are_at_least_as_strict_as_the_plain_bounds() {
        for row in ROWS {
            let (must, aim) = (&row.must, &row.aim);
            assert!(
                aim.plain <= must.plain && aim.pgo <= must.pgo,
                "{}",
                row.name
            );
            assert!(
                must.pgo <= must.plain && aim.pgo <= aim.plain,
                "{}",
                row.name
            );
        }
    }

    #[test]
    fn names_of_rows_are_unique() {
        let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
    }
}
