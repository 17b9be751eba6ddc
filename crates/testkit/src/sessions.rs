//! A session store that offers its sessions to every server, whatever name they were created for.

use rustls::{
    NamedGroup,
    client::{
        ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue,
        Tls13ClientSessionValue,
    },
};
use rustls_pki_types::ServerName;

/// A store with one entry for all names.
#[derive(Debug)]
pub(crate) struct Nameless(ClientSessionMemoryCache);

impl Nameless {
    pub(crate) fn new() -> Self {
        Self(ClientSessionMemoryCache::new(8))
    }
}

fn shared_name() -> ServerName<'static> {
    ServerName::try_from("shared_name").expect("a name")
}

impl ClientSessionStore for Nameless {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(shared_name(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(&shared_name())
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(shared_name(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(&shared_name())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&shared_name());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(shared_name(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&shared_name())
    }
}
