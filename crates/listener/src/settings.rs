//! What a configuration says about a listener.

use std::{net::IpAddr, time::Duration};

use routing::Network;

use crate::{
    address::{ListenAddress, SocketMode},
    socket::ListenEndpoint,
};

/// Whether a client must show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertPolicy {
    /// Asked for, not demanded: enrolment comes without one. The default.
    #[default]
    Optional,
    /// Without one the handshake ends with an alert.
    Required,
}

/// What becomes of a client whose certificate is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InvalidCertPolicy {
    /// After proof of possession every request gets a 403 that says what is wrong. The default.
    #[default]
    Explain,
    /// The handshake ends with an alert; a resumed or live connection gets one 403 and is closed.
    Abort,
    /// `FAILED:reason` goes upstream on enrolment and `client = "any"` routes; elsewhere 403.
    Forward,
}

/// `[[listeners.NAME.sni_passthrough]]`: connections that are passed through without terminating their TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SniPassthrough {
    /// Server names: a host name, or `*.` and a domain for every name directly below it.
    pub server_names: Vec<String>,
    /// The pool that gets the connections.
    pub pool: String,
}

impl SniPassthrough {
    fn names(&self, requested: &str) -> bool {
        let below = requested.split_once('.').map(|(_, domain)| domain);
        self.server_names
            .iter()
            .any(|name| match name.strip_prefix("*.") {
                Some(domain) => below.is_some_and(|below| below.eq_ignore_ascii_case(domain)),
                None => name.eq_ignore_ascii_case(requested),
            })
    }
}

/// `[listeners.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSettings {
    /// Name in records and metrics.
    pub name: String,
    /// Addresses to bind, at least one.
    pub addresses: Vec<ListenAddress>,
    /// Permissions of the files of its Unix sockets. Default 0660.
    pub socket_mode: SocketMode,
    /// Name or number of the group that owns these files. Default that of the process, or of the directory.
    pub socket_group: Option<String>,
    /// The network interface that connections must come in by. Default any.
    pub interface: Option<String>,
    /// Whether a client must show a certificate. Default `optional`.
    pub client_cert: ClientCertPolicy,
    /// What becomes of a refused certificate. Default `explain`.
    pub on_invalid: InvalidCertPolicy,
    /// Whether only clients are served that ask for a name of a certificate. Default no.
    pub sni_strict: bool,
    /// Most connections at once, over all workers. Default 20000.
    pub connections_max: u32,
    /// Most handshakes in flight at once, over all workers. Default 512.
    pub handshakes_max: u32,
    /// Maximum connections of one address (IPv6: of one /64 network). Default 10000.
    pub connections_max_per_address: u32,
    /// Maximum handshakes in flight of one address (IPv6: of one /64 network). Default 256.
    pub handshakes_max_per_address: u32,
    /// Networks without the two limits per address. Default none.
    pub per_address_exempt: Vec<Network>,
    /// Time allowed for a handshake. Default 10 s.
    pub handshake_timeout: Duration,
    /// Time from a request's first byte to the end of its head. Default 30 s.
    pub head_timeout: Duration,
    /// Time a connection may stand without a request. Default 15 s, at least 5 s (agents reuse for 4 s, never retry).
    pub idle_timeout: Duration,
    /// Time a client may take no byte of an answer that waits for it. Default 60 s.
    pub write_timeout: Duration,
    /// Bytes per second that a client must send of a request body. Default 1 KiB.
    pub body_rate_min: u64,
    /// Bytes per second that a client must read of a response. Default 1 KiB.
    pub read_rate_min: u64,
    /// How long a client may be slower than these rates. Default 30 s.
    pub rate_grace: Duration,
    /// Most bytes of a request head. Default 64 KiB.
    pub head_bytes_max: usize,
    /// Whether HTTP/2 is offered to clients that ask for it (ALPN). Default true.
    pub http2: bool,
    /// Most requests at once on one HTTP/2 connection. Default 100, the least that RFC 9113 recommends.
    pub streams_max: u32,
    /// Networks of load balancers, each of whose connections begins with a header of the PROXY protocol. Default none: no
    /// connection has one.
    pub proxy_protocol: Option<Vec<Network>>,
    /// The pool that gets every connection as it is, without TLS being terminated. Default none.
    pub passthrough: Option<String>,
    /// Server names whose connections are passed through. Default none.
    pub sni_passthrough: Vec<SniPassthrough>,
    /// Where every request in plain HTTP is redirected to: `https://` and a host. Default none: the listener speaks TLS.
    pub redirect_to_https: Option<String>,
}

impl ListenerSettings {
    /// A listener with the default of every other setting.
    pub fn new(name: &str, address: ListenAddress) -> Self {
        Self {
            name: name.to_owned(),
            addresses: vec![address],
            socket_mode: SocketMode(0o660),
            socket_group: None,
            interface: None,
            client_cert: ClientCertPolicy::default(),
            on_invalid: InvalidCertPolicy::default(),
            sni_strict: false,
            connections_max: 20_000,
            handshakes_max: 512,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(15),
            write_timeout: Duration::from_secs(60),
            head_bytes_max: 64 << 10,
            http2: true,
            streams_max: 100,
            connections_max_per_address: 10_000,
            handshakes_max_per_address: 256,
            per_address_exempt: Vec::new(),
            body_rate_min: 1 << 10,
            read_rate_min: 1 << 10,
            rate_grace: Duration::from_secs(30),
            proxy_protocol: None,
            passthrough: None,
            sni_passthrough: Vec::new(),
            redirect_to_https: None,
        }
    }

    /// What to bind. `[::]` also accepts IPv4, as operators expect of an agents' port, unless the listener has an IPv4
    /// address of its own with that port.
    pub fn endpoints(&self) -> impl Iterator<Item = ListenEndpoint> {
        let has_v4 = |port| {
            let mut addresses = self.addresses.iter().filter_map(ListenAddress::ip);
            addresses.any(|address| address.is_ipv4() && address.port() == port)
        };
        self.addresses.iter().map(move |address| ListenEndpoint {
            address: address.clone(),
            only_v6: address
                .ip()
                .is_some_and(|ip| ip.is_ipv6() && has_v4(ip.port())),
            interface: self.interface.clone().filter(|_| address.ip().is_some()),
        })
    }

    /// Whether TLS is terminated for connections of this listener.
    pub fn terminates_tls(&self) -> bool {
        self.passthrough.is_none() && self.redirect_to_https.is_none()
    }

    /// The pool that connections with this server name are passed through to, if they are.
    pub fn passthrough_of(&self, requested: &str) -> Option<&str> {
        let requested = requested.strip_suffix('.').unwrap_or(requested);
        let mut entries = self.sni_passthrough.iter();
        entries
            .find(|entry| entry.names(requested))
            .map(|entry| entry.pool.as_str())
    }

    /// Every pool that connections are passed through to.
    pub fn passthrough_pools(&self) -> impl Iterator<Item = &str> {
        let named = self.sni_passthrough.iter().map(|entry| entry.pool.as_str());
        self.passthrough.as_deref().into_iter().chain(named)
    }

    /// Whether the limits per address hold for this client.
    pub(crate) fn limits_address(&self, client: IpAddr) -> bool {
        !self
            .per_address_exempt
            .iter()
            .any(|network| network.contains(client))
    }
}
