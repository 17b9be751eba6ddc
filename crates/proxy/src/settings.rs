//! What a configuration says about requests.

use std::time::Duration;

use balancing::{ClientShare, Rates, settings::GuardSettings};
use identity::HeaderForm;

/// What the Host field says to a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostRule {
    /// What the client said. The default.
    #[default]
    Keep,
    /// The member's own name.
    Member,
}

/// What becomes of a request whose `X-Client-Cert` would be too large for the pool's servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverlongCert {
    /// It is refused with 431 and the reason: nothing is configured by facts that are missing. The default.
    #[default]
    Refuse,
    /// It is sent without, and counted.
    Omit,
}

/// The part of `[pools.NAME]` that shapes a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRules {
    /// Whether `X-Client-Cert` goes beside SUCCESS, by endpoint class. Default true: trusted facts are silently empty
    /// without it.
    pub forward_cert: bool,
    /// Most bytes of its value. Default 7 KiB: Jetty reads heads of 8 KiB, and the rest of an agent's takes less than one.
    pub forward_cert_bytes_max: usize,
    /// What becomes of a request with a longer one. Default refused.
    pub overlong_cert: OverlongCert,
    /// What the Host field says. Default what the client said.
    pub host: HostRule,
    /// Whether URLs in headers of responses that name a member are rewritten. Default false.
    pub proxy_pass_reverse: bool,
    /// How its servers are told who the client is. Default the headers of Puppet Server.
    pub form: HeaderForm,
    /// What takes capacity from its members beside their check.
    pub guards: GuardSettings,
    /// How connections are passed through to its members.
    pub passthrough: PassthroughRules,
}

/// The part of `[pools.NAME]` that connections without terminated TLS go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassthroughRules {
    /// Whether a listener passes connections through to this pool. No requests go to it then.
    pub is_used: bool,
    /// Whether what listens at its members' ports does not read identity headers. Default no.
    pub trusted_headers_off: bool,
    /// Maximum connections closed in one second when they are to end. Default 100.
    pub close_rate: u32,
}

impl Default for PassthroughRules {
    fn default() -> Self {
        Self {
            is_used: false,
            trusted_headers_off: false,
            close_rate: 100,
        }
    }
}

impl Default for PoolRules {
    fn default() -> Self {
        Self {
            forward_cert: true,
            forward_cert_bytes_max: 7 << 10,
            overlong_cert: OverlongCert::default(),
            host: HostRule::default(),
            proxy_pass_reverse: false,
            form: HeaderForm::default(),
            guards: GuardSettings::default(),
            passthrough: PassthroughRules::default(),
        }
    }
}

/// `[ca]`: what of the CA is for clients without a verified certificate, and whether agents renew theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaSettings {
    /// How often they may ask. Default as [`Rates::default`].
    pub rates: Rates,
    /// Most of their requests in flight at once. Default 64, half of what Jetty's threads are left to us.
    pub anonymous_in_flight_max: u32,
    /// Whether the CA's certificate and CRLs are answered here, from copies. Default false. The route table has its copy.
    pub edge_answers: bool,
    /// How old such a copy may be. Default 24 hours.
    pub edge_answers_age_max: Duration,
    /// Whether certificates are renewed through here. Default false. The route table has its copy.
    pub renewal: bool,
}

impl Default for CaSettings {
    fn default() -> Self {
        Self {
            rates: Rates::default(),
            anonymous_in_flight_max: 64,
            edge_answers: false,
            edge_answers_age_max: Duration::from_secs(24 * 3600),
            renewal: false,
        }
    }
}

/// Limits of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxySettings {
    /// Bytes of a request body read and dropped after an early answer. Default 4 MiB.
    pub discard_bytes_max: u64,
    /// Time allowed for that. Default 5 s.
    pub discard_timeout: Duration,
    /// Most attempts of one request. Default 3.
    pub attempts_max: u32,
    /// Share of a pool's connections that one client may hold. Default 25 %.
    pub client_share: ClientShare,
    /// Maximum bytes of one request body that are buffered before a member is asked. Default 256 KiB.
    pub body_buffer_bytes_max: u64,
    /// Maximum bytes of all buffered request bodies; one client may use an eighth. Default 64 MiB.
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
