//! The documented costs: the rows of `cargo xtask bench table`, each with its workload and its bounds.

use std::path::PathBuf;

use anyhow::Result;
use rustls::version;

use super::{
    cores::Cores,
    counts, cpu, h2,
    kept::{self, Work},
    load::{Errand, Load},
    peers::{Peer, Rival},
    pki::Pki,
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
    pub(super) aim: f64,
    pub(super) compared: ComparedValue,
    pub(super) rival: Rival,
    /// Whether a figure varies from round to round.
    pub(super) varies: bool,
    pub(super) shape: Shape,
    pub(super) certificates: Certificates,
    /// A program that the measurement needs, and the Debian package that contains it.
    pub(super) needs: Option<(&'static str, &'static str)>,
    pub(super) measure: fn(&Setting<'_>, &Peer) -> Result<f64>,
}

/// The bounds for a plain build and for a build with profile-guided optimization.
pub(super) struct Bound {
    pub(super) plain: f64,
    pub(super) pgo: f64,
}

impl Bound {
    const fn both(bound: f64) -> Self {
        Self {
            plain: bound,
            pgo: bound,
        }
    }
}

/// The value that is compared with the bounds of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ComparedValue {
    /// The figure of Proscenium.
    Figure,
    /// The figure of Proscenium divided by that of the other proxy.
    Ratio,
}

/// The certificates of a row. Handshakes use those of a Puppet CA. Other rows use certificates that cost the load
/// little.
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
}

impl Setting<'_> {
    fn work(&self, work: &Work, peer: &Peer) -> Result<f64> {
        work.measure(peer, self.pki, self.cores)
    }

    fn counts(&self, connections: usize) -> counts::Setting<'_> {
        counts::Setting {
            folder: &self.folder,
            pki: self.pki,
            cores: self.cores,
            requests: 2_000,
            connections,
            keep: None,
            is_busiest_alone: false,
        }
    }

    fn handshakes(&self, peer: &Peer, series: &Series) -> Result<f64> {
        let options = resume::Options {
            rounds: 1,
            connections: if series.is_full() { 800 } else { 3_000 },
            clients: 8,
        };
        resume::measure(peer, self.pki, series, self.cores, &options)
    }
}

