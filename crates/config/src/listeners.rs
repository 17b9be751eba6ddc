//! `[listeners.NAME]`.

use std::{collections::BTreeMap, net::SocketAddr};

use listener::settings::{ClientCert, OnInvalid, Settings};

use crate::{config::Credential, report::Problem, section::Section, trust::Naming};

pub(crate) fn build(root: &Section<'_>, problems: &mut Vec<Problem>) -> Vec<Settings> {
    let sections = root.named("listeners");
    if sections.is_empty() && !root.is_no_table("listeners") {
        problems.push(
            root.error("listeners", "nothing to listen on")
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
    let named = root.named("listeners").into_iter();
    named
        .filter_map(|(name, section)| Some((name, naming.written_credentials(&section)?)))
        .collect()
}

fn settings(name: &str, section: &Section<'_>) -> Option<Settings> {
    Some(Settings {
        name: name.into(),
        address: section.text("address")?.parse().ok()?,
        client_cert: match section.text("client_cert")?.as_str() {
            "required" => ClientCert::Required,
            _ => ClientCert::Optional,
        },
        on_invalid: match section.text("on_invalid")?.as_str() {
            "abort" => OnInvalid::Abort,
            "forward" => OnInvalid::Forward,
            _ => OnInvalid::Explain,
        },
        sni_strict: section.switch("sni_strict"),
        connections_max: section.count("connections_max")?,
        handshakes_max: section.count("handshakes_max")?,
        handshake_timeout: section.duration("handshake_timeout")?,
        head_timeout: section.duration("head_timeout")?,
        idle_timeout: section.duration("idle_timeout")?,
        write_timeout: section.duration("write_timeout")?,
        head_bytes_max: section.size("head_max")?.try_into().ok()?,
        http2: section.switch("http2"),
        streams_max: section.count("streams_max")?,
    })
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
            true => format!("listener `{}` has this address too", other.name),
            false => format!(
                "listener `{}` on {} takes connections of this address too",
                other.name, other.address
            ),
        };
        let problem = section.error("address", message);
        problems.push(problem.expected("an address of its own"));
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
