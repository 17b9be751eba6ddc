//! `[listeners.NAME]`.

use std::{collections::BTreeMap, net::SocketAddr};

use listener::Settings;

use crate::{
    binding::Bound,
    config::Credential,
    forms,
    keys::{Listener, ProxyProtocol, Root},
    passthrough,
    report::Problem,
    section::Section,
    trust::Naming,
    values::texts,
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
    for (settings, section) in &listeners {
        passthrough::check_listener(root, settings, section, problems);
        load_balancers(section, settings, problems);
    }
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
    settings.sni_passthrough = passthrough::by_name(section);
    settings.proxy_protocol = section.is_set(Listener::proxy_protocol).then(|| {
        let section = section.table(Listener::proxy_protocol);
        let from = section.value(ProxyProtocol::from, &texts(&forms::NETWORK));
        from.unwrap_or_default()
    });
    Some(settings)
}

/// Whoever may send a PROXY header can claim to be any client.
fn load_balancers(section: &Section<'_>, settings: &Settings, problems: &mut Vec<Problem>) {
    let section = section.table(Listener::proxy_protocol);
    let Some(from) = &settings.proxy_protocol else {
        return;
    };
    if section.is_empty_list(ProxyProtocol::from) {
        let problem = section.error(
            ProxyProtocol::from,
            "an empty list, which would refuse every connection",
        );
        problems.push(problem.expected("the addresses of the load balancers"));
    }
    if from
        .iter()
        .any(|network| ["0.0.0.0/0", "::/0"].contains(&network.to_string().as_str()))
    {
        let message = "every host that can connect can claim any client address";
        let problem = section.warning(ProxyProtocol::from, message);
        problems.push(problem.help("name only the load balancers"));
    }
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
