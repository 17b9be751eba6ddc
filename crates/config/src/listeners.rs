//! `[listeners.NAME]`.

use std::collections::BTreeMap;

use listener::{ClientCertPolicy, ListenAddress, ListenEndpoint, ListenerSettings};

use crate::{
    binding::Bound,
    config::CredentialFiles,
    forms,
    keys::{Listener, ProxyProtocol, Root},
    passthrough,
    report::Problem,
    section::Section,
    trust::Naming,
    values::texts,
};

pub(crate) fn build(root: &Section<'_>, problems: &mut Vec<Problem>) -> Vec<ListenerSettings> {
    let sections = root.named(Root::listeners);
    if sections.is_empty() && !root.is_not_a_table(Root::listeners) {
        problems.push(
            root.error(Root::listeners, "no listener")
                .expected("at least one listener")
                .help("write [listeners.agents] with address = \"0.0.0.0:8140\""),
        );
    }
    for (_, section) in &sections {
        if section.is_empty_list(Listener::address) {
            let problem = section.error(Listener::address, "an empty list");
            problems.push(problem.expected("at least one address"));
        }
    }
    let listeners: Vec<_> = sections
        .iter()
        .filter_map(|(name, section)| settings(name, section).map(|settings| (settings, section)))
        .collect();
    shared_addresses(&listeners, problems);
    for (settings, section) in &listeners {
        passthrough::check_listener(root, settings, section, problems);
        load_balancers(section, settings, problems);
        without_effect(section, settings, problems);
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
) -> BTreeMap<String, Vec<CredentialFiles>> {
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

fn settings(name: &str, section: &Section<'_>) -> Option<ListenerSettings> {
    let first = section.spanned_texts(Listener::address).into_iter().next();
    let first = first.map_or_else(String::new, |(text, _)| text);
    let mut settings = ListenerSettings::new(name, first.parse().ok()?);
    Listener::read(section, &mut settings);
    settings.sni_passthrough = passthrough::by_name(section);
    settings.proxy_protocol = section.is_set(Listener::proxy_protocol).then(|| {
        let section = section.table(Listener::proxy_protocol);
        let from = section.value(ProxyProtocol::from, &texts(&forms::NETWORK));
        from.unwrap_or_default()
    });
    Some(settings)
}

/// Reports keys that do not apply to the listener's kind of socket.
fn without_effect(section: &Section<'_>, settings: &ListenerSettings, problems: &mut Vec<Problem>) {
    let is_unix = |address: &ListenAddress| address.path().is_some();
    let (any, all) = (
        settings.addresses.iter().any(is_unix),
        settings.addresses.iter().all(is_unix),
    );
    let message = "no effect: no address of this listener is a Unix socket";
    for key in [Listener::socket_mode, Listener::socket_group] {
        if section.is_set(key) && !any {
            problems.push(section.warning(key, message));
        }
    }
    if settings.client_cert == ClientCertPolicy::None && section.is_set(Listener::on_invalid) {
        let message = "no effect: this listener requests no certificate";
        problems.push(section.warning(Listener::on_invalid, message));
    }
    if section.is_set(Listener::interface) && all {
        let message = "no effect: connections to a Unix socket do not arrive on an interface";
        problems.push(section.warning(Listener::interface, message));
    }
}

/// A host that is allowed to send a PROXY header can claim to be any client.
fn load_balancers(section: &Section<'_>, settings: &ListenerSettings, problems: &mut Vec<Problem>) {
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

/// Two listeners must not accept the same connection. Port 0 stands for a different port each time.
fn shared_addresses(listeners: &[(ListenerSettings, &Section<'_>)], problems: &mut Vec<Problem>) {
    let mut taken: Vec<(ListenEndpoint, &ListenerSettings)> = Vec::new();
    for (settings, section) in listeners {
        let written = section.spanned_texts(Listener::address);
        for (endpoint, (_, span)) in settings.endpoints().zip(written) {
            let mut others = taken.iter();
            let other =
                others.find(|(other, _)| endpoint.port() != Some(0) && other.overlaps(&endpoint));
            if let Some((other, owner)) = other {
                let message = shared(settings, &endpoint, owner, other);
                let problem = Problem::error(section.key_path(Listener::address), message);
                problems.push(
                    section
                        .place(problem, Some(span))
                        .expected("another address"),
                );
            }
            taken.push((endpoint, settings));
        }
    }
}

fn shared(
    settings: &ListenerSettings,
    endpoint: &ListenEndpoint,
    owner: &ListenerSettings,
    other: &ListenEndpoint,
) -> String {
    let is_same = other.address == endpoint.address;
    match (settings.name == owner.name, is_same) {
        (true, true) => format!("{endpoint} is in the list twice"),
        (true, false) => format!("{other} and {endpoint} accept the same connections"),
        (false, true) => format!("listener `{}` has the same address", owner.name),
        (false, false) => format!(
            "listener `{}` on {other} also accepts connections for this address",
            owner.name
        ),
    }
}
