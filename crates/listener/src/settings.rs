//! Settings of a listener.

use std::{net::IpAddr, time::Duration};

use routing::Network;

use crate::{
    address::{ListenAddress, SocketMode},
    socket::ListenEndpoint,
};

/// Whether a client must present a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertPolicy {
    /// The proxy requests a certificate and accepts clients without one, because enrolment needs that. The default.
    #[default]
    Optional,
    /// Without a certificate the handshake ends with an alert.
    Required,
    /// The proxy requests no certificate, and every client is anonymous.
    None,
}

/// How the listener treats clients with a refused certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InvalidCertPolicy {
    /// Every request gets a 403 that explains the reason. The client has proved that it holds the key. The default.
    #[default]
    Explain,
    /// The handshake ends with an alert. A resumed or live connection gets one 403 and is closed.
    Abort,
    /// Members get `FAILED:reason` on enrolment and `client = "any"` routes. Other routes answer 403.
    Forward,
}

/// `[[listeners.NAME.sni_passthrough]]`: connections that are passed through without terminating their TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SniPassthrough {
    /// Server names: a host name, or `*.` and a domain for every name directly below that domain.
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
    /// Name or number of the group of these files. Default that of the process, or of the directory.
    pub socket_group: Option<String>,
    /// The network interface on which connections must arrive. Default any.
    pub interface: Option<String>,
    /// Whether a client must present a certificate. Default `optional`.
    pub client_cert: ClientCertPolicy,
    /// How the listener treats clients with a refused certificate. Default `explain`.
    pub on_invalid: InvalidCertPolicy,
    /// Whether clients must request a server name that a certificate covers. Default no.
    pub sni_strict: bool,
    /// Maximum connections over all workers. Default 20000.
    pub connections_max: u32,
    /// Maximum handshakes that wait for their client, over all workers. Beyond it, the one that has waited longest is
    /// closed, if it has waited for a second. Default 512.
    pub handshakes_max: u32,
    /// Maximum connections of one address (IPv6: of one /64 network). Default 10000.
    pub connections_max_per_address: u32,
    /// Maximum handshakes of one address (IPv6: of one /64 network) that wait for their client. Default 256.
    pub handshakes_max_per_address: u32,
    /// Networks that are exempt from the two limits per address. Default none.
    pub per_address_exempt: Vec<Network>,
    /// Maximum time of a handshake. Default 10 s.
    pub handshake_timeout: Duration,
    /// Maximum time from a request's first byte to the end of its head. Default 30 s.
    pub head_timeout: Duration,
    /// How long a connection may be idle. Default 15 s, at least 5 s: agents reuse a connection for 4 s and never
    /// retry.
    pub idle_timeout: Duration,
    /// How long a client may stall without reading any of its response. Default 60 s.
    pub write_timeout: Duration,
    /// Minimum bytes per second at which a client must send a request body. Default 1 KiB.
    pub body_rate_min: u64,
    /// Minimum bytes per second at which a client must read a response. Default 1 KiB.
    pub read_rate_min: u64,
    /// How long a client may be slower than these rates. Default 30 s.
    pub rate_grace: Duration,
    /// Maximum bytes of a request head. Default 64 KiB.
    pub head_bytes_max: usize,
    /// Whether the listener offers HTTP/2 (ALPN). Default true.
    pub http2: bool,
    /// Maximum concurrent requests on one HTTP/2 connection. Default 100, the minimum that RFC 9113 recommends.
    pub streams_max: u32,
    /// Networks of load balancers that send a PROXY header on every connection. Default none: no connection has such a
    /// header.
    pub proxy_protocol: Option<Vec<Network>>,
    /// The pool to which every connection is passed through, without terminating TLS. Default none.
    pub passthrough: Option<String>,
    /// Server names whose connections are passed through. Default none.
    pub sni_passthrough: Vec<SniPassthrough>,
    /// Whether a connection whose server name is not passed through is refused, because the proxy has no certificate and
    /// serves no request. Default no.
    pub refuses_other_names: bool,
    /// The target to which requests in plain HTTP are redirected: `https://` and a host. Default none: the listener
    /// uses TLS.
    pub redirect_to_https: Option<String>,
}

impl ListenerSettings {
    /// The default of `connections_max`.
    pub const CONNECTIONS_MAX: u32 = 20_000;

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
            connections_max: Self::CONNECTIONS_MAX,
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
            refuses_other_names: false,
            redirect_to_https: None,
        }
    }

    /// The endpoints to bind. `[::]` also accepts IPv4, as operators expect of the agents' port, unless the listener
    /// has an IPv4 address with the same port.
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

    /// Whether this listener terminates TLS.
    pub fn terminates_tls(&self) -> bool {
        self.passthrough.is_none() && self.redirect_to_https.is_none() && !self.refuses_other_names
    }

    /// The pool to which connections with this server name are passed through. `None` if TLS is terminated.
    pub fn passthrough_of(&self, requested: &str) -> Option<&str> {
        let requested = requested.strip_suffix('.').unwrap_or(requested);
        let mut entries = self.sni_passthrough.iter();
        entries
            .find(|entry| entry.names(requested))
            .map(|entry| entry.pool.as_str())
    }

    /// Every pool to which connections are passed through.
    pub fn passthrough_pools(&self) -> impl Iterator<Item = &str> {
        let named = self.sni_passthrough.iter().map(|entry| entry.pool.as_str());
        self.passthrough.as_deref().into_iter().chain(named)
    }

    /// Whether the limits per address apply to this client.
    pub(crate) fn limits_address(&self, client: IpAddr) -> bool {
        !self
            .per_address_exempt
            .iter()
            .any(|network| network.contains(client))
    }
}
