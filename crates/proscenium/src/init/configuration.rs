//! The configuration file for a machine: the file of the packages with the facts of the machine.

use std::path::Path;

use super::machine::{Found, Machine};

/// The commented configuration that the packages install.
pub(super) const PACKAGED: &str = include_str!("../../../../packaging/proscenium.toml");

/// Lines of [`PACKAGED`] that are replaced.
mod lines {
    pub(super) const HEADER: &str = "# Proscenium's configuration. Fill in the two lines marked FILL IN, then run `proscenium check --user proscenium`.";
    pub(super) const SSLDIR: &str = "# ssldir = \"/etc/puppetlabs/puppet/ssl\"";
    pub(super) const CERTNAME: &str = "# certname = \"puppet.example.com\"";
    pub(super) const CA: &str =
        "members = [] # FILL IN the CA server, for example [\"ca.example.com:8140\"]";
    pub(super) const COMPILERS: &str = "members = [] # FILL IN the compilers, for example [\"c1.example.com:8140\", \"c2.example.com:8140\"]";
    pub(super) const RENEWAL: [&str; 2] = ["# [ca]", "# renewal = true"];
    pub(super) const TO_COMPILERS: [&str; 3] = [
        "# [pools.compilers.tls]",
        "# chain = \"/etc/proscenium/tls/to-compilers.pem\"",
        "# key = \"/etc/proscenium/tls/to-compilers.key\"",
    ];
}

/// The certificate towards compilers, as [`lines::TO_COMPILERS`] names it.
const TO_COMPILERS: &str = "etc/proscenium/tls/to-compilers.pem";

/// The servers behind the proxy. An empty list has to be filled in.
#[derive(Clone, Debug)]
pub(super) struct Members {
    pub(super) ca: Vec<Found>,
    pub(super) compilers: Vec<Found>,
}

impl Members {
    /// The command line overrides what the agent of this machine uses. A name of this machine itself is left out: the
    /// proxy would send requests to itself.
    pub(super) fn of(machine: &Machine, ca: Option<&String>, compilers: &[String]) -> Self {
        let given = |option: &str, address: &String| Found {
            value: with_port(address),
            source: option.to_owned(),
        };
        let elsewhere = |found: &&Found| !machine.is_own(&found.value);
        let server = machine.server.as_ref().filter(elsewhere);
        let ca_server = machine.ca_server.as_ref().filter(elsewhere).or(server);
        let ca = ca.map(|address| given("--ca", address));
        let compilers: Vec<_> = compilers
            .iter()
            .map(|address| given("--compiler", address))
            .collect();
        Self {
            ca: ca.or_else(|| ca_server.cloned()).into_iter().collect(),
            compilers: if compilers.is_empty() {
                server.cloned().into_iter().collect()
            } else {
                compilers
            },
        }
    }

    /// What has to be filled in.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        [
            ("the CA server", self.ca.is_empty()),
            ("the compilers", self.compilers.is_empty()),
        ]
        .into_iter()
        .filter_map(|(what, is_missing)| is_missing.then_some(what))
        .collect()
    }

    /// The same members, with example addresses in place of missing ones, to check the rest of a configuration.
    pub(super) fn with_examples(&self) -> Self {
        let example = |members: &[Found]| match members {
            [] => vec![Found {
                value: "puppet.example.com:8140".to_owned(),
                source: String::new(),
            }],
            members => members.to_vec(),
        };
        Self {
            ca: example(&self.ca),
            compilers: example(&self.compilers),
        }
    }
}

/// The text of the configuration file.
pub(super) fn render(machine: &Machine, members: &Members, root: &Path) -> String {
    let missing = members.missing();
    let header = match missing.as_slice() {
        [] => "# Proscenium's configuration, written by `proscenium init`. Read it, then run `proscenium check --user proscenium`.".to_owned(),
        _ => "# Proscenium's configuration, written by `proscenium init`. Fill in the lines marked FILL IN, then run `proscenium check\n# --user proscenium`.".to_owned(),
    };
    let mut text = PACKAGED.replacen(lines::HEADER, &header, 1);
    let mut replace = |line: &str, with: Option<String>| {
        if let Some(with) = with {
            text = text.replacen(line, &with, 1);
        }
    };
    let fact = |key: &str, found: &Option<Found>| {
        let Found { value, source } = found.as_ref()?;
        Some(format!("# {}.\n{key} = {}", upper(source), quoted(value)))
    };
    replace(lines::SSLDIR, fact("ssldir", &machine.ssldir));
    replace(lines::CERTNAME, fact("certname", &machine.certname));
    replace(lines::CA, pool(&members.ca));
    replace(lines::COMPILERS, pool(&members.compilers));
    if let Some(days) = machine.renewed_after {
        let [table, renewal] = lines::RENEWAL;
        let found = "# The certificate of this machine is valid for";
        let remark = format!("{found} {days} days, so the CA server renews certificates.\n[ca]");
        replace(table, Some(remark));
        replace(renewal, Some("renewal = true".to_owned()));
    }
    if root.join(TO_COMPILERS).exists() {
        for line in lines::TO_COMPILERS {
            replace(line, Some(line.trim_start_matches("# ").to_owned()));
        }
    }
    text
}

/// The line of a pool, with the source of its members.
fn pool(members: &[Found]) -> Option<String> {
    let first = members.first()?;
    let addresses: Vec<_> = members.iter().map(|found| quoted(&found.value)).collect();
    let remark = if first.source.starts_with("--") {
        String::new()
    } else {
        format!(
            "# From {}. This must be the server's own name, not one that will point to this proxy.\n",
            first.source
        )
    };
    Some(format!("{remark}members = [{}]", addresses.join(", ")))
}

/// An address with the port of Puppet Server, if it has none.
fn with_port(address: &String) -> String {
    let has_port = match address.rsplit_once(':') {
        // An IPv6 address without a port ends with a bracket, or has no bracket at all.
        Some((_, port)) => !port.contains(']'),
        None => false,
    };
    if has_port || address.starts_with("unix:") {
        address.clone()
    } else {
        format!("{address}:8140")
    }
}

/// A TOML string. JSON escapes the same characters, and TOML reads its escapes.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn upper(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_replaced_lines_are_in_the_packaged_file() {
        let others = [
            lines::HEADER,
            lines::SSLDIR,
            lines::CERTNAME,
            lines::CA,
            lines::COMPILERS,
        ];
        let tables = lines::TO_COMPILERS.iter().chain(&lines::RENEWAL);
        for line in others.iter().chain(tables) {
            let count = PACKAGED.lines().filter(|its| its == line).count();
            assert_eq!(count, 1, "{line}");
        }
    }

    #[test]
    fn an_address_without_a_port_gets_that_of_puppet_server() {
        for (given, expected) in [
            ("c1.example.com", "c1.example.com:8140"),
            ("c1.example.com:8141", "c1.example.com:8141"),
            ("[2001:db8::1]", "[2001:db8::1]:8140"),
            ("[2001:db8::1]:8141", "[2001:db8::1]:8141"),
            ("unix:/run/puppet.sock", "unix:/run/puppet.sock"),
        ] {
            assert_eq!(with_port(&given.to_owned()), expected);
        }
    }
}
