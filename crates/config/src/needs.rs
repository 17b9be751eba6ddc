//! Which files and tables a configuration needs. A proxy that only passes connections through needs neither a
//! certificate nor a CA nor a route, and one that requests no client certificates needs no CA.

use listener::{ClientCertPolicy, ListenerSettings};
use upstream::settings::Scheme;

use crate::{
    config::Config,
    keys::{self, Listener, MemberTls, Pool, Root},
    pools,
    section::Section,
};

/// What a configuration needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// A certificate for clients or for members.
    pub(crate) certificates: bool,
    /// The CA bundle and CRLs of `[trust]`.
    pub(crate) trust: bool,
    /// A route for the requests of a listener.
    pub(crate) routes: bool,
}

impl Needs {
    /// Finds what the listeners and pools of a file need. Turns the built-in routes off if no request can reach them and
    /// the file does not turn them on.
    pub(crate) fn of(root: &Section<'_>, config: &mut Config) -> Self {
        let sections = root.named(Root::listeners);
        let has_routes = config.routes.builtin_routes || root.is_set(Root::routes);
        if !has_routes && !root.table(Root::tls).is_set(keys::Tls::certificates) {
            for listener in &mut config.listeners {
                let mut named = sections.iter();
                let own = named.find(|(name, _)| *name == listener.name);
                let has_own = own.is_some_and(|(_, own)| own.is_set(Listener::certificates));
                listener.refuses_other_names = !has_own
                    && listener.sni_strict
                    && !listener.sni_passthrough.is_empty()
                    && listener.terminates_tls();
            }
        }
        // A listener that is invalid is missing, and counts as one that terminates TLS.
        let is_complete = !sections.is_empty() && sections.len() == config.listeners.len();
        let terminating = || config.listeners.iter().filter(|one| one.terminates_tls());
        let terminates = !is_complete || terminating().next().is_some();
        let requests_certificates =
            |listener: &ListenerSettings| listener.client_cert != ClientCertPolicy::None;
        let verifies = !is_complete || terminating().any(requests_certificates);
        if !terminates && !root.is_set(Root::builtin_routes) {
            config.routes.builtin_routes = false;
        }
        let pools = root.named(Root::pools);
        let over_tls = |(name, section): &&(String, Section<'_>)| {
            pools::read(name, section, config).upstream.scheme == Scheme::Https
        };
        let upstream = root.table(Root::upstream).table(keys::Upstream::tls);
        let has_ca = |(_, section): &(String, Section<'_>)| {
            let own = section.table(Pool::tls);
            own.is_set(MemberTls::ca) || upstream.is_set(MemberTls::ca)
        };
        let mut members = pools.iter().filter(over_tls).peekable();
        Self {
            certificates: terminates || members.peek().is_some(),
            trust: verifies || members.any(|pool| !has_ca(pool)),
            routes: terminates || config.routes.builtin_routes,
        }
    }
}