/// Defaults of a row: W1, as a ratio of CPU times to nginx.
const ROW: Row = Row {
    name: "w1",
    unit: "us of CPU a request",
    must: Bound {
        plain: 0.88,
        pgo: 0.80,
    },
    aim: 0.70,
    compared: ComparedValue::Ratio,
    rival: Rival::Nginx,
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
        must: Bound {
            plain: 47_000.0,
            pgo: 39_500.0,
        },
        aim: 40_000.0,
        needs: Some(("valgrind", "valgrind")),
        measure: |setting, peer| {
            counts::instructions_of(&setting.counts(32), peer).map(|sum| sum.0)
        },
        ..COUNT
    },
    Row {
        name: "syscalls-1",
        unit: "system calls a request, 1 connection",
        must: Bound::both(6.06),
        aim: 6.06,
        needs: Some(("strace", "strace")),
        measure: |setting, peer| counts::syscalls_of(&setting.counts(1), peer),
        ..COUNT
    },
    Row {
        name: "syscalls-32",
        unit: "system calls a request, 32 connections",
        must: Bound::both(4.27),
        aim: 4.27,
        needs: Some(("strace", "strace")),
        measure: |setting, peer| counts::syscalls_of(&setting.counts(32), peer),
        ..COUNT
    },
    ROW,
    Row {
        name: "w1-2",
        unit: "us of CPU a request, two workers beside the load",
        must: Bound {
            plain: 0.95,
            pgo: 0.85,
        },
        aim: 0.75,
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
        must: Bound::both(1.00),
        aim: 0.80,
        rival: Rival::Haproxy,
        measure: |setting, peer| setting.work(&kept::W1_RATE, peer),
        ..ROW
    },
    Row {
        name: "w1-cert",
        unit: "us of CPU a request, certificate forwarded",
        must: Bound::both(0.70),
        aim: 0.60,
        shape: Shape {
            forward_cert: true,
            ..Shape::PLAIN
        },
        ..ROW
    },
    Row {
        name: "w2-full",
        unit: "us of CPU a full handshake, RSA-4096, TLS 1.3",
        must: Bound::both(0.35),
        aim: 0.30,
        measure: |setting, peer| setting.handshakes(peer, &FULL),
        ..HANDSHAKE
    },
    Row {
        name: "w2-full-ec",
        unit: "us of CPU a full handshake, P-256 server, RSA-4096 agents, TLS 1.3",
        must: Bound::both(0.31),
        aim: 0.29,
        certificates: Certificates::PuppetEc,
        measure: |setting, peer| setting.handshakes(peer, &FULL),
        ..HANDSHAKE
    },
    Row {
        name: "w2-resumed-1.3",
        unit: "us of CPU a resumed connection, TLS 1.3",
        must: Bound::both(0.25),
        aim: 0.15,
        measure: |setting, peer| setting.handshakes(peer, &RESUMED13),
        ..HANDSHAKE
    },
    Row {
        name: "w2-resumed-1.2",
        unit: "us of CPU a resumed connection, TLS 1.2",
        must: Bound::both(0.34),
        aim: 0.15,
        measure: |setting, peer| setting.handshakes(peer, &RESUMED12),
        ..HANDSHAKE
    },
    Row {
        name: "w3-down",
        unit: "us of CPU a download of 10 MB",
        must: Bound::both(0.44),
        aim: 0.44,
        measure: |setting, peer| setting.work(&kept::W3_DOWN, peer),
        ..ROW
    },
    Row {
        name: "w3-up",
        unit: "us of CPU an upload of 4 MB",
        must: Bound::both(0.43),
        aim: 0.43,
        measure: |setting, peer| setting.work(&kept::W3_UP, peer),
        ..ROW
    },
    Row {
        name: "w4",
        unit: "KiB an idle connection after a request",
        must: Bound::both(27.0),
        aim: 16.0,
        measure: idle_memory,
        ..COUNT
    },
    Row {
        name: "w5",
        unit: "us of CPU a request, a catalog for 40 small ones",
        must: Bound::both(0.80),
        aim: 0.70,
        measure: |setting, peer| setting.work(&kept::W5, peer),
        ..ROW
    },
    Row {
        name: "w6",
        unit: "us of CPU a request over HTTP/2, no client certificate",
        must: Bound {
            plain: 1.00,
            pgo: 0.80,
        },
        aim: 0.65,
        shape: Shape {
            http2: true,
            ..Shape::PLAIN
        },
        needs: Some(("h2load", "nghttp2-client")),
        measure: |setting, peer| h2::measure(peer, setting.cores),
        ..ROW
    },
    Row {
        name: "w7",
        unit: "us, p99 of 1,000 requests a second beside 100 full handshakes a second, two workers on one core",
        must: Bound::both(0.66),
        aim: 0.45,
        shape: Shape {
            workers: 2,
            ..Shape::PLAIN
        },
        measure: |setting, peer| storm::measure(peer, setting.pki, setting.cores),
        ..HANDSHAKE
    },
];

/// Defaults of a row whose figure does not vary.
const COUNT: Row = Row {
    compared: ComparedValue::Figure,
    varies: false,
    ..ROW
};
/// Defaults of a row about handshakes.
const HANDSHAKE: Row = Row {
    certificates: Certificates::Puppet,
    ..ROW
};
const FULL: Series = Series::full(&version::TLS13);
const RESUMED13: Series = Series::resumed("TLS 1.3", &version::TLS13, Errand::Connect);
const RESUMED12: Series = Series::resumed("TLS 1.2", &version::TLS12, Errand::Connect);

/// Memory of an idle connection that has had one request.
fn idle_memory(setting: &Setting<'_>, peer: &Peer) -> Result<f64> {
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
    Ok(cpu::resident_kib(proxy.id()).saturating_sub(before) as f64 / MANY as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aims_and_bounds_for_a_profile_are_at_least_as_strict_as_the_plain_bounds() {
        for row in ROWS {
            assert!(row.aim <= row.must.plain, "{}", row.name);
            assert!(row.must.pgo <= row.must.plain, "{}", row.name);
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
