//! Every setting of the file: the one place where a key is declared.

use std::time::Duration;

use balancing::settings::{
    AddressExpansion, AgentCheckSettings, Algorithm, CheckKind, CheckSettings, EjectionSettings,
    MemberSettings,
};
use identity::{CertFormat, DnFormat, HeaderForm, HeaderSet, settings::SubjectRule};
use listener::settings::{ClientCertPolicy, InvalidCertPolicy};
use pki::{
    CsrKey, CsrRule,
    settings::{IssuerSettings, Revocation},
};
use proxy::{
    CaKind,
    settings::{HostRule, IdentityRule, OnDown, OverlongCert},
};
use routing::{
    Class,
    settings::{AccessRuleSettings, ClientRule, RouteSettings, RuleAction},
};
use telemetry::Facility;
use upstream::settings::{HttpVersion, Plaintext, Scheme, SendProxy};

use crate::{
    binding::{Base, Bound, settings},
    config::{self, ChangeDetection, Config, PoolConfig},
    forms,
    schema::{Absent, Key, Table},
    section::Section,
    values::{
        Reads, Word, condition_words, conditions, count, duration, named, one_of, pairs, percent,
        size, switch, table, table_or_tables, tables, text, text_or_texts, texts, texts_or_tables,
        word, words,
    },
};

