//! `[listeners.NAME]`.

use std::{collections::BTreeMap, net::SocketAddr};

use listener::Settings;

use crate::{
    binding::Bound,
    config::Credential,
    keys::{Listener, Root},
    report::Problem,
    section::Section,
    trust::Naming,
};

pub(crate) fn build(root: &Section<'_>, problems: &mut Vec<Problem>) -> Vec<Settings> {
    let sections = root.named(Root::listeners);
    if sections.is_empty() && !root.is_no_table(Root::listeners) {
        problems.push(
            root.error(Root::listeners, "no listener")
                .expected("at least one listener")
                .help("write [listeners.agents] with address = \"0.0.0.0:8140\""),
        );
    }
    let listeners: Vec<_> = sections
        .iter()
        .filter_map(|(name, section)| settings(name, section).map(|settings| (settings, section)))
        .collect();
    shared_addresses(&listeners, problems);
    listeners
        .into_iter()
        .map(|(settings, _)| settings)
        .collect()
}

/// Certificates of listeners that have their own, by the listener's name.
pub(crate) fn certificates(
    root: &Section<'_>,
    naming: &mut Naming<'_>,
) -> BTreeMap<String, Vec<Credential>> {
    let named = root.named(Root::listeners).into_iter();
    named
        .filter_map(|(name, section)| {
            Some((
                name,
                naming.written_credentials(&section, Listener::certificates)?,
            ))
        })
        .collect()
}

fn settings(name: &str, section: &Section<'_>) -> Option<Settings> {
    let mut settings = Settings::new(name, section.text(Listener::address)?.parse().ok()?);
    Listener::read(section, &mut settings);
    Some(settings)
}

/// Port 0 is a different port each time.
fn shared_addresses(listeners: &[(Settings, &Section<'_>)], problems: &mut Vec<Problem>) {
    for (index, (settings, section)) in listeners.iter().enumerate() {
        let taken = listeners[..index]
            .iter()
            .map(|(other, _)| other)
            .find(|other| overlap(other.address, settings.address));
        let Some(other) = taken.filter(|_| settings.address.port() != 0) else {
            continue;
        };
        let message = match other.address == settings.address {
            true => format!("listener `{}` has the same address", other.name),
            false => format!(
                "listener `{}` on {} also accepts connections for this address",
                other.name, other.address
            ),
        };
        let problem = section.error(Listener::address, message);
        problems.push(problem.expected("another address"));
    }
}

/// Whether the system would refuse to listen on both: the same, or one takes the other's connections as well.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let takes = |wide: SocketAddr, narrow: SocketAddr| {
        wide.ip().is_unspecified() && (wide.is_ipv6() || narrow.ip().to_canonical().is_ipv4())
    };
    one.port() == other.port()
        && (one.ip().to_canonical() == other.ip().to_canonical()
            || takes(one, other)
            || takes(other, one))
}
