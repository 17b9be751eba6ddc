//! A client's sessions when it offers them to whomever it meets, whatever name they were made under.

use rustls::{
    NamedGroup,
    client::{
        ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue,
        Tls13ClientSessionValue,
    },
};
use rustls_pki_types::ServerName;

/// One drawer for all names.
#[derive(Debug)]
pub(crate) struct Nameless(ClientSessionMemoryCache);

impl Nameless {
    pub(crate) fn new() -> Self {
        Self(ClientSessionMemoryCache::new(8))
    }
}

fn nobody() -> ServerName<'static> {
    ServerName::try_from("nobody").expect("a name")
}

impl ClientSessionStore for Nameless {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(nobody(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(&nobody())
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(nobody(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(&nobody())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&nobody());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(nobody(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&nobody())
    }
}