const fn milliseconds(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Maximum of most durations. A longer one is probably a mistake in the unit.
const DAY: Duration = seconds(86_400);

/// Maximum age of a CRL that the proxy may serve to agents.
const EDGE_AGE_MAX: Duration = seconds(7 * 86_400);

/// Puppet's CA renews a certificate for 90 days by default. The maximum is well below that, so that a renewed
/// certificate is not due at once.
const RENEW_BEFORE_MAX: Duration = seconds(60 * 86_400);

/// Half of the 12 h for which a ticket key of rustls stays valid, because the proxy uses a key for two session
/// lifetimes.
const SESSION_LIFETIME_MAX: Duration = seconds(6 * 3600);

settings! {
    /// The proxy reads one TOML file: `/etc/proscenium/proscenium.toml`, or the file that `--config` names. Only a
    /// listener and the pools are required. Every other setting has a safe default.
    Root at "" for Config {
        /// Directory of the Puppet agent on this machine. The proxy uses the agent's certificate, key, CA bundle
        /// and CRL wherever `[tls]`, `[trust]`, `[upstream.tls]` and `[pools.NAME.tls]` name no files. `--ssldir`
        /// overrides it. The defaults are the directories of Puppet's own packages and of Debian's.
        ssldir: text(&forms::PATH) => ssldir, else "`/etc/puppetlabs/puppet/ssl` if it exists, else `/var/lib/puppet/ssl`";
        /// Name of the certificate in `ssldir`: the proxy uses `certs/NAME.pem` and `private_keys/NAME.pem`.
        /// `--certname` overrides it.
        certname: text(&forms::CERTNAME) => certname, else "the only certificate in `ssldir` that has a key, else the fully qualified name of this machine";
        /// Number of worker threads. Each has its own runtime and its own connections to members. One per core was the
        /// fastest in measurements; more threads do not add throughput.
        workers: count(1..=1024) => workers, else "one per core";
        /// Whether the proxy uses its built-in routes for Puppet after the configured routes. They send `/puppet-ca` to
        /// the pool `ca`, files of the filebucket to the pool `filebucket` if that pool exists, and all other
        /// Puppet requests to the pool `compilers`. The pools `ca` and `compilers` must exist while this is `true`.
        builtin_routes: switch() => routes.builtin_routes;
        /// Whether the proxy also serves the URLs of Puppet 0.25 to 3 (`/ENVIRONMENT/catalog/NAME` and the like, and
        /// `/v2.0/environments`), for agents that have not been upgraded. Each path has the class of its modern
        /// equivalent: the same clients may use it, and access rules, `[csr]` and `[ca]` apply. Conditions of routes
        /// on `path` and `query` match the modern equivalent (`/puppet/v3/catalog/NAME?environment=ENVIRONMENT`).
        /// A path with three or more segments, of which the first two are words, then counts as Puppet's: routes to
        /// other applications need `unguarded = true`. `/RPC2` (Puppet before 0.25) stays refused.
        legacy_routes: switch() => routes.legacy_routes;
        /// How long requests that run or wait for a member may take to finish after SIGTERM. After that, the proxy
        /// answers requests that still wait with 503, and closes and counts the rest. Most catalogs compile within a
        /// minute, and service managers wait 90 s before they kill a process.
        drain_grace: duration(seconds(0)..=DAY) => drain_grace;
        listeners: named(Listener::TABLE), else "none; at least one listener is required";
        tls: table(Tls::TABLE), else "the agent's own certificate";
        trust: table(Trust::TABLE), else "the agent's own CA bundle and CRL";
        materials: table(Materials::TABLE), else "the defaults below";
        identity: table(Identity::TABLE), else "the defaults below";
        upstream: table(Upstream::TABLE), else "the defaults below";
        dns: table(Dns::TABLE), else "the defaults below";
        pools: named(Pool::TABLE), else "no pools";
        routes: tables(Route::TABLE), else "only the built-in routes";
        csr: table(Csr::TABLE), else "the defaults below";
        ca: table(Ca::TABLE), else "the defaults below";
        access: tables(Access::TABLE), else "no rules; the classes of endpoints and the routes decide";
        /// Whether every rule of `[[access]]` with `action = "refuse"` only logs what it would refuse, as if each
        /// had `observe = true`. Rules with `action = "allow"` still apply, and so do the classes of endpoints and
        /// the routes.
        access_observe: switch() => routes.access_observe;
        access_log: table_or_tables(AccessLog::TABLE), else "the defaults below";
        events: table(Events::TABLE), else "the defaults below";
        admin: table(Admin::TABLE), else "the defaults below";
        metrics: table(Metrics::TABLE), else "none";
        state: table(State::TABLE), else "the defaults below";
        fleet: table(Fleet::TABLE), else "none; this proxy is not part of a fleet";
    }

    /// Several proxies share the states of members and blocks through etcd, version 3.4 or later. A drain or a block
    /// that an operator sets on one of them applies to all. Each proxy has its own copy, so neither traffic nor a start
    /// depends on etcd. Without this table, the proxy is not part of a fleet.
    Fleet at "fleet" for config::Fleet {
        /// The members of the etcd cluster, `https://HOST:PORT`. A name in their certificates must be HOST.
        etcd: conditions(&forms::ETCD) => etcd, required;
        /// The name of this fleet. Proxies with equal `site` and `prefix` share their records.
        site: text(&forms::SITE) => site, required;
        /// File with the keys that seal records, the same on all proxies: 32 bytes in base64, one key per line. The
        /// proxy seals with the first key and accepts all of them. Only the proxy's account may read it. `proscenium
        /// fleet key` prints a key.
        key_file: text(&forms::PATH) => key_file, required;
        /// PEM file with the certificate that the proxy presents to etcd. Set it together with `key`.
        certificate: text(&forms::PATH), else "that of the first of `[tls] certificates`, which is the agent's if not set";
        /// PEM file with the key of that certificate.
        key: text(&forms::PATH), else "the key of that certificate";
        /// PEM files or directories with the CA certificates that etcd's certificates are verified against.
        ca: text_or_texts(&forms::PATH), else "`[trust] ca`, with `[trust] crl`";
        /// The beginning of all keys in etcd. Keys of this fleet are below `PREFIX/SITE/`.
        prefix: text(&forms::ETCD_PREFIX) => prefix;
        /// How long the proxy waits for a connection to a member of the cluster before it tries the next one.
        connect_timeout: duration(milliseconds(100)..=seconds(60)) => connect_timeout;
        /// How long one call to etcd may take.
        request_timeout: duration(milliseconds(100)..=seconds(60)) => request_timeout;
        /// Time between two pings on an idle connection. They detect a member that no longer answers. etcd refuses
        /// intervals below 5 s.
        keepalive: duration(seconds(5)..=DAY) => keepalive;
        /// How long a proxy that etcd no longer hears from still counts as part of the fleet.
        lease: duration(seconds(5)..=seconds(3600)) => lease;
        /// How long after the start `/ready` answers 503 while the proxy has not yet received the records.
        ready_after: duration(seconds(0)..=seconds(600)) => ready_after;
    }

    /// An address where the proxy accepts agents. NAME appears in access records and metrics.
    Listener at "listeners.NAME" for listener::ListenerSettings {
        /// IP address and port to bind, or `unix:` and the path of a Unix socket, or a list of these. Agents use port 8140. Each listener needs addresses of its own.
        /// `[::]` also accepts IPv4 connections, unless the list has an IPv4 address with the same port. The limits of the
        /// listener count the connections of all its addresses. If one of them cannot be bound, the proxy does not start,
        /// and refuses a reload.
        address: text_or_texts(&forms::LISTEN) => addresses, required;
        /// Permissions of the file of a Unix socket. A client needs write access to connect.
        socket_mode: text(&forms::SOCKET_MODE) => socket_mode;
        /// Group of that file: a name that the machine's name services know, or a number. The account of the service must be in the group.
        socket_group: text(&forms::GROUP) => socket_group, else "that of the process";
        /// Name of a network interface. The listener then accepts only connections that arrive on it
        /// (`SO_BINDTODEVICE`), whatever addresses it has, like `bind … interface` of HAProxy. `address` may be
        /// `0.0.0.0` or `[::]`; listeners on different interfaces may have the same address. The interface must exist
        /// when the proxy starts.
        interface: text(&forms::INTERFACE) => interface, else "any interface";
        /// Whether a client must present a certificate. With `optional`, the proxy requests one, and clients
        /// without a certificate can enroll. With `required`, the proxy rejects the handshake of a client that
        /// presents none. With `none`, it requests no certificate: every client is anonymous, members get no identity
        /// (`X-Client-Verify: NONE`), and all routes of the listener must be `unguarded` with `client = "any"`. If all
        /// listeners that terminate TLS have `none`, no file of `[trust]` is needed.
        client_cert: word::<ClientCertPolicy>() => client_cert;
        /// How the proxy treats a client whose certificate it refuses. `explain` answers every request with 403 and
        /// a message that names the certificate, the reason and the command to run. `abort` rejects the handshake
        /// with a TLS alert; an agent shows that without a reason. `forward` sends `X-Client-Verify: FAILED:reason`
        /// to the member on enrolment and on routes with `client = "any"`, and answers 403 elsewhere.
        on_invalid: word::<InvalidCertPolicy>() => on_invalid;
        /// Whether a client must send a server name (SNI) that one of the certificates covers. A client that sends
        /// another name gets the alert `unrecognized_name`; one that sends none gets `missing_extension`. With
        /// `false`, both get the first certificate whose signature algorithm they support. Agents that are
        /// configured with an IP address as their server send no name.
        sni_strict: switch() => sni_strict;
        /// Certificates and keys of this listener. They replace those of `[tls]`.
        certificates: tables(Credential::TABLE), else "those of `[tls]`";
        /// Maximum number of open connections, over all workers. Each takes about 30 KiB, so the default can use
        /// 600 MB. A further client waits until a connection ends. If handshakes wait for their client for a second, the
        /// proxy closes one as for `handshakes_max`.
        connections_max: count(1..=1_000_000) => connections_max;
        /// Maximum number of TLS handshakes that wait for the client's next message, over all workers. Such a handshake
        /// delays no other one. At the limit, a further handshake closes the one that has waited longest, of the address
        /// with the most waiting handshakes, if it has waited for a second or longer. Agents need a round trip and a few
        /// milliseconds.
        handshakes_max: count(1..=100_000) => handshakes_max;
        /// Maximum connections of one client address; of IPv6, of one /64 network. A further connection closes the
        /// handshake of this address that has waited longest for its client. If none waits, it is closed itself.
        /// Thousands of agents may share one address behind NAT, and each has one or two connections for the length of a
        /// run: half of the listener's limit leaves room for them and for all other addresses.
        connections_max_per_address: count(1..=1_000_000) => connections_max_per_address;
        /// Maximum TLS handshakes of one client address that wait for the client's next message; of IPv6, of one /64
        /// network. At the limit, a further handshake closes the one of this address that has waited longest, if it has
        /// waited for a second or longer.
        handshakes_max_per_address: count(1..=100_000) => handshakes_max_per_address;
        /// Networks of clients without the two limits per address, such as a load balancer that hides the addresses of
        /// all agents.
        per_address_exempt: texts(&forms::NETWORK) => per_address_exempt;
        /// How long a TLS handshake may take. It needs two round trips and a few milliseconds of the agent's
        /// processor, so 10 s is enough for slow agents and still frees the slot of a client that stalls.
        handshake_timeout: duration(milliseconds(100)..=DAY) => handshake_timeout;
        /// How long a client may take to send the head of a request, from its first byte, or the preface of HTTP/2.
        /// A head fits into one or two packets. A client that needs more than 30 s sends it slowly on purpose.
        head_timeout: duration(milliseconds(100)..=DAY) => head_timeout;
        /// How long a connection may stay open without a request. An agent reuses a connection for 4 s after a
        /// response (`http_keepalive_timeout` in Puppet's defaults.rb) and never repeats a request that was lost on
        /// a closing connection, so the minimum is 5 s. The default of 15 s avoids a new handshake for agents that
        /// pause during a run.
        idle_timeout: duration(seconds(5)..=DAY) => idle_timeout;
        /// How long a client may stall without reading any of its response. An agent that processes what it has
        /// received stalls for seconds, not for a minute.
        write_timeout: duration(milliseconds(100)..=DAY) => write_timeout;
        /// Minimum rate, in bytes per second, at which a client must send a request body. Only time in which the proxy waits
        /// for the client counts. A client that is slower for longer than `rate_grace` gets a 408. A modem of the 1990s
        /// sends five times as fast.
        body_rate_min: size(1..=1 << 30) => body_rate_min;
        /// Minimum average rate, in bytes per second, at which a client must read a response that a member is still sending.
        /// Bytes count when the operating system accepts them for the client, and only time in which the proxy waits for the
        /// client counts. A client that falls behind by more than `rate_grace` loses its connection (HTTP/1.1) or its stream
        /// (HTTP/2), because it holds a connection to a member meanwhile.
        read_rate_min: size(1..=1 << 30) => read_rate_min;
        /// How long a client may be slower than `body_rate_min`, or how far it may fall behind `read_rate_min`. A client
        /// that sends a body earns time back with every byte, up to this value. An agent on a busy machine or a bad network pauses for seconds.
        rate_grace: duration(milliseconds(100)..=DAY) => rate_grace;
        /// Maximum size of a request's head: the request line and the header fields. Agents send less than 2 KiB,
        /// and a Puppet server accepts 8 KiB.
        head_max: size(8 << 10..=1 << 20) => head_bytes_max;
        /// Whether the proxy offers HTTP/2 to clients (ALPN `h2`). Connections to members use HTTP/1.1 in either
        /// case. Agents use HTTP/1.1; other clients can send several requests at once over one HTTP/2 connection.
        http2: switch() => http2;
        /// Maximum number of concurrent requests on one HTTP/2 connection. RFC 9113 (6.5.2) recommends at least
        /// 100.
        streams_max: count(1..=10_000) => streams_max;
        /// The pool that gets every connection of this listener unchanged (layer 4). The proxy does not terminate TLS
        /// then, so it does not know the client, and no access rule, route or identity header applies. Settings about
        /// TLS and HTTP have no effect on such a listener.
        passthrough: text(&forms::POOL) => passthrough, else "none: TLS is terminated";
        sni_passthrough: tables(SniPassthrough::TABLE), else "none: TLS is terminated, whatever the server name is";
        /// Makes this listener redirect plain HTTP: `https://` and the host name of the proxy, with its port, as
        /// `"https://puppet.example.com:8140"`. The listener then speaks HTTP/1 without TLS. It answers every request, a
        /// GET or HEAD with 301 and others with 308, and closes the connection. `Location` is this value and the path of
        /// the request; the `Host` that the client sends is not used. No request reaches a member. `head_max`,
        /// `handshake_timeout` (until the end of the head), `connections_max`, `connections_max_per_address` and
        /// `proxy_protocol` apply; other settings have no effect on such a listener.
        redirect_to_https: text(&forms::HTTPS_ORIGIN) => redirect_to_https, else "none: the listener speaks TLS";
        proxy_protocol: table(ProxyProtocol::TABLE), else "no connection begins with a PROXY header";
    }

    /// Connections that a listener passes through by the server name (SNI) of the client's TLS handshake. The proxy reads
    /// the client's first message, at most 16 KiB and within `handshake_timeout`, and sends it on. A connection without a
    /// server name, or with one that no entry names, is terminated, or refused if `sni_strict` is set; it is never passed
    /// through.
    SniPassthrough at "listeners.NAME.sni_passthrough[]" for listener::SniPassthrough {
        /// Server names that are passed through: host names, or `*.` and a domain for every name directly below it.
        server_names: texts(&forms::SERVER_NAMES) => server_names, required;
        /// The pool that gets these connections.
        pool: text(&forms::POOL) => pool, required;
    }

    /// The PROXY protocol, versions 1 and 2, from load balancers in front of a listener. With this table, every connection
    /// must begin with a valid header of at most 8 KiB within `handshake_timeout`; without it, none may. The header
    /// changes the client's address for access rules, limits per address, `X-Forwarded-For` and the access log, which
    /// shows the address of the load balancer as `peer`. Everything else in it is ignored. With `LOCAL` or `UNKNOWN`, the
    /// address of the connection counts.
    ProxyProtocol at "listeners.NAME.proxy_protocol" for () {
        /// Networks of the load balancers. The proxy closes connections from other addresses, because every host that may
        /// send the header can claim any client address.
        from: texts(&forms::NETWORK), required;
    }

    /// Certificates that the proxy presents to clients, and TLS sessions.
    Tls at "tls" for Config {
        /// Certificates and keys. If there are several, the proxy prefers those whose subjectAltName covers the
        /// server name (SNI) that the client sends: first an exact match, then a wildcard. Among these it presents
        /// the first whose signature algorithm the client supports, so list an ECDSA certificate before an RSA
        /// certificate for the same name: its handshake costs a fifth. If no certificate covers the name, the proxy
        /// considers all of them in order.
        certificates: tables(Credential::TABLE), else "that of `certname` in `ssldir`";
        /// Whether the proxy renews these certificates, those of `[[listeners.NAME.certificates]]`, and those of
        /// `[upstream.tls]` and `[pools.NAME.tls]` at the Puppet CA before they expire (`POST certificate_renewal`).
        /// The CA must be Puppet Server 8.2.1 or later, in the pool `ca` with TLS. The key stays the same. The proxy
        /// replaces the chain file, so its account must be able to write to the directory of the file. Certificates that
        /// no CA of `[trust] ca` issued are not renewed. With `false`, or if a renewal fails, the alarms
        /// `certificate-expiring` and `certificate-invalid` show what to do.
        renew: switch() => own_renewal.enabled;
        /// How long before its expiry a certificate is renewed. A certificate that is valid for a short time is renewed
        /// in the last third of that time. The proxy tries a failed renewal again after an hour, then at growing
        /// intervals of up to a day, and after a `proscenium reload`.
        renew_before: duration(seconds(3600)..=RENEW_BEFORE_MAX) => own_renewal.before;
        /// How long after its full handshake a client may resume a TLS session, however often it does so. The proxy
        /// replaces the keys of session tickets at the same interval, holds them in memory only and discards them
        /// after twice that time. It verifies the client's certificate again on every resumption; this setting
        /// limits how long a client need not prove that it holds the private key. Sessions survive a reload but not
        /// a restart.
        session_lifetime: duration(seconds(1)..=SESSION_LIFETIME_MAX) => session_lifetime;
    }

    /// A certificate and its key. `[[listeners.NAME.certificates]]` has the same keys.
    Credential at "tls.certificates[]" for () {
        /// PEM file with the certificate, followed by the intermediate certificates that clients do not have.
        chain: text(&forms::PATH), required;
        /// PEM file with the private key. Only its owner and group may have access to it; no setting relaxes that.
        key: text(&forms::PATH), required;
    }

    /// Which CAs the proxy trusts, and how it checks for revocation.
    Trust at "trust" for Config {
        /// PEM files with CA certificates, root and intermediate. The proxy loads every file of a directory. It
        /// trusts an intermediate certificate without its root, but then no CRL can revoke that intermediate, and
        /// the start logs a warning. It does not trust an intermediate certificate whose root is there but is not a
        /// valid CA.
        ca: text_or_texts(&forms::PATH), else "`certs/ca.pem` in `ssldir`";
        /// PEM files with CRLs. The proxy loads every file of a directory, whatever its name. If you set `ca`, set
        /// this or `unchecked` too, because a CRL is valid only for the CA that issued it. If you do not set this, the proxy starts with
        /// the agent's CRL, and `[trust.fetch]` fetches new ones from the CA. The agent's CRL does not change while
        /// no agent runs on this machine; the start and `check` print its age.
        crl: text_or_texts(&forms::PATH), else "`crl.pem` in `ssldir`";
        /// Maximum number of intermediate certificates between a client's certificate and a root. Puppet's own CA
        /// has one. Six is the limit of the library that builds the paths.
        depth: count(0..=6) => trust.settings.depth;
        fetch: table(Fetch::TABLE), else "the defaults below";
        /// Issuers whose certificates the proxy accepts without a CRL, by distinguished name (RFC 2253). `["*"]`
        /// means every issuer. If a CRL of such an issuer is loaded, it still applies.
        unchecked: texts(&forms::ISSUER) => trust.settings.unchecked;
        /// CAs whose outdated signatures the proxy accepts, by distinguished name (RFC 2253): RSA with SHA-1, and
        /// RSA keys of 1024 to 2047 bits, of the CA and of the certificates that it issued to clients and members.
        /// An attacker with enough resources can forge such signatures, so name a CA here only until you have
        /// replaced it. SHA-1 signatures and small keys of other CAs are refused, even in the same certificate chain.
        legacy_signatures: texts(&forms::CA) => trust.settings.legacy_signatures;
        /// What the proxy does when a CRL is past its next update (RFC 5280, 5.1.2.5). `warn` continues to use the
        /// CRL and raises an alarm. `reject` refuses the clients of its issuer. `grace:DURATION`, such as `grace:72h`,
        /// warns for that long after the next update, and then rejects. The default is `warn`, because an expired
        /// CRL still lists every certificate that was revoked before, while refusing all clients stops the estate.
        crl_expired: text(&forms::CRL_EXPIRED) => trust.settings.crl_expired;
        /// Which certificates of a path the proxy looks up in the CRL of their issuer. `chain` checks all of them.
        /// `leaf` checks the client's certificate only, like `certificate_revocation` of Puppet: it needs no CRL
        /// of the root, but the proxy does not notice when the root revokes the CA below it.
        revocation: word::<Revocation>() => trust.settings.revocation;
        /// Maximum number of connections of revoked clients that the proxy closes per second after the trust store
        /// has changed. It prevents thousands of clients from reconnecting at once.
        revoked_close_rate: count(1..=1_000_000) => trust.revoked_close_rate;
        /// Maximum number of verified certificate chains in the cache, about 3 kB each. The proxy does not verify
        /// the signatures of a cached chain again on the next connection of the same agent. It still checks dates
        /// and CRLs every time, and empties the cache when `ca` or a policy changes. 0 disables the cache.
        chain_cache_max: count(0..=10_000_000) => trust.settings.chain_cache_max;
        issuers: tables(TrustIssuer::TABLE), else "the policies above for every issuer";
    }

    /// The policy for certificates of one issuer. Keys that are left out inherit from `[trust]`. A name that no CA
    /// of the bundle has raises an alarm.
    TrustIssuer at "trust.issuers[]" for IssuerSettings {
        /// The issuer's distinguished name (RFC 2253), as `proscenium status` prints it.
        name: text(&forms::CA) => name, required;
        /// What the proxy does when this issuer's CRL is past its next update.
        crl_expired: text(&forms::CRL_EXPIRED) => crl_expired, else "`[trust] crl_expired`";
        /// Whether the proxy accepts this issuer's certificates without a CRL. `false` requires a CRL even if
        /// `[trust] unchecked` names the issuer.
        unchecked: switch() => unchecked, else "`true` if `[trust] unchecked` names the issuer, else `false`";
        /// With `leaf`, the proxy checks clients' certificates against this issuer's CRL, but not the certificates
        /// of CAs below it.
        revocation: word::<Revocation>() => revocation, else "`[trust] revocation`";
    }

    /// The proxy fetches CRLs with `GET /puppet-ca/v1/certificate_revocation_list/ca` from the members of the pool
    /// `ca`, in order. It activates a CRL if a CA of the bundle signed it and it drops no revocation: its number is
    /// not lower than that of the active CRL, and it lists every certificate that the active one lists. Otherwise
    /// the active CRL stays in use, with an alarm, until you run `proscenium crl accept`. The proxy stores the
    /// active CRLs in the state directory and loads them at the next start.
    Fetch at "trust.fetch" for config::Fetch {
        /// Whether the proxy fetches CRLs in addition to those in `crl`. It uses the newest CRL of each CA.
        enabled: switch(), else "`true` if `[trust] crl` is not set and the pool `ca` exists, else `false`";
        /// Maximum time between two fetches. It limits how long a revoked agent can still connect. A CA without a
        /// new CRL answers in a few bytes (304), so 60 s costs little. `proscenium crl fetch` fetches immediately.
        interval: duration(seconds(1)..=DAY) => interval;
        /// Maximum random reduction of the interval, at most half of it. It keeps several proxies from fetching at
        /// the same moment.
        jitter: duration(seconds(0)..=DAY) => jitter;
        /// How long one fetch from one member may take: the connection, the head and the body.
        timeout: duration(milliseconds(100)..=DAY) => timeout;
        /// Maximum time between two full (unconditional) fetches. Dates in HTTP have whole seconds, and a restored
        /// file can have an old date, so a conditional fetch can miss a change.
        full_interval: duration(seconds(1)..=DAY) => full_interval;
        /// Maximum size of a response. A CRL with a million entries has 55 MB.
        body_max: size(1 << 10..=1 << 30) => body_bytes_max;
    }

    /// The proxy reloads the files that this configuration names (certificates, keys, CA bundles, CRLs) when they
    /// change on disk. If a new file is invalid, the last valid one stays active, with an alarm. The configuration
    /// file itself is read only on a reload.
    Materials at "materials" for Config {
        /// How the proxy notices a change. `notify` uses inotify, and also checks the files every `interval`,
        /// because inotify does not report changes on network file systems or in directories that the proxy may not
        /// list. `poll` only checks every `interval`. `off` reads the files on a reload only.
        watch: word::<ChangeDetection>() => materials.watch;
        /// Time between two checks of the files. A check does not open them and takes microseconds. At the same
        /// interval, whatever `watch` is, the proxy checks whether the files of a refused reload are still on disk, and
        /// whether the program was replaced.
        interval: duration(milliseconds(10)..=DAY) => materials.interval;
        /// How long changed files must stay unchanged before the proxy reads them. Writing a file in place takes
        /// less than the default of 1 s.
        settle: duration(milliseconds(10)..=DAY) => materials.settle;
        /// Maximum time that the proxy waits for changed files to settle. It then reads them, and raises an alarm
        /// if they are invalid, as a truncated CRL or a key without its certificate. Tools that renew a key and its
        /// certificate take seconds.
        settle_max: duration(milliseconds(10)..=DAY) => materials.settle_max;
    }

    /// How the proxy turns a certificate's subject into an identity and passes it to members.
    Identity at "identity" for Config {
        /// Which subjects the proxy accepts. `puppet` requires exactly one CN that uses the alphabet of the Puppet
        /// CA. `single-cn`, for external CAs, also accepts other attributes and upper case.
        subject: word::<SubjectRule>() => identity.subject;
        /// Which headers pass the client's identity to members. `puppet` sends the verdict, the subject and the
        /// certificate, which Puppet's servers read; the other settings of this table are for these. `client-cert` and
        /// `client-cert-chain` send the certificate and the intermediates of its verified path as RFC 9440 defines
        /// them. `xfcc` sends Envoy's `X-Forwarded-Client-Cert` with `Hash`, `Cert`, `Subject`, `URI` and `DNS`. The
        /// last three are sent for verified clients only. Their size counts towards `forward_cert_max`. On every route,
        /// the proxy removes all of these headers from clients' requests.
        headers: words::<HeaderSet>(HeaderSet::WORDS) => form.sets;
        /// How the proxy writes the subject. `rfc2253` writes `CN=web01,O=Example`, which every Puppet server since
        /// version 3 reads. `cn-last` writes `O=Example,CN=web01` for Mongrel and Rack with Puppet 0.23 to 2.7,
        /// which take everything after `CN=` as the name. `openssl` writes `/O=Example/CN=web01` for software that
        /// reads nothing else. With `cn-last` and `openssl`, every pool refuses a CN that contains `;`, `=`, `<`,
        /// `>` or `#`, because servers decode their escapes differently.
        dn_format: word::<DnFormat>() => form.dn_format;
        /// Name of the header for the subject, or a list of names that all carry it, such as `["X-Client-DN",
        /// "X-SSL-Subject"]`. Puppet with `ssl_client_header = HTTP_X_SSL_SUBJECT` reads `X-SSL-Subject`. On every
        /// route, the proxy removes headers of these names from clients' requests, in every spelling.
        dn_header: text_or_texts(&forms::IDENTITY_HEADER) => form.dn;
        /// Name of the header for the verdict. Puppet reads it by `ssl_client_verify_header`. Puppet Server with
        /// `allow-header-cert-info` reads the default name only.
        verify_header: text(&forms::IDENTITY_HEADER) => form.verify;
        /// Name of the header for the certificate, for pools with `forward_cert = true`.
        cert_header: text(&forms::IDENTITY_HEADER) => form.cert, else "`X-Client-Cert`, or `X-SSL-Client-Cert` with `cert_format = \"one-line\"`: the names that Puppet reads";
        /// How the proxy writes the certificate into a header. `escaped` writes percent-encoded PEM for Puppet
        /// Server. `one-line` writes PEM with spaces in place of newlines for Rack (Passenger, Unicorn) with Puppet
        /// 4.6 to 5.
        cert_format: word::<CertFormat>() => form.cert_format;
        /// Names for certificate extensions that Puppet does not name, with their OIDs, such as `{ site =
        /// "1.3.6.1.4.1.34380.1.2.7" }`. Use them in `extension` of `[[access]]`. Copy the names of
        /// `custom_trusted_oid_mapping.yaml` here.
        extensions: pairs(&forms::EXTENSION_NAME, &forms::OID) => routes.extension_names, else "only Puppet's own names";
    }

    /// How the proxy passes the identity to the members of this pool, if they differ from the others.
    PoolIdentity at "pools.NAME.identity" for HeaderForm {
        /// See `[identity]`.
        headers: words::<HeaderSet>(HeaderSet::WORDS) => sets, else "that of `[identity]`";
        /// See `[identity]`.
        dn_format: word::<DnFormat>() => dn_format, else "that of `[identity]`";
        /// See `[identity]`.
        dn_header: text_or_texts(&forms::IDENTITY_HEADER) => dn, else "that of `[identity]`";
        /// See `[identity]`.
        verify_header: text(&forms::IDENTITY_HEADER) => verify, else "that of `[identity]`";
        /// See `[identity]`.
        cert_header: text(&forms::IDENTITY_HEADER) => cert, else "that of `[identity]`; if that is not set either, it follows this pool's `cert_format`";
        /// See `[identity]`.
        cert_format: word::<CertFormat>() => cert_format, else "that of `[identity]`";
    }

    /// Connections to members. Settings in a pool override them.
    Upstream at "upstream" for Config {
        /// How long name resolution, the connection and the TLS handshake may take together. An agent waits 2 min
        /// for a connection (`http_connect_timeout`), so 5 s leaves time to try the other members.
        connect_timeout: duration(milliseconds(10)..=DAY) => upstream.connect_timeout;
        /// Time from the last byte of a request to the first byte of its answer. It includes the wait for a connection
        /// and all attempts. An agent waits 10 min for an answer (`http_read_timeout` in Puppet's defaults.rb); with
        /// less than that here, the agent gets a 504 that names the member. With more, the agent reports only that it
        /// timed out.
        first_byte_timeout: duration(milliseconds(10)..=DAY) => upstream.first_byte_timeout;
        /// How long a body may stall, in either direction. Bodies come from a disk or from memory, so a peer that
        /// is silent for a minute has gone.
        idle_timeout: duration(milliseconds(10)..=DAY) => upstream.idle_timeout;
        /// How long the host of a member may leave TCP keep-alive unanswered before a connection to it ends, in whole
        /// seconds. The operating system sends the first probe after half of it. A request that waits on that connection
        /// gets 502 (reason `down-wait`); it is sent again only if it is a safe GET or HEAD. The system of the member's
        /// host answers for as long as it runs, so this ends no request to a busy or stopped server. Tunnels and
        /// passed-through connections end in the same way.
        down_wait: duration(seconds(2)..=seconds(3600)) => upstream.down_wait;
        /// How long a tunnel may stay open without a byte in either direction. A connection becomes a tunnel by an
        /// upgrade. Long-lived WebSockets send a ping every minute or two, so a peer that is silent for 15 minutes
        /// has gone.
        tunnel_idle_timeout: duration(milliseconds(10)..=DAY) => upstream.tunnel_idle_timeout;
        /// How long the proxy keeps an unused connection open. Jetty closes one after 30 s
        /// (`idle-timeout-milliseconds` in webserver.conf). Stay below that, or requests are lost on connections
        /// that are closing. With `"0s"` every request has a connection of its own, as with Apache's
        /// `proxy-nokeepalive`.
        keepalive: duration(seconds(0)..=DAY) => upstream.keepalive;
        /// Maximum number of connections to one member, over all workers. A Puppet server has 200 threads
        /// (`max-threads` in webserver.conf), and a request that waits for a JRuby instance occupies one.
        connections_max: count(1..=100_000) => upstream.connections_max;
        /// Maximum number of header fields of a member's response. A response with more, or with a head of more than
        /// 64 KiB, is malformed (502, reason `member-malformed`). Puppet servers send about ten.
        response_fields_max: count(1..=10_000) => upstream.response_fields_max;
        /// Maximum number of requests that wait for a member of one pool at once, while all its members are at their
        /// limits (`connections_max` and `max`). When the queue is full, the proxy first answers 503 to agents
        /// that send their request again after a 503 (see `retry_after_max`), which makes room for agents whose run
        /// would fail. Without such agents, further requests get 503.
        queue_max: count(0..=1_000_000) => upstream.queue_max;
        /// How long a request may wait for a member before it is answered 503. The wait counts in `first_byte_timeout`.
        /// An agent waits 10 min for an answer, and most agents fail their run on a 503, so the default leaves 90 s
        /// for a slow catalog.
        queue_wait_max: duration(milliseconds(10)..=DAY) => upstream.queue_wait_max;
        /// How long requests wait for a member to return when no member of a pool is available, as while the only compiler
        /// restarts, counted from when the last member went down. Agents up to 8.1 fail their run on a 503, and a Puppet
        /// server restarts in 20 to 60 s. Such requests wait in the pool's queue, within `queue_max` and
        /// `queue_wait_max`. After that time, and with `"0s"` at once, they get 503.
        /// Only requests to endpoints of Puppet wait. These get 503 at once: the status endpoints, because load balancers
        /// need them; `GET certificate/ca`, `GET certificate_revocation_list/ca` and `POST certificate_renewal`, without
        /// whose response agents continue their run; upgrades; requests to a pool whose members are all drained or in
        /// maintenance; and those to a pool none of whose members has been up since the proxy started.
        unavailable_wait_max: duration(seconds(0)..=seconds(480)) => upstream.unavailable_wait_max;
        /// Maximum `Retry-After` in the 503 responses of the queue. When the queue is full, or a request has waited for
        /// `queue_wait_max`, agents that send their request again (5.3.1 to 6.13, 7.26 and later, and 8.2 and later)
        /// get 503 with a `Retry-After` between a twentieth of this and all of it. The proxy derives it from the
        /// certname, so that agents that come at the same time spread out and stay spread. Agents wait no longer than
        /// their `runinterval` (30 min).
        retry_after_max: duration(seconds(1)..=DAY) => upstream.retry_after_max;
        /// Maximum number of requests of one client that hold a JRuby of a pool at once: an agent by its certname, or a
        /// client without a verified certificate by its address (IPv6: by its /64 network). Further requests wait, at
        /// most `agent_queue_max` of them. An agent sends one request at a time. Requests that hold no JRuby do not
        /// count: those to the CA, static file content, and routes that are not Puppet's. `client_share` limits these.
        agent_max: count(1..=100_000) => upstream.agent_max;
        /// Maximum number of such requests that wait until one of the same client ends. A further one is answered 429 with a
        /// `Retry-After`, whatever the agent's version is: only a client in a loop sends so many.
        agent_queue_max: count(0..=100_000) => upstream.agent_queue_max;
        /// Certnames that `agent_max` does not limit, for hosts that compile many catalogs at once, such as CI or catalog
        /// diff. `*` matches any run of characters. `client_share` limits all their requests.
        agent_max_except: texts(&forms::CERTNAME_PATTERN) => agent_max_except;
        /// Maximum number of attempts of one request, each on another member if there is one. The proxy repeats a
        /// catalog, a report or a write to the CA only if the member cannot have started it, whatever this setting is.
        attempts_max: count(1..=10) => exchange.attempts_max;
        /// Maximum share of a pool's connections that one client may hold: an agent by its certname, or a client
        /// without a verified certificate by its address (IPv6: by its /64 network). The share is at least one
        /// connection. When a client reaches its share, its next request waits until one of its requests ends. Requests
        /// of other clients do not wait for it. While less than a quarter of the connections is free, the share is one
        /// connection. While a request waits for that reason, or because no connection is free, the proxy ends one slow
        /// download at once and one more each second. It ends only downloads of clients that read more than two
        /// downloads slowly, and more than their fair part of the connections: the slowest one first. Requests that use
        /// a JRuby are counted separately and limited by `agent_max`. Clients in `agent_max_except` may hold this share
        /// of the requests that the JRubies of the pool can run at once, but at least `agent_max`.
        client_share: percent(1..=100) => exchange.client_share.percent;
        /// Maximum bytes of one request body that the proxy buffers. A request gets a connection to a member only when its
        /// body is complete or larger than this, so that a client that sends slowly holds none. Facts and most reports of
        /// agents fit. With `"0B"` every body is streamed.
        body_buffer_max: size(0..=64 << 20) => exchange.body_buffer_bytes_max;
        /// Maximum bytes of all buffered request bodies together. One client (as in `client_share`) may use an eighth.
        /// The proxy allocates memory for bytes that have arrived, never for a declared length. When this maximum is
        /// reached, bodies are streamed to their member as they arrive.
        body_buffers_max: size(0..=64 << 30) => exchange.body_buffers_bytes_max;
        /// Maximum size of the rest of a request body that the proxy reads and discards after an early response,
        /// before it closes the connection, or resets the stream of HTTP/2, where it reads at most 256 KiB in at most 1 s.
        /// A client that is still sending would otherwise not see the response.
        discard_max: size(0..=1 << 30) => exchange.discard_bytes_max;
        /// How long the proxy reads the rest of such a body.
        discard_timeout: duration(milliseconds(10)..=seconds(300)) => exchange.discard_timeout;
        tls: table(MemberTls::TABLE), else "the certificate of `[tls]` and the CAs and CRLs of `[trust]`";
    }

    /// How the proxy resolves the names of members. It reads `/etc/hosts` first, then queries DNS, then uses the system's
    /// resolver for names that DNS does not know. An answer that fails or that breaks a rule raises an alarm, and the
    /// last valid answer stays in use.
    Dns at "dns" for Config {
        /// DNS servers: `"address"` or `"address:port"`. The proxy queries by UDP, and by TCP if an answer is
        /// truncated. It queries the servers in this order, and the next one when a server is late or answers with an
        /// error.
        servers: conditions(&forms::DNS_SERVER) => dns.servers, else "the name servers of `/etc/resolv.conf`";
        /// How long the proxy waits for the answer to one query, over all servers and retries.
        timeout: duration(milliseconds(100)..=seconds(60)) => dns.timeout;
        /// Minimum time before the proxy resolves a name again, whatever the TTL of its records says. After a failed
        /// query it is the time to the next one.
        ttl_min: duration(milliseconds(100)..=DAY) => dns.ttl_min;
        /// Maximum time before the proxy resolves a name again.
        ttl_max: duration(seconds(1)..=DAY) => dns.ttl_max;
    }

    /// TLS to members. `[pools.NAME.tls]` has the same keys and overrides `[upstream.tls]`.
    MemberTls at "upstream.tls" for config::MemberTls {
        /// PEM file with the certificate that the proxy presents to members. Set it together with `key`.
        chain: text(&forms::PATH), else "that of the first of `[tls] certificates`, which is the agent's if not set";
        /// PEM file with the key of that certificate.
        key: text(&forms::PATH), else "the key of that certificate";
        /// PEM files or directories with the CA certificates that the proxy verifies members against.
        ca: text_or_texts(&forms::PATH), else "`[trust] ca`";
        /// PEM files or directories with the CRLs for members' certificates. If `ca` is not the CA of the agents,
        /// name its CRL here, or name that CA in `[trust] unchecked`.
        crl: text_or_texts(&forms::PATH), else "`[trust] crl`";
        /// Whether the proxy accepts a member's certificate without a subjectAltName, as Puppet 3 to 5 sign them,
        /// for the one CN of its subject. The CN must match completely; wildcards and addresses do not. The proxy
        /// still verifies the chain. With `false` it refuses such a member, and the error shows this reason.
        name_from_cn: switch() => name_from_cn, else "`false`";
    }

    /// Members that do the same work. The built-in routes use the pools `ca`, `compilers` and, if it exists,
    /// `filebucket`. NAME appears in access records, metrics and routes.
    Pool at "pools.NAME" for PoolConfig {
        /// Servers: `"host:port"`, `"unix:/path"`, `"srv:NAME"` or a table, at least one. The SRV records of NAME, such as
        /// `_x-puppet._tcp.example.com`, name members by target and port, with their priority and weight. A name that
        /// does not resolve is not an error: that member is down, and the proxy resolves its name again.
        members: texts_or_tables(&forms::MEMBER, Member::TABLE), required;
        /// Names that targets of SRV records may have: host names, or `*.` and a domain for every name directly below it.
        /// An answer with another target is not used. Required for `srv:` with `scheme = "https"`: every certificate of
        /// the Puppet CA is valid for a server, so DNS alone must not decide which host gets requests.
        server_names: conditions(&forms::SERVER_NAMES) => server_names, else "none";
        /// Protocol to the members. With `https`, the proxy presents its certificate and verifies those of the
        /// members. Use `http` only for loopback addresses and Unix sockets: every client that can connect to such
        /// a server can send it any identity.
        scheme: word::<Scheme>() => upstream.scheme;
        /// Version of HTTP to the members. `"1.0"` is for old servers that mishandle 1.1, as Mongrel behind Apache's
        /// `force-proxy-request-1.0`. A request body in chunks is then buffered, or refused with 411 if it is larger
        /// than `body_buffer_max`. A response with an interim status (1xx) or a transfer coding is an error. A
        /// connection is reused only after a response with `Content-Length` and `Connection: keep-alive`.
        http_version: word::<HttpVersion>() => upstream.http_version;
        /// Which addresses plain HTTP may use. `"trusted-network"` permits any address. Set it only if nothing else
        /// can send on that path, as on a WireGuard link between two machines. A host name other than `localhost`
        /// counts as another machine, because its address can change. The proxy checks the resolved address on
        /// every connect.
        plaintext: word::<Plaintext>() => upstream.plaintext, else "loopback addresses and Unix sockets only";
        /// How the proxy picks a member. `least-load` picks the member with the shortest expected wait: the work in
        /// flight, by how long each kind of work takes in this pool, spread over the member's JRubies (see `jrubies`).
        /// While the JRubies of a member are not known, it picks as `least-connections`, which picks the member with
        /// the fewest requests in flight by weight, over all workers. `certname-hash` keeps an agent on its member, so
        /// that the member's environment caches stay warm, unless that member has more than 1.25 times the mean load; a
        /// request without a verified certname is picked by `least-load`. `round-robin` picks members in turn, by
        /// weight. `random` draws two members by weight and picks the less busy one; use it if several proxies share
        /// the members. `source-hash` picks by the client's address, so that a client stays on its member; all clients
        /// behind one address count as one. With both hashes, if a member becomes unavailable, only its clients move.
        /// `first` picks the first member in the configured order that is available and below its limits.
        algorithm: word::<Algorithm>() => pool.algorithm;
        /// JRubies of each member (`max-active-instances` of Puppet Server).
        jrubies: count(1..=1000) => pool.jrubies, else "what the status service of each member shows";
        /// Maximum number of requests in flight that use a JRuby of a member, in percent of its JRubies; further
        /// requests wait in the pool's queue. At 100%, no request waits inside a member, where the proxy could neither
        /// move it nor prefer shorter work. Raise it if several clients or proxies far away use the members and the
        /// JRubies are idle between two requests. Requests that use no JRuby, those for static files and to the CA, are
        /// not limited by it. It has no effect while the JRubies of a member are not known.
        jruby_load_max: percent(10..=1000) => pool.jruby_load_max;
        /// Which requests to the members carry identity headers. `always`: every request. `renewal`, for a CA server
        /// that ignores them: renewals carry `X-Client-Cert`, and requests that need no certificate carry none. Puppet
        /// Server with `allow-header-cert-info: false` logs a warning for each identity header. Requests to other
        /// endpoints carry them with both values.
        identity_headers: word::<IdentityRule>() => rules.identity, else "`renewal` for the pool `ca` with `scheme = \"https\"`, the default identity headers, no `legacy_routes` and no listener with `on_invalid = \"forward\"`; else `always`";
        /// Whether the proxy sends `X-Client-Cert` to the members, together with `X-Client-Verify: SUCCESS` only.
        /// Without it, trusted facts (`$trusted['extensions']`) are empty, but agents' runs succeed. The CA gets the
        /// header with renewals (`[ca] renewal`) and never otherwise, whatever this setting is.
        forward_cert: switch() => rules.forward_cert;
        /// Maximum size of the value of `X-Client-Cert`, together with the values of other `headers` that carry the
        /// certificate. Jetty accepts heads of 8 KiB, and the rest of an agent's
        /// head takes less than 1 KiB. A certificate with 200 alternative names takes 10 KiB. Raise this if
        /// `request-header-max-size` of the servers is larger.
        forward_cert_max: size(1 << 10..=64 << 10) => rules.forward_cert_bytes_max;
        /// What the proxy does if `X-Client-Cert` would be larger. `refuse` answers 431 with the reason. `omit`
        /// sends the request without the header, as with `forward_cert = false`, and counts it in
        /// `proscenium_certificates_omitted_total`; the trusted facts of these agents are then empty.
        forward_cert_too_large: word::<OverlongCert>() => rules.overlong_cert;
        /// What the proxy sends in the Host header and as the server name (SNI) in the TLS handshake. `keep` sends
        /// the client's Host and no server name, because Jetty answers 400 if the two differ. `member` sends the
        /// member's name in both, for members behind a router that uses the server name. The proxy verifies the
        /// member's certificate in both cases.
        host: word::<HostRule>() => rules.host;
        /// Whether the proxy rewrites URLs in the response headers `Location`, `Content-Location` and `URI` as Apache's
        /// `ProxyPassReverse` does: a URL that names a member of the pool, or the client's Host with `http`, gets
        /// `https` and the client's Host. Other URLs and paths stay as they are. Agents follow redirects.
        proxy_pass_reverse: switch() => rules.proxy_pass_reverse;
        /// Headers that the proxy removes from clients' requests to this pool, in addition to those of the route. See
        /// `[[routes]]`.
        remove_headers: texts(&forms::HEADER_PATTERN) => rules.headers.remove;
        /// Headers that the proxy sends to this pool although it removes them elsewhere, in addition to those of the
        /// route. Only for a pool whose routes are all `unguarded`. See `[[routes]]`.
        keep_headers: texts(&forms::HEADER_PATTERN) => rules.headers.keep;
        /// See `[upstream]`.
        connect_timeout: duration(milliseconds(10)..=DAY) => upstream.connect_timeout, else "that of `[upstream]`";
        /// See `[upstream]`.
        first_byte_timeout: duration(milliseconds(10)..=DAY) => upstream.first_byte_timeout, else "that of `[upstream]`";
        /// See `[upstream]`.
        idle_timeout: duration(milliseconds(10)..=DAY) => upstream.idle_timeout, else "that of `[upstream]`";
        /// See `[upstream]`.
        down_wait: duration(seconds(2)..=seconds(3600)) => upstream.down_wait, else "that of `[upstream]`";
        /// See `[upstream]`.
        tunnel_idle_timeout: duration(milliseconds(10)..=DAY) => upstream.tunnel_idle_timeout, else "that of `[upstream]`; `1h` for connections that are passed through, whose clients may be silent for 15 minutes";
        /// See `[upstream]`.
        keepalive: duration(seconds(0)..=DAY) => upstream.keepalive, else "that of `[upstream]`";
        /// See `[upstream]`.
        connections_max: count(1..=100_000) => upstream.connections_max, else "that of `[upstream]`; 100000 for connections that are passed through";
        /// See `[upstream]`.
        response_fields_max: count(1..=10_000) => upstream.response_fields_max, else "that of `[upstream]`";
        /// See `[upstream]`.
        queue_max: count(0..=1_000_000) => upstream.queue_max, else "that of `[upstream]`";
        /// See `[upstream]`.
        queue_wait_max: duration(milliseconds(10)..=DAY) => upstream.queue_wait_max, else "that of `[upstream]`";
        /// See `[upstream]`.
        unavailable_wait_max: duration(seconds(0)..=seconds(480)) => upstream.unavailable_wait_max, else "that of `[upstream]`";
        /// See `[upstream]`.
        agent_max: count(1..=100_000) => upstream.agent_max, else "that of `[upstream]`";
        /// See `[upstream]`.
        agent_queue_max: count(0..=100_000) => upstream.agent_queue_max, else "that of `[upstream]`";
        /// See `[upstream]`. An empty list excepts no client of this pool.
        agent_max_except: texts(&forms::CERTNAME_PATTERN) => agent_max_except, else "those of `[upstream]`";
        /// See `[upstream]`.
        retry_after_max: duration(seconds(1)..=DAY) => upstream.retry_after_max, else "that of `[upstream]`";
        /// The header of the PROXY protocol that members get at the beginning of each connection that is passed
        /// through: `v1`, `v2` or `off`. Version 2 also carries the server name, where the proxy has read it
        /// (`PP2_TYPE_AUTHORITY`), and the `id` of the access record (`PP2_TYPE_UNIQUE_ID`). Probes of the same port
        /// begin with a `LOCAL` header (version 1: `UNKNOWN`).
        send_proxy: word::<SendProxy>() => upstream.send_proxy;
        /// Whether the service at the members' ports does not read identity headers (`X-Client-Verify` and others). A
        /// client can send any header over a connection that is passed through, so no member may be on the host of a
        /// member of another pool, unless this is `true` and the ports differ. `proscenium doctor` tests it.
        trusted_headers_off: switch() => rules.passthrough.trusted_headers_off;
        /// What the proxy does with the tunnels of a member that goes down by its health check: passed-through connections,
        /// and connections that were upgraded (`upgrade` of a route). `keep` leaves them open, because the check may be
        /// wrong: a busy server that answers no probe in time still serves its tunnels. `cut` closes them at
        /// `tunnel_close_rate`, so that their clients connect again and reach another member. If the member is up again
        /// before all are closed, the rest stay open. A drain closes none. With both, a tunnel ends if the member's host
        /// does not answer TCP keep-alive for `down_wait`.
        on_down: word::<OnDown>() => rules.tunnels.on_down;
        /// Maximum number of tunnels that the proxy closes per second, the oldest first. It closes tunnels if their
        /// member is down (`on_down = "cut"`), and for passed-through connections also if a reload removed their member
        /// or listener, an operator put their member into maintenance, or the process stops. At a stop it closes them
        /// faster if `drain_grace` would end before.
        tunnel_close_rate: count(1..=1_000_000) => rules.tunnels.close_rate;
        /// Maximum share of the pool's requests that the proxy may send again. Retries help if one member fails; if
        /// many fail, retries multiply the load on the others. Above the budget the client gets the error of the first
        /// attempt, and the record has the reason `retry-budget`. Two retries per second, and 20 at once, are always
        /// allowed. Two kinds of retries do not count: of a request that the member cannot have read because it had
        /// closed the reused connection, and of a safe GET or HEAD whose reused connection is closed or reset before a
        /// byte of the response. Waiting requests that move from a failed member count; above the budget they continue
        /// to wait for it.
        retry_budget: percent(0..=100) => rules.guards.retry_budget;
        /// Time in which the weight of a restarted member grows from 10 % to 100 %, as with HAProxy's `slowstart`. It
        /// begins when the member is up again and ready. With `0s`, the member has its whole weight at once, which
        /// suits `least-load`: the member gets no more requests than it has JRubies, `least-load` takes its slowness
        /// into account, and only requests warm a JVM up. Set a time for other algorithms. The limits of the member do
        /// not change, and if no other member is available it gets all requests.
        slow_start: duration(seconds(0)..=DAY) => pool.slow_start.duration;
        /// Number of requests for each JRuby after which a restarted member is warm before `slow_start` has passed; a JVM
        /// needs about 300. With 0, only time counts. The status shows the member as warming until then, for at most 5
        /// minutes without `slow_start`.
        slow_start_requests: count(0..=1_000_000) => pool.slow_start.requests;
        tls: table(MemberTls::TABLE), else "`[upstream.tls]`";
        check: table(Check::TABLE), else "the defaults below";
        agent_check: table(AgentCheck::TABLE), else "no agent checks";
        ejection: table(Ejection::TABLE), else "the defaults below";
        identity: table(PoolIdentity::TABLE), else "`[identity]`";
    }

    /// A member that needs more than an address.
    Member at "pools.NAME.members[]" for MemberSettings {
        /// `"host:port"`, `"unix:/path"` or `"srv:NAME"`.
        address: text(&forms::MEMBER) => address, required;
        /// What several addresses of the host mean. With `all`, each is a member with its own health, shown as
        /// `host:port@address`. With `first`, they belong to one member, and the proxy tries them in turn.
        addresses: word::<AddressExpansion>() => addresses, else "`all` for a name with several addresses of one family, else `first`";
        /// Share of the load within the pool: a member of weight 2 gets twice as much as one of weight 1. Members of SRV
        /// records have the weight of their record.
        weight: count(1..=1000) => weight;
        /// Maximum number of requests in flight. Requests above it go to other members. If every member of the pool is at its
        /// maximum, requests wait in the pool's queue (`queue_max`, `queue_wait_max`). A Puppet server compiles as many catalogs at once as it has JRuby instances.
        max: count(1..=100_000) => in_flight_max, else "no limit";
        /// JRubies of this member (`max-active-instances` of Puppet Server).
        jrubies: count(1..=1000) => jrubies, else "that of the pool";
        /// Members with the lowest priority get all requests while at least one of them is up and ready. Members of
        /// the next priority get requests only while none of those is; requests wait for members that are merely
        /// busy. Backups come after all priorities.
        priority: count(0..=65_535) => priority;
        /// Name that the member's certificate must carry.
        server_name: text(&forms::SERVER_NAME) => server_name, else "the host of `address`; of `srv:`, the target";
        /// Whether the member is a backup. The proxy uses it only while no other member of the pool is available: up,
        /// ready and below its `max`. Use it for a second CA server. A write to the CA goes to a backup only while the
        /// first member is known to be down, or is drained or in maintenance. If any part of the write can have reached
        /// the first member, the proxy answers 502, and the agent tries again at its next run.
        backup: switch() => role;
    }

    /// How the proxy probes members.
    Check at "pools.NAME.check" for CheckSettings {
        /// What a probe tests. `http` sends GET `/status/v1/simple` and expects 200 and `running`, which a Puppet
        /// server answers only when it can work; see `port` for another service. `legacy`, for Puppet 0.25 to 3,
        /// sends GET `/production/status/no_key` with `Accept: pson` and expects 200 and `"is_alive":true`; the
        /// probe has no identity, so auth.conf of the server must allow every client to read it. `tcp` opens a
        /// connection. `none` disables probes: a member is up until it refuses a connection.
        kind as "type": word::<CheckKind>() => kind;
        /// Port on the member's host (for a Unix socket, on this machine) where another service answers probes, such as
        /// a script that inetd runs. With `type = "http"`, the proxy sends GET `/` in plain HTTP: 200 means up, any
        /// other status means down. With `tcp`, the port must accept a connection. Stop that service to remove the
        /// member from the pool. Probes carry nothing secret, but anything on the network path can forge their answer.
        /// With `tls = true` the port is another port of the Puppet server itself.
        port: count(1..=65_535) => port, else "the member's own port, with the pool's `scheme`";
        /// Whether probes to `port` use TLS, with the pool's certificate and the member's name as requests do. Set it
        /// if the service that agents use has no status service but another port of the same server does: check a
        /// PCP broker on 8142 by `port = 8140` and `tls = true`. The default path and expectations are then those
        /// without `port`.
        tls: switch() => tls;
        /// Path that a probe requests with GET, with its query. Puppet Enterprise runs several services in one
        /// process, and `/status/v1/simple` fails if any of them fails; `/status/v1/simple/server` shows only
        /// the service that compiles. With `type = "http"` only.
        path: text(&forms::PROBE_PATH) => path, else "`/status/v1/simple`; `/` on a `port` without TLS";
        /// Status codes that a probe accepts, such as `["200"]` or `["200-299", "404"]`. Set it, without `expect_body`, for
        /// a service whose body does not matter. With `type = "http"` only.
        expect_status: conditions(&forms::STATUS_RANGE) => expect_status, else "200";
        /// Text that the body of the answer must contain in its first 4096 bytes. With `type = "http"` only.
        expect_body: text(&forms::ANY_TEXT) => expect_body, else "`running` and nothing else at `/status/v1/simple` and below it if `expect_status` is not set; otherwise any body";
        /// Time between two probes of a member. Together with `fall` it limits how long a member that hangs still
        /// gets requests: 15 s by default. The proxy adds up to 10 %, different for each member and probe.
        /// While no member is available and requests may wait for one to return (`unavailable_wait_max`), the time is 1 s
        /// at most.
        interval: duration(milliseconds(10)..=DAY) => interval;
        /// Time between two probes while their results disagree with the member's health, until `rise` or `fall` is
        /// reached. A shorter time finds a failed or a returned member sooner, but a busy server has less time to
        /// answer again before it counts as down.
        fast_interval: duration(milliseconds(10)..=DAY) => fast_interval, else "`interval`";
        /// How long one probe may take. A Puppet server answers in 2 to 4 ms, but later when it is busy, and a busy
        /// server is not down.
        timeout: duration(milliseconds(10)..=DAY) => timeout;
        /// Number of successful probes in a row after which a member is up again. A member that was never probed is
        /// up after its first.
        rise: count(1..=100) => rise;
        /// Number of failed probes in a row after which a member is down. A refused connection takes it down at
        /// once.
        fall: count(1..=100) => fall;
        /// Whether a member counts as up before the result of its first probe.
        assume_up: switch() => assume_up;
        /// Whether the proxy also reads, at each `interval`, how many JRubies a member has and how busy they are. It
        /// requests `/status/v1/services/jruby-metrics?level=debug` over a connection of its own, with the pool's TLS
        /// and without any identity, on the port that probes use. A member that answers 403 or 404 gets requests all
        /// the same, and the proxy queries it at every twelfth interval only. On 403, `proscenium status` and `doctor`
        /// show the rule that auth.conf needs.
        read_jrubies: switch() => read_jrubies, else "`true` if probes request the status of a Puppet Server with the pool's `scheme`, except in the pool `ca`";
    }

    /// In addition to the health check, the proxy can query a program on each member's host, as HAProxy's `agent-check`
    /// does. The proxy connects and reads one line of words. `ready`, `drain` and `maint` have the same effect as the
    /// commands of these names. `down`, `failed` and `stopped` take the member out of service until the program answers
    /// `up`. `N%` sets the weight to a percentage of the configured weight. The answer is not authenticated, so it can only
    /// reduce capacity: if an operator has set a state too, the stricter state applies, `up` does not override a failed
    /// health check, and a value above 100 % counts as 100 %. If there is no answer or it cannot be read, nothing changes.
    AgentCheck at "pools.NAME.agent_check" for AgentCheckSettings {
        /// Port on the member's host (for a Unix socket, on this machine) where that program answers.
        port: count(1..=65_535) => port, required;
        /// Time between two queries to one member. A query may take as long as `connect_timeout`.
        interval: duration(milliseconds(10)..=DAY) => interval;
    }

    /// When the proxy stops using a member because requests to it fail, although its health check passes. Only failures
    /// of the member count: no connection, no TLS, or a connection that breaks before a valid response. A response
    /// counts as success whatever its status, and a slow catalog is not a failure. Connections that break while the
    /// client has not sent its whole body do not count, and failures of one client in a row count as one, so that no
    /// client alone can eject a member. Writes to a CA are not affected.
    Ejection at "pools.NAME.ejection" for EjectionSettings {
        /// Whether members are ejected.
        enabled: switch() => enabled;
        /// Failures in a row that eject a member.
        consecutive_failures: count(1..=10_000) => consecutive_failures;
        /// Share of the attempts within `window` whose failure ejects a member, if there are at least 20 of them.
        error_rate: percent(1..=100) => error_rate;
        /// Time over which `error_rate` is measured.
        window: duration(seconds(1)..=DAY) => window;
        /// How long the first ejection lasts. Each further one lasts twice as long.
        eject_time: duration(milliseconds(10)..=DAY) => eject_time;
        /// Maximum length of an ejection. A member that was not ejected for that long starts with `eject_time` again.
        eject_time_max: duration(milliseconds(10)..=DAY) => eject_time_max;
        /// Share of a pool's members that may be ejected at once, rounded down. The last available member is never
        /// ejected, and ejected members are used again if no other member is available.
        ejected_max: percent(1..=100) => ejected_max;
        /// Share of the members of a priority that must stay available: up, ready and not ejected. No member is ejected that
        /// would leave fewer, and if others go down, are drained or are put into maintenance, ejected members are used again.
        /// With `0%`, they are used again only when no other member is available.
        panic_threshold: percent(0..=100) => panic_threshold;
    }

    /// A route: conditions, access and a pool. All conditions must match. The first route that matches applies, and
    /// the built-in routes follow. If a condition does not match, the proxy tries the next route; conditions never
    /// refuse a request, `client` and `allow` do. What an endpoint of a Puppet server requires of its client
    /// applies on every route.
    Route at "routes[]" for RouteSettings {
        /// Name in access records, metrics and `explain`.
        name: text(&forms::NAME) => name, required;
        /// Pool that requests go to.
        pool: text(&forms::POOL) => pool, required;
        /// Condition: names of listeners (`[listeners.NAME]`), one of which accepted the connection, such as
        /// `["smart-proxy"]`. It distinguishes services that have the same host name and paths but different ports.
        /// Requests of the other listeners go to the next route that matches, with what that route and the class of the
        /// endpoint require.
        listener: conditions(&forms::LISTENER) => listener, else "any listener";
        /// Condition: host names, compared without case and port. `*.` and a domain matches every name directly below it.
        host: conditions(&forms::HOST) => host, else "any host";
        /// Condition: the path, such as `{ prefix = "/a" }`, `{ exact = "/a/b" }` or `{ regex = "/a/[0-9]+" }`.
        path: one_of(RoutePath::TABLE), else "any path";
        /// Condition: methods. For other methods the proxy tries the next route.
        method: conditions(&forms::METHOD) => method, else "any method";
        /// Condition: header fields and their exact values, such as `{ X-Site = "north" }`. All must match.
        header: pairs(&forms::HEADER_NAME, &forms::HEADER_TEXT) => header, else "any header";
        /// Condition: query parameters and their values, such as `{ environment = "production" }`. All must match. The
        /// proxy compares decoded names and values (`+` is a space, `%xx` a byte) with their case. A parameter
        /// without `=` has an empty value. A parameter that appears twice, or in a query with a raw `;`, does not
        /// match, because servers read those differently. The client chooses its query, so use this to select a
        /// pool, not to restrict access.
        query: pairs(&forms::PARAMETER, &forms::ANY_TEXT) => query, else "any query";
        /// Condition: cookies and their values, such as `{ site = "north" }`. All must match. The proxy compares them
        /// byte for byte, with quotes and escapes. A cookie that appears twice does not match. The client chooses
        /// its cookies, so use this to select a pool, not to restrict access.
        cookie: pairs(&forms::COOKIE_NAME, &forms::COOKIE_TEXT) => cookie, else "any cookie";
        /// Condition: networks that contain the client's address, such as `["10.0.0.0/8", "2001:db8::/32"]`. The address
        /// is that of the other end of the connection; the proxy ignores `X-Forwarded-For`. An IPv4 client also
        /// matches as IPv4 on an IPv6 socket. Behind address translation, all clients share one address.
        source: conditions(&forms::NETWORK) => source, else "any address";
        /// Condition: server names that the client sent in the TLS handshake (SNI), compared without case. A client
        /// without a server name, as one that connects by address, does not match. The name can differ from the
        /// Host header, and the client chooses it, so restrict access by `client` and `allow`.
        sni: conditions(&forms::SNI) => sni, else "any name, or none";
        /// Condition: certnames of verified clients. `*` matches any run of characters. For other clients the proxy
        /// tries the next route.
        certname: conditions(&forms::CERTNAME_PATTERN) => certname, else "any client";
        /// Condition: issuers of verified clients' certificates (RFC 2253), as in `[[access]]`.
        issuer: conditions(&forms::CA) => issuer, else "any issuer";
        /// Condition: extensions of verified clients' certificates and their values, such as `{ pp_role = "batch*" }`. All must
        /// match. Names and patterns are those of `[[access]]`. An extension whose value is ambiguous does not match.
        /// Agents choose their extensions in the certificate request, so use this to select a pool, not to restrict access.
        extension: pairs(&forms::EXTENSION, &forms::EXTENSION_VALUE) => extension, else "any certificate, or none";
        /// Condition: a share of the clients, such as `"5%"`, for a pool with a new version. The hash of the certname
        /// decides, or of the address if the client has no verified certname, so that the result for a client is always
        /// the same. If you raise the share, further clients match, and those that matched before still do. Routes use
        /// the same hash: after a route with `5%`, a route with `10%` gets another 5%.
        share: percent(1..=100) => share, else "all clients";
        /// Access: `verified` clients only, or `any` client if the endpoint's class allows it.
        client: word::<ClientRule>() => client;
        /// Access: certnames that may use the route. `*` matches any run of characters. A client that matches the
        /// conditions but is not listed here gets 403.
        allow: conditions(&forms::CERTNAME_PATTERN) => allow, else "every client that `client` allows";
        /// Guarded classes of endpoints that this route opens: the administration of the CA and compilation for
        /// services, to the clients that `allow` names; `renewal`, together with `[ca] renewal = true`, if renewals
        /// use this route.
        classes: words::<Class>(CLASSES) => classes;
        /// Whether the route ignores the classes of endpoints. Use it only for members that are not Puppet servers:
        /// a Puppet server behind such a route is open to every client that the route allows.
        unguarded: switch() => unguarded;
        /// Protocols that a request may upgrade to (RFC 9110, 7.8), such as `["websocket"]`. After the member's 101,
        /// the connection is a tunnel, and the proxy does not inspect what it carries. The proxy does not forward other
        /// protocols that a client requests; versions of HTTP and TLS are not allowed here. Requests to endpoints of a
        /// Puppet server never upgrade, except on an `unguarded` route.
        upgrade: texts(&forms::PROTOCOL) => upgrade;
        /// How a client stays on one member of the pool, such as `{ cookie = "PROXY" }`, `{ header = "X-Session" }` or
        /// `{ source = true }`, for members that are not Puppet servers: endpoints of a Puppet server ignore it, except
        /// on an `unguarded` route. A client stays with its member while that is available. When the member is down,
        /// ejected, drained or in maintenance, the client moves to another member. While the member is at its limit
        /// (`max`, `connections_max`), another member gets the request, but the client stays: its next request goes to
        /// its own member again. The proxy logs both moves.
        persistence: one_of(RoutePersistence::TABLE), else "none: the algorithm of the pool picks a member for each request";
        /// Name of the proxy, such as `"puppet.example.com"`, that replaces the names of the pool's members in
        /// responses, for the installer of Puppet Enterprise (`/packages`), whose text names the compiler that sends
        /// it. The proxy replaces the host names in `address` and `server_name` of every member, without case and as
        /// whole names, in the headers `Location`, `Content-Location` and `URI`, and in bodies whose `Content-Type` is
        /// `text/*`. It does not replace ports, IP addresses and names without a dot. The name is always this one and
        /// never the client's Host, because clients run the text as root. The proxy requests the whole text (no
        /// `Range`) without a coding (`Accept-Encoding: identity`), and refuses a text with a coding or a part of one
        /// with 502 (`encoded-text`). It removes the length, `ETag`, `Last-Modified` and digests of the original text.
        /// Endpoints of a Puppet server ignore this, except on an `unguarded` route.
        rewrite_member_names: text(&forms::SERVER_NAME) => rewrite_member_names, else "names stay as they are";
        /// Headers that the proxy removes from clients' requests on this route, in every spelling, in addition to the
        /// identity headers that it removes on all routes: names, or beginnings of names with `*`, such as
        /// `["X-Site-Admin", "X-Portal-*"]`. Conditions of routes and `persistence` still see them. Fields that frame a
        /// message or describe its connection cannot be removed, and the headers that the proxy adds itself stay.
        remove_headers: texts(&forms::HEADER_PATTERN) => headers.remove;
        /// Headers that the proxy sends to the members of this route although it removes them elsewhere, written as for
        /// `remove_headers`, such as `["X-Authentication"]`. For an `unguarded` route only, and not for headers that the
        /// proxy itself adds to requests of any pool. The members can read what any client of the route writes there, so
        /// keep only what they verify, as a password or token. Only the exact name is kept, in any case; a name with a
        /// `_` or `.` must be written in full. Conditions of routes do not see these headers. `remove_headers` takes
        /// precedence.
        keep_headers: texts(&forms::HEADER_PATTERN) => headers.keep;
        /// Maximum size of a request body. The proxy answers 413 to a larger one.
        body_max: size(0..=1 << 40) => body_bytes_max, else "16 KiB on enrolment, else no limit; a certificate request is never larger";
    }

    /// A path condition. Set exactly one of these keys.
    RoutePath at "routes[].path" for () {
        /// This path and everything below it, by whole segments: `/a` does not match `/ab`.
        prefix: text(&forms::PATH_SEGMENTS), else "not set";
        /// This path only.
        exact: text(&forms::PATH_SEGMENTS), else "not set";
        /// A regular expression that must match the whole path.
        regex: text(&forms::REGEX), else "not set";
    }

    /// How a client stays on one member. Set exactly one of these keys.
    RoutePersistence at "routes[].persistence" for () {
        /// Name of a cookie that the proxy issues with the response, with `Path=/`, `Secure`, `HttpOnly` and
        /// `SameSite=Lax`. Its value is opaque and made with a key in the state directory (`persistence-key`), so that it
        /// stays valid over restarts. The proxy ignores a value that it did not issue, and a cookie that appears twice.
        cookie: text(&forms::COOKIE_NAME), else "not set";
        /// Name of a header whose value selects the member. If a member becomes unavailable, only its clients move.
        /// Requests without the header, or with two of it, follow the algorithm of the pool.
        header: text(&forms::HEADER_NAME), else "not set";
        /// `true`: the client's address selects the member, as with the algorithm `source-hash`.
        source: switch(), else "not set";
    }

    /// Which certificate requests the proxy forwards to the CA: the bodies of `PUT certificate_request/NAME`, from
    /// every client and on every route that is not `unguarded`. The proxy reads each request completely, at most 16
    /// KiB, and checks it before it contacts a CA. It answers 403 with the reason to a request that breaks a rule,
    /// because an agent takes 400 for "already submitted". Whatever you set here, a request must be one PEM block
    /// with a single CN that equals NAME, and at most one attribute that requests extensions.
    Csr at "csr" for Config {
        /// Whether the proxy forwards requests that break a rule and only records them, in the access log (`cause`)
        /// and in `proscenium_certificate_requests_observed_total`. Use it to find out what your agents send before
        /// you refuse it.
        observe: switch() => csr.observe;
        /// Accepted kinds of keys.
        keys: words::<CsrKey>(CSR_KEYS) => csr.keys, else "all of them";
        /// Minimum size of an RSA key in bits. Puppet's agents create keys of 4096 bits. The proxy never accepts a
        /// key below 2048 bits.
        rsa_bits_min: count(2048..=8192) => csr.rsa_bits_min;
        allow: tables(CsrAllow::TABLE), else "the rules apply to every client";
    }

    /// Exemptions from the rules for some names.
    CsrAllow at "csr.allow[]" for pki::CsrAllow {
        /// Names in the path of the requests. `*` matches any run of characters. The client chooses this name, so
        /// review the requests that a pattern matches before the CA signs them.
        certname: texts(&forms::CERTNAME_PATTERN) => certname, required;
        /// Rules that do not apply to these names. `key`: the kind and size of the key is accepted. `signature`: the request is
        /// signed with its own key, by SHA-256 or better. `authorization`: it requests no extension below
        /// 1.3.6.1.4.1.34380.1.3, such as `pp_cli_auth` and `pp_auth_role`, which grant rights on the servers.
        /// `altnames`: it requests no name other than its own (`dns_alt_names`). `extensions`: it requests nothing
        /// else that is reserved for a CA, and no unknown critical extension.
        skip_rules: words::<CsrRule>(CSR_RULES) => skip_rules, required;
    }

    /// Requests to the CA other than enrolment, and limits for clients without a verified certificate
    /// (`anonymous_...`): agents that enroll, agents that refresh the CA's certificate and CRL each day, and
    /// unknown clients. The limits do not apply to agents with a verified certificate. An agent that enrolls sends
    /// four requests, and then two every two minutes until its certificate is signed. The defaults let 500 agents
    /// behind one address enroll within ten minutes.
    Ca at "ca" for Config {
        /// Whether the proxy answers requests for the CA's certificate and CRL (`certificate/ca`,
        /// `certificate_revocation_list/ca`, also in the layout of Puppet 0.25 to 3) from copies of the CA's
        /// responses, also while the CA is down. Agents request both each day; with this, the CA gets one request
        /// per interval of `[trust.fetch]`, which must be enabled. The proxy serves only CRLs that it fetched from
        /// the CA, and certificates of `[trust] ca`. The CA answers everything else.
        edge_answers: switch() => ca.edge_answers, else "`true` if `[trust.fetch]` is enabled, else `false`";
        /// Maximum age of a copy, from when the CA last confirmed it. The `Age` header of the response contains it.
        /// The proxy forwards the request to the CA if the copy is older. With 24 h, an agent's daily refresh succeeds even
        /// if the CA is down for a night.
        edge_answers_age_max: duration(seconds(1)..=EDGE_AGE_MAX) => ca.edge_answers_age_max;
        /// Whether verified agents may renew their certificates through the proxy (`POST certificate_renewal`,
        /// which agents of Puppet 8 send). With `false` the answer is 404. The CA must be Puppet Server 8.2.1 or
        /// later with this proxy's certname in `infra_inventory.txt`; other versions and other CAs renew the proxy's own
        /// certificate, and some revoke the former one. The proxy therefore sends a GET of `certificate/ca` to the CA
        /// server before each renewal, and sends the renewal only if the response has the header `X-Puppet-Version`, as
        /// all responses of Puppet Server have. Otherwise the answer to the agent is 404, with an alarm (see `kind`). The
        /// proxy forwards a response to a renewal only if it is a certificate with the agent's subject and key. At the
        /// first other response it answers 502, raises an alarm and stops renewals until the next `proscenium reload`.
        renewal: switch() => ca.renewal;
        /// The software of the CA server. `puppet-server`: Puppet Server or OpenVox Server; the proxy then sends
        /// renewals without the GET of `certificate/ca` (see `renewal`). Set it only if a front end of the CA removes
        /// the header `X-Puppet-Version`. `other`: another CA, which renews the certificate of the connection;
        /// `renewal` must be `false` then.
        kind: word::<CaKind>() => ca.kind, else "the proxy finds out before each renewal";
        /// Maximum number of requests per second, over all addresses. The proxy answers more with 429 and a
        /// `Retry-After` that spreads them. Agents wait that long. Agents 5.3.1 to 6.13, 7.26 and later, and 8.2 and
        /// later then send the request again. Agents 6.14 to 7.25 and 8.0 to 8.1 end the run with `attempt to read
        /// body out of block`; while they have no certificate, they start again after `waitforcert`.
        anonymous_rate: count(1..=100_000) => ca.rates.total.per_second;
        /// Maximum number of requests at once, after a quiet period.
        anonymous_burst: count(1..=1_000_000) => ca.rates.total.burst;
        /// Maximum number of requests per second from one IPv4 address or one IPv6 /64. Behind address translation,
        /// all agents share this limit.
        anonymous_rate_per_address: count(1..=100_000) => ca.rates.address.per_second;
        /// Maximum number of requests at once from one address, after a quiet period.
        anonymous_burst_per_address: count(1..=1_000_000) => ca.rates.address.burst;
        /// Maximum number of requests that the CA handles at once, slow downloads included. The proxy answers more
        /// with 503 and a `Retry-After`, which agents treat as with 429. One address (one IPv6 /64) gets at most as
        /// many as are still free: half of them alone, a second address half of the rest. The proxy never uses more
        /// than three quarters of what a member of the pool accepts (`max`, `connections_max`); the rest is
        /// reserved for requests with a certificate, so that a flood cannot block renewals. Nothing is reserved if
        /// a member accepts one request at a time. Agents refresh the CA's certificate and CRL without a
        /// certificate of their own; with `edge_answers` the proxy serves them also during a flood.
        anonymous_in_flight_max: count(1..=100_000) => ca.anonymous_in_flight_max;
    }

    /// A rule in addition to the classes of endpoints and the routes. All conditions must match. After a route has
    /// matched, the first rule that matches decides. If none matches, the request is treated as without rules.
    /// Certname, issuer and extensions come from a verified certificate; a client without one never matches such a
    /// condition. An extension whose value is ambiguous (not a string of UTF-8 or ASCII, invalid DER, the same
    /// extension twice, or more than 1024 bytes) matches no condition of a rule that allows, and every condition of
    /// a rule that refuses.
    Access at "access[]" for AccessRuleSettings {
        /// Name in access records, metrics, refusals and `explain`.
        name: text(&forms::NAME) => name, required;
        /// `refuse` answers 403 and names the rule. `allow` skips the later rules, and opens the classes
        /// `own-documents`, `services`, `ca-administration` and `server-administration` that `class` names to the
        /// clients of the rule; such a rule must have `certname` or `extension`. For `server-administration`
        /// (`DELETE /puppet-admin-api/v1/environment-cache` and `jruby-pool`, which reach one member of the pool), it must
        /// have complete certnames, and no route opens that class. What `client` and `allow` of the route require still
        /// applies. No rule opens an endpoint that the proxy never forwards, and none opens anything to a client
        /// without a verified certificate.
        action: word::<RuleAction>() => action, required;
        /// Condition: certnames. `*` matches any run of characters.
        certname: conditions(&forms::CERTNAME_PATTERN) => certname, else "any client";
        /// Condition: extensions of the certificate and their values, such as `{ pp_role = "database", pp_environment =
        /// "prod*" }`. Name an extension as Puppet does, as in `[identity.extensions]`, or by its OID. All must
        /// match. Values are compared with their case; `*` matches any run of characters. An agent chooses the
        /// extensions of its certificate request, and `[csr]` accepts all except those below 1.3.6.1.4.1.34380.1.3
        /// (`pp_auth_role`, `pp_cli_auth`). If your CA signs automatically, open a class by these two only.
        extension: pairs(&forms::EXTENSION, &forms::EXTENSION_VALUE) => extension, else "any certificate, or none";
        /// Condition: the CA that signed the certificate, by distinguished name (RFC 2253). It is the intermediate
        /// CA if there is one.
        issuer: conditions(&forms::CA) => issuer, else "any issuer";
        /// Condition: networks that contain the client's address, which is that of the other end of the connection.
        source: conditions(&forms::NETWORK) => source, else "any address";
        /// Condition: names of routes. A built-in route is named `builtin:` and its class, such as `"builtin:files"`.
        route: conditions(&forms::ROUTE) => route, else "any route";
        /// Condition: classes of endpoints.
        class: condition_words::<Class>(ACCESS_CLASSES) => class, else "any class; none is opened";
        /// Whether the rule only logs what it would refuse, in access records, metrics and events, and the later
        /// rules apply. Use it with `refuse` only.
        observe: switch() => observe;
    }

    /// One line for each request and for each refused handshake. To write several logs, each with its own path and
    /// format, repeat the table as `[[access_log]]`.
    AccessLog at "access_log" for config::AccessLog {
        /// `"stdout"`, a file, or a log daemon of this machine: `"syslog"` (at `/dev/log`), `"journal"` (at
        /// `/run/systemd/journal/socket`), or at another socket `"syslog:/path"` or `"journal:/path"`. A reload and
        /// `proscenium reopen-logs` open a file again. A daemon gets each line as a record of priority `info`; the
        /// journal also gets each field by its name, such as `PROSCENIUM_CERTNAME`. The proxy drops and counts lines
        /// that the daemon does not accept within moments.
        path: text(&forms::OUTPUT) => output;
        /// Syslog facility of the lines.
        facility: word::<Facility>(), default Facility::default();
        /// `combined` writes Apache's combined format with the certname as user, and more fields after it. `json`
        /// writes one object per line. A string with directives is a format of Apache's `LogFormat`, with `%h` or
        /// `%a`, `%l`, `%u` (the certname), `%t` (UTC), `%r`, `%m`, `%U`, `%H`, `%s` or `%>s`, `%b`, `%B`, `%D`,
        /// `%{Referer}i`, `%{User-Agent}i`, `%{Host}i`, `%{X-Request-Id}o`, `%{SSL_PROTOCOL}x`, `%{SSL_CIPHER}x`,
        /// `%{SSL_TLS_SNI}x`, `%{SSL_CLIENT_S_DN_CN}x`, `%{SSL_CLIENT_VERIFY}x` and `%%`.
        format: text(&forms::LOG_FORMAT) => settings.format;
        /// Maximum number of lines that wait to be written, about 4 MB by default. The proxy drops and counts more,
        /// so that no request waits for a disk.
        queue_max: count(1..=10_000_000) => settings.queue_max;
    }

    /// What the proxy logs about itself: starts, reloads, members that go up and down. `run --log` sets how much.
    Events at "events" for Config {
        /// `"stderr"` or a log daemon of this machine, as for the access log: `"syslog"`, `"journal"`, or either
        /// with a socket. The priority is that of the event. While the daemon is unavailable, events go to standard
        /// error. While it is full, the proxy drops and counts them. Errors that prevent a start always go to
        /// standard error.
        path: text(&forms::EVENT_OUTPUT) => events;
        /// Syslog facility of the events.
        facility: word::<Facility>(), default Facility::default();
    }

    /// The socket that `reload` and other commands use.
    Admin at "admin" for Config {
        /// Path of the Unix socket. The file has mode 0600. With a group it has mode 0666, and the proxy refuses requests of
        /// other accounts.
        socket: text(&forms::SOCKET) => admin.socket;
        /// Group whose members may read the status, metrics and lists, but change nothing: a name that the machine's name
        /// services know, or a number. The proxy checks the account of each connection.
        read_group: text(&forms::GROUP) => admin.read_group, else "none: only root and the account of the proxy";
        /// Group whose members may also change the running proxy: drain, block, reload and so on.
        operate_group: text(&forms::GROUP) => admin.operate_group, else "none: only root and the account of the proxy";
        /// File to which each change that an operator makes is appended as a line of JSON: time, account, command, subject,
        /// reason, state before and after, and result. The proxy opens it for each line.
        audit_log: text(&forms::PATH) => admin.audit_log, else "`audit.log` in the state directory";
    }

    /// A listener for metrics and readiness, beside the admin socket: plain HTTP, `GET /metrics`, `GET /ready` and
    /// `GET /live`. Without this table there is none.
    Metrics at "metrics" for Config {
        /// IP address and port. There is no TLS and no authentication: every client that can connect can read the metrics,
        /// which have names of pools and members and no certname. Use a loopback address, or restrict the port with a packet
        /// filter; another address is a warning.
        address: text(&forms::METRICS_ADDRESS) => metrics.address, else "none: metrics are read over the admin socket";
    }

    /// State that survives a restart.
    State at "state" for Config {
        /// Directory for state that survives a restart, as blocks and fetched CRLs. The proxy creates it with mode
        /// 0700 if its parent exists. Only its owner may have write access. If the directory is unusable, the proxy
        /// works, raises an alarm, and loses this state at a restart. A change applies after a restart. A service
        /// manager that creates the directory (systemd's `StateDirectory=`) passes it in the environment.
        directory: text(&forms::PATH) => state_directory, else "the first directory of `$STATE_DIRECTORY` if that is set, else `/var/lib/proscenium`";
    }
}

/// Words of the classes that a route can open.
const CLASSES: &[&str] = &[
    "enrolment",
    "renewal",
    "ca-administration",
    "own-documents",
    "files",
    "filebucket",
    "services",
    "status",
];

/// Words of the kinds of keys that a certificate request may have.
const CSR_KEYS: &[&str] = &["rsa", "ecdsa-p256", "ecdsa-p384", "ecdsa-p521", "ed25519"];

/// Words of the rules that `skip_rules` can name.
const CSR_RULES: &[&str] = &[
    "key",
    "signature",
    "authorization",
    "altnames",
    "extensions",
];

/// Words of the classes that an access rule can name: all except `never`.
const ACCESS_CLASSES: &[&str] = &[
    "enrolment",
    "renewal",
    "ca-administration",
    "own-documents",
    "files",
    "filebucket",
    "services",
    "server-administration",
    "status",
    "unknown",
];

#[cfg(test)]
mod tests {
    use routing::Class;

    #[test]
    fn the_words_of_certificate_requests_are_those_of_their_rules() {
        assert_eq!(pki::CsrKey::ALL.map(pki::CsrKey::as_str), super::CSR_KEYS);
        let rules = pki::CsrRule::LIFTABLE.map(pki::CsrRule::as_str);
        assert_eq!(rules, super::CSR_RULES);
    }

    #[test]
    fn the_words_of_classes_are_those_of_the_routes() {
        let openable = Class::ALL.into_iter().filter(|class| {
            !matches!(
                class,
                Class::ServerAdministration | Class::Never | Class::Unknown
            )
        });
        let words: Vec<_> = openable.map(Class::as_str).collect();
        assert_eq!(words, super::CLASSES);
        let decided = Class::ALL
            .into_iter()
            .filter(|class| *class != Class::Never);
        let words: Vec<_> = decided.map(Class::as_str).collect();
        assert_eq!(words, super::ACCESS_CLASSES);
    }
}
