//! The settings for requests.

use std::time::Duration;

use balancing::{ClientShare, Rates, settings::GuardSettings};
use identity::{HeaderForm, HeaderRules};
use routing::ForwardPlan;

/// The Host that a member gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostRule {
    /// The client's Host. The default.
    #[default]
    Keep,
    /// The member's own name.
    Member,
}

/// What happens to a request whose `X-Client-Cert` would be too large for the pool's servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverlongCert {
    /// The request is refused with 431 and the reason, because without the certificate the server would have no trusted facts.
    /// The default.
    #[default]
    Refuse,
    /// The request is sent without the header, and counted.
    Omit,
}

/// Which requests carry identity headers to members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdentityRule {
    /// All requests. The default.
    #[default]
    Always,
    /// All requests except enrolment. A renewal carries only the certificate, because a CA that ignores these headers logs each
    /// of them.
    Renewal,
}

/// The part of `[pools.NAME]` that applies to requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRules {
    /// Whether `X-Client-Cert` is sent with SUCCESS, by endpoint class. Default true: without the header, trusted facts are
    /// silently empty.
    pub forward_cert: bool,
    /// Maximum bytes of the value of `X-Client-Cert`. Default 7 KiB: Jetty reads heads of 8 KiB, and the rest of an agent's
    /// head takes less than 1 KiB.
    pub forward_cert_bytes_max: usize,
    /// What happens to a request with a longer value. Default: it is refused.
    pub overlong_cert: OverlongCert,
    /// The Host that its members get. Default the client's.
    pub host: HostRule,
    /// Whether URLs in response headers that name a member are rewritten. Default false.
    pub proxy_pass_reverse: bool,
    /// Which requests carry identity headers to its servers. Default all. A configuration file restricts this for a CA over
    /// TLS.
    pub identity: IdentityRule,
    /// Which identity headers its servers get. Default the headers of Puppet Server.
    pub form: HeaderForm,
    /// Headers of clients that are removed in addition to identity headers, and those that are kept. Default none.
    pub headers: HeaderRules,
    /// Conditions, in addition to the check, that reduce the capacity of its members.
    pub guards: GuardSettings,
    /// How connections are passed through to its members.
    pub passthrough: PassthroughRules,
    /// When the proxy closes tunnels to its members.
    pub tunnels: TunnelRules,
}

/// What happens to the tunnels of a member that goes down: passed-through connections, and connections that were upgraded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDown {
    /// They stay open, because the check may be wrong. The default.
    #[default]
    Keep,
    /// The proxy closes them.
    Cut,
}

/// The part of `[pools.NAME]` that applies to tunnels: passed-through connections, and connections that were upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelRules {
    /// What happens to the tunnels of a member that goes down. Default: they stay open.
    pub on_down: OnDown,
    /// Maximum number of tunnels closed per second, when tunnels must close. Default 100.
    pub close_rate: u32,
}

impl Default for TunnelRules {
    fn default() -> Self {
        Self {
            on_down: OnDown::default(),
            close_rate: 100,
        }
    }
}

/// The part of `[pools.NAME]` that applies to passed-through connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassthroughRules {
    /// Whether a listener passes connections through to this pool. Such a pool gets no requests.
    pub is_used: bool,
    /// Whether the servers at its members' ports ignore identity headers. Default no.
    pub trusted_headers_off: bool,
}

impl PoolRules {
    /// The identity headers that a request of this plan carries.
    pub fn identity_of(&self, plan: &ForwardPlan<'_>) -> IdentitySent {
        match self.identity {
            IdentityRule::Renewal if plan.is_renewal() => IdentitySent::Certificate,
            IdentityRule::Renewal if plan.is_enrolment() => IdentitySent::None,
            _ => IdentitySent::All,
        }
    }
}

/// The identity headers that a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentitySent {
    /// Those of the pool's form.
    All,
    /// Only the certificate.
    Certificate,
    /// None.
    None,
}

impl Default for PoolRules {
    fn default() -> Self {
        Self {
            forward_cert: true,
            forward_cert_bytes_max: 7 << 10,
            overlong_cert: OverlongCert::default(),
            host: HostRule::default(),
            proxy_pass_reverse: false,
            identity: IdentityRule::default(),
            form: HeaderForm::default(),
            headers: HeaderRules::default(),
            guards: GuardSettings::default(),
            passthrough: PassthroughRules::default(),
            tunnels: TunnelRules::default(),
        }
    }
}

/// The kind of the CA server in the pool that gets the renewals: `[ca] kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaKind {
    /// Puppet Server or OpenVox Server, which renew the certificate in `X-Client-Cert`.
    PuppetServer,
    /// Another CA, which renews the certificate of the connection.
    Other,
}

/// `[ca]`: limits for clients without a verified certificate, and renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaSettings {
    /// How many requests these clients may send. Default [`Rates::default`].
    pub rates: Rates,
    /// Maximum number of these clients' requests in flight. Default 64, half of the Jetty threads that are available for
    /// requests.
    pub anonymous_in_flight_max: u32,
    /// Whether requests for the CA's certificate and CRLs are answered from copies. Default false; a configuration file that
    /// fetches CRLs sets it to true. The route table has its own copy of this setting.
    pub edge_answers: bool,
    /// Maximum age of these copies. Default 24 hours.
    pub edge_answers_age_max: Duration,
    /// Whether certificates are renewed through the proxy. Default false. The route table has its own copy of this
    /// setting.
    pub renewal: bool,
    /// The kind of the CA server. Default `None`: the proxy determines it from the server's responses before each renewal.
    pub kind: Option<CaKind>,
}

impl Default for CaSettings {
    fn default() -> Self {
        Self {
            rates: Rates::default(),
            anonymous_in_flight_max: 64,
            edge_answers: false,
            edge_answers_age_max: Duration::from_secs(24 * 3600),
            renewal: false,
            kind: None,
        }
    }
}

/// Limits of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxySettings {
    /// Maximum bytes of a request body that are read and dropped after an early response. Default 4 MiB.
    pub discard_bytes_max: u64,
    /// Maximum time for reading and dropping them. Default 5 s.
    pub discard_timeout: Duration,
    /// Maximum attempts of one request. Default 3.
    pub attempts_max: u32,
    /// Maximum share of a pool's connections that one client may hold. Default 25 %.
    pub client_share: ClientShare,
    /// Maximum bytes of one request body that are buffered before a member is used. Default 256 KiB.
    pub body_buffer_bytes_max: u64,
    /// Maximum bytes of all buffered request bodies together. One client may use an eighth of it. Default 64 MiB.
    pub body_buffers_bytes_max: u64,
}

impl Default for ProxySettings {
    fn default() -> Self {
        Self {
            discard_bytes_max: 4 << 20,
            discard_timeout: Duration::from_secs(5),
            attempts_max: 3,
            client_share: ClientShare::default(),
            body_buffer_bytes_max: 256 << 10,
            body_buffers_bytes_max: 64 << 20,
        }
    }
}
