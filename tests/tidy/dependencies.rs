//! The rules of deny.toml about licences, sources, bans and versions, for the dependencies on this platform.
//! `cargo xtask acceptance` runs cargo-deny, which also checks other platforms and the texts of the licences.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use cargo_metadata::semver::{Version, VersionReq};
use serde::Deserialize;

use super::{metadata, read, root};

#[test]
fn dependencies_obey_deny_toml() {
    let edges = edges();
    assert!(edges.len() > 500, "the dependencies are read");
    let broken = rules().broken_by(&edges);
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn broken_rules_are_found() {
    let edges = edges();
    let breaks = |edit: fn(&mut Rules), expected: &str| {
        let mut rules = rules();
        edit(&mut rules);
        let broken = rules.broken_by(&edges);
        let found = broken.iter().any(|line| line.contains(expected));
        assert!(found, "{expected:?} is not in {broken:?}");
    };
    breaks(
        |rules| rules.licenses.allow.retain(|name| name != "ISC"),
        "the licence of untrusted",
    );
    breaks(
        |rules| rules.bans.skip.clear(),
        "syn has several versions: ",
    );
    breaks(
        |rules| rules.bans.deny[0].spec = "hyper".to_owned(),
        "admin depends on hyper ",
    );
    breaks(
        |rules| rules.bans.deny[0].spec = "h2@<99".to_owned(),
        "and h2@<99 is banned",
    );
}

#[test]
fn no_dependency_accepts_any_version() {
    for package in metadata().workspace_packages() {
        for dependency in package.dependencies.iter().filter(|its| its.path.is_none()) {
            assert_ne!(
                dependency.req,
                VersionReq::STAR,
                "{} of {}",
                dependency.name,
                package.name
            );
        }
    }
}

/// Without these entries, cargo-deny and this test would accept versions with known vulnerabilities.
#[test]
fn deny_toml_has_a_minimum_version_for_each_advisory() {
    let rules = rules();
    for (spec, advisory) in [
        ("h2@<0.4.16", "2026-0258"),
        ("rustls@<0.23.18", "2024-0399"),
        ("rustls-webpki@<0.103.13", "2026-0104, -0049, -0098, -0099"),
        ("rustls-pemfile", "2025-0134"),
    ] {
        let mut bans = rules.bans.deny.iter();
        let held = bans.any(|ban| ban.spec == spec && ban.reason.contains(advisory));
        assert!(held, "no entry {spec:?} for RUSTSEC-{advisory}");
    }
}

/// The part of deny.toml that is checked here.
#[derive(Deserialize)]
struct Rules {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Ban>,
    skip: Vec<Ban>,
}

/// A crate, `NAME` or `NAME@VERSIONS`, that no crate may depend on except its wrappers.
#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    spec: String,
    #[serde(default)]
    wrappers: Vec<String>,
    reason: String,
}

impl Ban {
    fn covers(&self, package: &Crate) -> bool {
        let (name, versions) = self.spec.split_once('@').unwrap_or((&self.spec, "*"));
        let versions = VersionReq::parse(versions).expect("versions in deny.toml");
        name == package.name && versions.matches(&package.version)
    }
}

impl Rules {
    /// A sentence for each rule that the dependencies break.
    fn broken_by(&self, edges: &[Edge]) -> Vec<String> {
        let crates: BTreeSet<_> = edges.iter().map(|edge| &edge.to).collect();
        let mut versions = BTreeMap::<_, Vec<_>>::new();
        let mut broken = Vec::new();
        for package in crates {
            if !self.bans.skip.iter().any(|its| its.covers(package)) {
                versions
                    .entry(&package.name)
                    .or_default()
                    .push(&package.version);
            }
            match package.source.as_deref() {
                Some(path) if path.starts_with('/') => {}
                Some(source) => broken.push(format!("{} is from {source}", package.name)),
                None if self.is_licensed(package) => {}
                None => broken.push(format!(
                    "the licence of {} is {:?}",
                    package.name, package.licence
                )),
            }
        }
        for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
            broken.push(format!("{name} has several versions: {versions:?}"));
        }
        broken.extend(edges.iter().flat_map(|edge| self.bans_of(edge)));
        broken
    }

    fn is_licensed(&self, package: &Crate) -> bool {
        // Older crates write a slash for OR.
        let licence = spdx::Expression::parse_mode(&package.licence, spdx::ParseMode::LAX);
        licence.is_ok_and(|licence| {
            licence.evaluate(|wanted| {
                let name = wanted.license.id().map(|id| id.name);
                let is_allowed = |name| self.licenses.allow.iter().any(|its| its == name);
                wanted.addition.is_none() && name.is_some_and(is_allowed)
            })
        })
    }

    fn bans_of(&self, Edge { from, to }: &Edge) -> impl Iterator<Item = String> {
        let broken = move |ban: &&Ban| {
            ban.covers(to)
                && from
                    .as_ref()
                    .is_some_and(|from| !ban.wrappers.contains(from))
        };
        let from = from.as_deref().unwrap_or_default();
        let bans = self.bans.deny.iter().filter(broken);
        bans.map(move |ban| {
            format!(
                "{from} depends on {} {}, and {} is banned: {}",
                to.name, to.version, ban.spec, ban.reason
            )
        })
    }
}

fn rules() -> Rules {
    toml::from_str(&read(&root().join("deny.toml"))).expect("deny.toml")
}

/// A crate on which another one depends. The crates of the workspace depend on each other and are also roots.
struct Edge {
    from: Option<String>,
    to: Crate,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Crate {
    name: String,
    version: Version,
    /// `None` for crates.io; a path, or the address of a registry or repository.
    source: Option<String>,
    licence: String,
}

/// The dependencies on this platform, of tests and build scripts too. The build has downloaded them.
fn edges() -> Vec<Edge> {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--workspace",
            "--offline",
            "--locked",
            "--edges",
            "normal,build,dev",
        ])
        .args(["--prefix", "depth", "--format", "|{p}|{l}"])
        .current_dir(root())
        .output()
        .expect("cargo starts");
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    let mut path = Vec::new();
    let lines = String::from_utf8_lossy(&tree.stdout).into_owned();
    let edges = lines.lines().filter(|line| !line.is_empty()).map(|line| {
        let edge = edge(line, &mut path);
        edge.unwrap_or_else(|| panic!("an unknown line of cargo tree: {line}"))
    });
    edges.collect()
}

/// Parses `2|NAME vVERSION (SOURCE)|LICENCE (*)`. `path` has the names of the crates on the way to the last line.
fn edge(line: &str, path: &mut Vec<String>) -> Option<Edge> {
    let [depth, package, licence] = *line.split('|').collect::<Vec<_>>() else {
        return None;
    };
    let (name, version) = package.trim_end_matches(" (proc-macro)").split_once(" v")?;
    let (version, source) = match version.split_once(" (") {
        Some((version, source)) => (version, Some(source.trim_end_matches(')').to_owned())),
        None => (version, None),
    };
    path.truncate(depth.parse().ok()?);
    let from = path.last().cloned();
    path.push(name.to_owned());
    let to = Crate {
        name: name.to_owned(),
        version: version.parse().ok()?,
        source,
        licence: licence.trim_end_matches(" (*)").to_owned(),
    };
    Some(Edge { from, to })
}
