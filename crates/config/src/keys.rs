//! Every setting of the file: the one place where a key is declared.

use std::time::Duration;

use crate::{
    forms,
    schema::{Absent, Key, Shape, Table, settings},
};

const fn milliseconds(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// No timeout is longer: one of a day is a mistake of the unit.
const DAY: Duration = seconds(86_400);

/// Older than that no list of revocations should be handed out.
const EDGE_AGE_MAX: Duration = seconds(7 * 86_400);

/// What a key of rustls's opens for at the least, halved: ours is needed for two lifetimes.
const SESSION_LIFETIME_MAX: Duration = seconds(6 * 3600);

settings! {
    /// One TOML file, `/etc/proscenium/proscenium.toml` or the one named by `--config`.
    /// Only a listener and the pools have to be written; everything else has a default that is safe.
    ROOT at "" {
        /// Directory of the Puppet agent whose certificate, key, CA bundle and CRL are used where `[tls]`, `[trust]`,
        /// `[upstream.tls]` and `[pools.NAME.tls]` name none. `--ssldir` overrides it.
        /// The two places tried are those of Puppet's own packages and of Debian's.
        "ssldir": Shape::Text(&forms::PATH),
            Means("`/etc/puppetlabs/puppet/ssl` if it exists, else `/var/lib/puppet/ssl`");
        /// Name of the certificate in `ssldir`: `certs/NAME.pem` with `private_keys/NAME.pem`. `--certname` overrides it.
        "certname": Shape::Text(&forms::CERTNAME),
            Means("the only certificate in `ssldir` that has a key, else the machine's full name");
        /// Worker threads, each with a runtime and upstream connections of its own.
        /// One to a core is what measured best; more only take turns.
        "workers": Shape::Count { min: 1, max: 1024 }, Means("one to a core");
        /// Whether the routes of a Puppet estate follow the configured ones: `/puppet-ca` to the pool `ca`, `/puppet` to
        /// `compilers`, files of the filebucket to `filebucket` if there is such a pool.
        /// With them, pools named `ca` and `compilers` must exist.
        "builtin_routes": Shape::Switch, Value("true");
        /// Time that running exchanges have to finish after SIGTERM; what runs then is cut and counted.
        /// Catalogs of most estates compile well within a minute, and service managers wait 90 s before they kill.
        "drain_grace": Shape::Duration { min: seconds(0), max: DAY }, Value("\"60s\"");
        "listeners": Shape::Named(&LISTENER), Means("nothing to listen on, which is an error");
        "tls": Shape::Table(&TLS), Means("the agent's own certificate");
        "trust": Shape::Table(&TRUST), Means("the agent's own CA bundle and CRL");
        "materials": Shape::Table(&MATERIALS), Means("the defaults below");
        "identity": Shape::Table(&IDENTITY), Means("the defaults below");
        "upstream": Shape::Table(&UPSTREAM), Means("the defaults below");
        "pools": Shape::Named(&POOL), Means("no pools");
        "routes": Shape::Tables(&ROUTE), Means("the built-in routes alone");
        "csr": Shape::Table(&CSR), Means("the defaults below");
        "ca": Shape::Table(&CA), Means("the defaults below");
        "access": Shape::Tables(&ACCESS), Means("what the classes of endpoints and the routes say, alone");
        /// Whether all rules of `[[access]]` only tell what they would refuse: `observe = true` for each of them. What a rule
        /// allows is allowed all the same, and what classes of endpoints and routes refuse stays refused.
        "access_observe": Shape::Switch, Value("false");
        "access_log": Shape::Table(&ACCESS_LOG), Means("the defaults below");
        "events": Shape::Table(&EVENTS), Means("the defaults below");
        "admin": Shape::Table(&ADMIN), Means("the defaults below");
        "state": Shape::Table(&STATE), Means("the defaults below");
    }

    /// An address where agents are accepted. NAME stands in records and metrics.
    LISTENER at "listeners.NAME" {
        /// Address and port to bind. Agents use port 8140. No two listeners may share one.
        "address": Shape::Text(&forms::LISTEN), Refused;
        /// Whether a client must show a certificate. `optional` asks for one and serves enrolment to those that have none
        /// yet; `required` ends the handshake with an alert.
        "client_cert": Shape::Word(&["optional", "required"]), Value("\"optional\"");
        /// What becomes of a client whose certificate is refused. `explain` answers every request with a 403 that says what
        /// is wrong with which certificate and what to run; `abort` ends the handshake with a TLS alert, which an agent
        /// shows without a reason; `forward` sends `X-Client-Verify: FAILED:reason` upstream on enrolment and on routes
        /// with `client = "any"`, and answers 403 elsewhere.
        "on_invalid": Shape::Word(&["explain", "abort", "forward"]), Value("\"explain\"");
        /// Whether a client has to ask for a name (SNI) that one of the certificates is good for. One that asks for another
        /// name gets the alert `unrecognized_name` in place of a certificate, one that asks for none `missing_extension`.
        /// Otherwise both are shown the first certificate whose signature they can check. Agents that know their server by
        /// an address alone ask for no name.
        "sni_strict": Shape::Switch, Value("false");
        /// Certificates with their keys for this listener alone, in place of those of `[tls]`.
        "certificates": Shape::Tables(&CREDENTIAL), Means("those of `[tls]`");
        /// Most connections at once, over all workers. At about 30 KiB each the default takes 600 MB.
        "connections_max": Shape::Count { min: 1, max: 1_000_000 }, Value("20000");
        /// Most handshakes in flight at once, over all workers. They cost most of the processor time; more at once only
        /// makes each of them later.
        "handshakes_max": Shape::Count { min: 1, max: 100_000 }, Value("512");
        /// Time allowed for a TLS handshake. It takes two round trips and a few milliseconds of an agent's processor; 10 s is
        /// enough for the slowest of them and ends a client that only holds the place.
        "handshake_timeout": Shape::Duration { min: milliseconds(100), max: DAY }, Value("\"10s\"");
        /// Time from the first byte of a request to the end of its head, and of what HTTP/2 begins with. A head fits one packet or two; who takes longer
        /// than 30 s sends it slowly on purpose.
        "head_timeout": Shape::Duration { min: milliseconds(100), max: DAY }, Value("\"30s\"");
        /// Time that a connection may stand without a request. An agent uses a connection again for 4 s after an answer
        /// (`http_keepalive_timeout` in Puppet's defaults.rb) and never repeats a request that a closing connection lost:
        /// never under 5 s. 15 s spares the next handshake of a run that pauses between requests.
        "idle_timeout": Shape::Duration { min: seconds(5), max: DAY }, Value("\"15s\"");
        /// Time that a client may take no byte of an answer that waits for it. An agent that works on what it has got does
        /// not read for seconds, not for a minute.
        "write_timeout": Shape::Duration { min: milliseconds(100), max: DAY }, Value("\"60s\"");
        /// Most bytes of a request's head: request line and header fields.
        /// Agents send under 2 KiB; a Puppet server takes 8 KiB.
        "head_max": Shape::Size { min: 8 << 10, max: 1 << 20 }, Value("\"64KiB\"");
        /// Whether HTTP/2 is offered (ALPN `h2`). Members are spoken to in HTTP/1.1 either way. Agents ask for no protocol
        /// and speak HTTP/1.1; other clients send several requests at once on one connection.
        "http2": Shape::Switch, Value("true");
        /// Most requests at once on one HTTP/2 connection. 100 is the least that RFC 9113 (6.5.2) recommends.
        "streams_max": Shape::Count { min: 1, max: 10_000 }, Value("100");
    }

    /// What we show to clients.
    TLS at "tls" {
        /// Certificates with their keys. Of several, those come first that are good for the name the client asks for (SNI),
        /// by their subjectAltName alone: the name itself, then a wildcard. Of these the first is shown whose signature the
        /// client can check: an ECDSA certificate before an RSA one for the same name makes a handshake five times cheaper.
        /// Where none is good for the name, all are looked at in order.
        "certificates": Shape::Tables(&CREDENTIAL), Means("that of `certname` in `ssldir`");
        /// Time after a full handshake in which a client may resume its session, however often it does. The keys of tickets
        /// are made anew as often, in memory alone, and gone after twice that time. Who resumes is judged anew each time:
        /// this bounds how long nobody asks for another proof of the key. Sessions outlast reloads, never a restart.
        "session_lifetime": Shape::Duration { min: seconds(1), max: SESSION_LIFETIME_MAX }, Value("\"6h\"");
    }

    /// A certificate and its key; `[[listeners.NAME.certificates]]` has the same keys.
    CREDENTIAL at "tls.certificates[]" {
        /// PEM file with the certificate and the intermediate certificates that clients do not have.
        "chain": Shape::Text(&forms::PATH), Refused;
        /// PEM file with the private key. Others than its owner and group may not have any right on it; nothing relaxes that.
        "key": Shape::Text(&forms::PATH), Refused;
    }

    /// Whose certificates are believed, and what revokes them.
    TRUST at "trust" {
        /// PEM files with CA certificates, root and intermediates; of a directory every file counts.
        /// An intermediate without its root is trusted by itself, and no list can revoke it: the start warns of that.
        /// One whose root is there and cannot be used as a CA is not trusted.
        "ca": Shape::TextOrTexts(&forms::PATH), Means("`certs/ca.pem` in `ssldir`");
        /// PEM files with revocation lists; of a directory every file counts, whatever its name.
        /// The agent's own copy grows old when no agent runs on this machine; the start and `check` say how old it is.
        /// Where `ca` is set, this one or `unchecked` has to be set too: a list belongs to its CA.
        /// Where this is not set, the agent's copy is only what is begun with: `[trust.fetch]` asks the CA.
        "crl": Shape::TextOrTexts(&forms::PATH), Means("`crl.pem` in `ssldir`");
        /// Most intermediate certificates between a client's certificate and a root. Puppet's own CA has one.
        /// Six is what the path building library follows.
        "depth": Shape::Count { min: 0, max: 6 }, Value("6");
        "fetch": Shape::Table(&FETCH), Means("the defaults below");
        /// Issuers whose certificates are accepted although no revocation list of theirs is there, each by its
        /// distinguished name (RFC 2253); `["*"]` is all of them. A list that is there is used all the same.
        "unchecked": Shape::Texts(&forms::ISSUER), Value("[]");
        /// CAs whose signatures of another time are admitted, of clients and of members, each by its distinguished name
        /// (RFC 2253): RSA with SHA-1, and RSA keys of 1024 to 2047 bits, its own and those that it has certified. Such
        /// signatures can be forged by who spends enough on it: name a CA here only until it is replaced. Others' are refused
        /// as ever, also on the same path.
        "legacy_signatures": Shape::Texts(&forms::CA), Value("[]");
        /// What a revocation list past its next update (RFC 5280, 5.1.2.5) does. `warn` judges by it and raises an alarm; `reject` refuses
        /// clients of its issuer. An expired list still names everyone it named; refusing all would stop the estate.
        /// `grace:DURATION` does the one for so long after the next update, `grace:72h` say, then the other.
        "crl_expired": Shape::Text(&forms::CRL_EXPIRED), Value("\"warn\"");
        /// Which certificates of a path are looked up in the list of whoever issued them: all, or with `leaf` the client's own
        /// alone, as Puppet's `certificate_revocation` has it. With `leaf` no list of a root is needed, and nobody notices when
        /// it revokes the CA below.
        "revocation": Shape::Word(&["chain", "leaf"]), Value("\"chain\"");
        /// Most connections of revoked clients closed in one second after the trust has changed, so that thousands do not
        /// come back at once.
        "revoked_close_rate": Shape::Count { min: 1, max: 1_000_000 }, Value("1000");
        /// Most chains of certificates that are remembered once their signatures have been checked, about 3 kB each, so that
        /// the next connection of the same agent does not have them checked again. Dates and lists are looked up each time;
        /// a change of `ca` or of a policy forgets all. 0 remembers none.
        "remembered_max": Shape::Count { min: 0, max: 10_000_000 }, Value("16384");
        "issuers": Shape::Tables(&TRUST_ISSUER), Means("the policies above for every issuer");
    }

    /// The policy for what one issuer has signed; what is left out here is as in `[trust]`. A name that no CA of the bundle
    /// has is an alarm.
    TRUST_ISSUER at "trust.issuers[]" {
        /// The issuer, by its distinguished name (RFC 2253) as `proscenium status` prints it.
        "name": Shape::Text(&forms::CA), Refused;
        /// What its revocation list does past its next update.
        "crl_expired": Shape::Text(&forms::CRL_EXPIRED), Means("`[trust] crl_expired`");
        /// Whether its certificates are accepted while no revocation list of its is there. With `false` one is needed,
        /// whatever `[trust] unchecked` says.
        "unchecked": Shape::Switch, Means("whether `[trust] unchecked` names it");
        /// With `leaf` its list is asked for clients' certificates alone, not for those of CAs below it.
        "revocation": Shape::Word(&["chain", "leaf"]), Means("`[trust] revocation`");
    }

    /// Revocation lists from the CA itself: `GET /puppet-ca/v1/certificate_revocation_list/ca` to the members of the pool
    /// `ca`, in order. A list is put in force if a CA of the bundle has signed it and it takes nothing back: its number is
    /// no lower than that of the list in force, and it names all that this one names. Otherwise the one in force stays,
    /// with an alarm, until `proscenium crl accept`. What is in force is kept in the state directory for the next start.
    FETCH at "trust.fetch" {
        /// Whether lists are fetched, beside those in `crl`; of each CA the newest counts.
        "enabled": Shape::Switch, Means("`true` where `[trust] crl` is not set and there is a pool `ca`, else `false`");
        /// Longest time between two fetches; `proscenium crl fetch` asks at once. A CA that has nothing new answers in a few bytes
        /// (304), so a minute costs nothing and is how long a revoked agent may go on.
        "interval": Shape::Duration { min: seconds(1), max: DAY }, Value("\"60s\"");
        /// Time by which the interval is cut short at random, so that a fleet of proxies does not ask in step; half of
        /// the interval at most.
        "jitter": Shape::Duration { min: seconds(0), max: DAY }, Value("\"6s\"");
        /// Time for one fetch from one member: connecting, head and body.
        "timeout": Shape::Duration { min: milliseconds(100), max: DAY }, Value("\"30s\"");
        /// Time after which the list is asked for whole although nothing seems to have changed. Dates in HTTP have whole
        /// seconds, and a file that was put back may have an old one.
        "whole_interval": Shape::Duration { min: seconds(1), max: DAY }, Value("\"1h\"");
        /// Most bytes of an answer. A list with a million entries has 55 MB.
        "body_max": Shape::Size { min: 1 << 10, max: 1 << 30 }, Value("\"64MiB\"");
    }

    /// Files that this one names (certificates, keys, CA bundles, revocation lists) are taken by themselves when they
    /// change on disk. Those that are not right are not taken: the last good ones stay in force, with an alarm.
    /// The configuration's own text is read on a reload only.
    MATERIALS at "materials" {
        /// How a change is noticed. `notify`: the kernel tells (inotify), and every `interval` the files are looked at
        /// besides, for what it cannot tell: network file systems, directories that this process may not list. `poll`: they
        /// are looked at every `interval` alone. `off`: only a reload reads them.
        "watch": Shape::Word(&["notify", "poll", "off"]), Value("\"notify\"");
        /// Time between two looks at the files. A look opens none of them; it costs microseconds.
        "interval": Shape::Duration { min: milliseconds(10), max: DAY }, Value("\"10s\"");
        /// Time that changed files have to stand still before they are read: whoever writes one in place takes less.
        "settle": Shape::Duration { min: milliseconds(10), max: DAY }, Value("\"1s\"");
        /// Most time that a change is waited for. A file that never stands still is read then, and what is not right by then
        /// is an alarm: a half-written list, a key whose certificate has not come. Tools that renew both take seconds.
        "settle_max": Shape::Duration { min: milliseconds(10), max: DAY }, Value("\"30s\"");
    }

    /// How a certificate's subject becomes an identity.
    IDENTITY at "identity" {
        /// Which subjects are accepted. `puppet`: exactly one CN, in the Puppet CA's alphabet. `single-cn`, for external
        /// CAs: other attributes and upper case may stand beside the one CN.
        "subject": Shape::Word(&["puppet", "single-cn"]), Value("\"puppet\"");
        /// How the subject is spelled. `rfc2253`: `CN=web01,O=Example`, which every Puppet server since 3 reads. `cn-last`:
        /// `O=Example,CN=web01`, for Mongrel and Rack of Puppet 0.23 to 2.7, which take all that follows `CN=` for the
        /// name. `openssl`: `/O=Example/CN=web01`, for what reads nothing else. For a subject that is one CN in the
        /// Puppet CA's alphabet they differ in one slash. With the last two a CN that has a `;`, `=`, `<`, `>` or `#` is
        /// refused, on every pool: their readers undo escapes differently.
        "dn_format": Shape::Word(DN_FORMATS), Value("\"rfc2253\"");
        /// Name of the header that tells the subject, or a list of names that all tell it, as `["X-Client-DN",
        /// "X-SSL-Subject"]`. Puppet's `ssl_client_header = HTTP_X_SSL_SUBJECT` reads `X-SSL-Subject`.
        /// Whatever a client sends under this or any other of these names, in any spelling, is removed on every route.
        "dn_header": Shape::TextOrTexts(&forms::IDENTITY_HEADER), Value("\"X-Client-DN\"");
        /// Name of the header that tells the verdict. Puppet's `ssl_client_verify_header` reads it; Puppet Server with
        /// `allow-header-cert-info` reads the default name and no other.
        "verify_header": Shape::Text(&forms::IDENTITY_HEADER), Value("\"X-Client-Verify\"");
        /// Name of the header that tells the certificate, for pools with `forward_cert = true`.
        "cert_header": Shape::Text(&forms::IDENTITY_HEADER),
            Means("`X-Client-Cert`, with `cert_format = \"one-line\"` `X-SSL-Client-Cert`: where Puppet reads each");
        /// How the certificate is written into a header. `escaped`: percent-escaped PEM, for Puppet Server. `one-line`: PEM
        /// with blanks for newlines, for Rack (Passenger, Unicorn) of Puppet 4.6 to 5.
        "cert_format": Shape::Word(CERT_FORMATS), Value("\"escaped\"");
        /// Names for extensions that Puppet has none for, with their OIDs, as `{ site = "1.3.6.1.4.1.34380.1.2.7" }`: for
        /// `extension` in `[[access]]`. Those of `custom_trusted_oid_mapping.yaml` belong here.
        "extensions": Shape::Pairs(&forms::EXTENSION_NAME, &forms::OID), Means("Puppet's own names alone");
    }

    /// How this pool's servers are told who the client is, where they are older than the others or set up otherwise.
    POOL_IDENTITY at "pools.NAME.identity" {
        /// As in `[identity]`.
        "dn_format": Shape::Word(DN_FORMATS), Means("that of `[identity]`");
        /// As in `[identity]`.
        "dn_header": Shape::TextOrTexts(&forms::IDENTITY_HEADER), Means("that of `[identity]`");
        /// As in `[identity]`.
        "verify_header": Shape::Text(&forms::IDENTITY_HEADER), Means("that of `[identity]`");
        /// As in `[identity]`.
        "cert_header": Shape::Text(&forms::IDENTITY_HEADER),
            Means("that of `[identity]`, which follows this pool's `cert_format` if it is not set");
        /// As in `[identity]`.
        "cert_format": Shape::Word(CERT_FORMATS), Means("that of `[identity]`");
    }

    /// Connections to members. What a pool says itself goes before it.
    UPSTREAM at "upstream" {
        /// Time allowed for finding the name, connecting and shaking hands. An agent waits 2 min for a connection
        /// (`http_connect_timeout`); with 5 s there is time to try the other members.
        "connect_timeout": Shape::Duration { min: milliseconds(10), max: DAY }, Value("\"5s\"");
        /// Time from the last byte of a request to the first of its answer, anew for each attempt. An agent waits 10 min
        /// for a catalog (`http_read_timeout` in Puppet's defaults.rb): with more than that it is the agent that gives up first, and its error is the true one.
        "first_byte_timeout": Shape::Duration { min: milliseconds(10), max: DAY }, Value("\"11m\"");
        /// Time without a byte of a body, in either direction. Bodies come from a disk or from memory: a minute of silence
        /// is a peer that has gone.
        "idle_timeout": Shape::Duration { min: milliseconds(10), max: DAY }, Value("\"60s\"");
        /// Time without a byte in either direction of a tunnel, which is what a connection becomes after an upgrade.
        /// Websockets are pinged every minute or two where they have to live; a quarter of an hour of silence is a peer that
        /// has gone.
        "tunnel_idle_timeout": Shape::Duration { min: milliseconds(10), max: DAY }, Value("\"15m\"");
        /// Time that an unused connection is kept. Jetty closes one after 30 s (`idle-timeout-milliseconds` in
        /// webserver.conf); ours has to be shorter, or requests are
        /// lost on connections that are just closing.
        "keepalive": Shape::Duration { min: seconds(0), max: DAY }, Value("\"20s\"");
        /// Most connections to one member, over all workers. A Puppet server has 200 threads
        /// (`max-threads` in webserver.conf), and a request that waits for a JRuby instance holds one.
        "connections_max": Shape::Count { min: 1, max: 100_000 }, Value("128");
        /// Most attempts of one request, each at another member where there is one. A catalog, a report or a write to the CA is never sent twice, whatever this says.
        "attempts_max": Shape::Count { min: 1, max: 10 }, Value("3");
        /// Most bytes of a request body that are read and dropped after an early answer, before the connection is closed:
        /// a client that is still sending would otherwise not see the answer.
        "discard_max": Shape::Size { min: 0, max: 1 << 30 }, Value("\"4MiB\"");
        /// Time allowed for that.
        "discard_timeout": Shape::Duration { min: milliseconds(10), max: seconds(300) }, Value("\"5s\"");
        "tls": Shape::Table(&MEMBER_TLS), Means("what is used towards clients");
    }

    /// TLS to members; `[pools.NAME.tls]` has the same keys and goes before `[upstream.tls]`.
    MEMBER_TLS at "upstream.tls" {
        /// PEM file with the certificate that members see. Set together with `key`.
        "chain": Shape::Text(&forms::PATH), Means("that of the first of `[tls] certificates`, which is the agent's own if not set");
        /// PEM file with its key.
        "key": Shape::Text(&forms::PATH), Means("the key of that certificate");
        /// PEM files or directories with the CA certificates that members are verified against.
        "ca": Shape::TextOrTexts(&forms::PATH), Means("`[trust] ca`");
        /// PEM files or directories with the revocation lists for members' certificates. Where `ca` is another one than
        /// that of the agents, name its list here, or that CA in `[trust] unchecked`.
        "crl": Shape::TextOrTexts(&forms::PATH), Means("`[trust] crl`");
        /// Whether a member's certificate without any subjectAltName, as Puppet 3 to 5 sign them, is good for the one CN of its
        /// subject: the whole of it, no wildcard, no address. Otherwise such a member is refused, and the error says so.
        /// The chain is verified all the same.
        "name_from_cn": Shape::Switch, Means("`false`");
    }

    /// Members that do the same work. The built-in routes use the pools `ca`, `compilers` and, if there is one,
    /// `filebucket`. NAME stands in records, metrics and routes.
    POOL at "pools.NAME" {
        /// Servers: `"host:port"`, `"unix:/path"`, or a table. At least one.
        /// A name that cannot be resolved is no error: that member is down, and is asked for again.
        "members": Shape::TextsOrTables(&forms::MEMBER, &MEMBER), Refused;
        /// Protocol to the members. `https` shows our certificate and verifies theirs. `http` is for loopback and Unix
        /// sockets: whoever can reach such a server writes identities at will.
        "scheme": Shape::Word(&["https", "http"]), Value("\"https\"");
        /// How far plain HTTP may reach: with `"trusted-network"` to any address. Only where nobody else can put a byte on
        /// the path, a WireGuard link between two machines for instance. A name other than `localhost` counts as
        /// another machine, since what it stands for can change. Held by address at each dial.
        "plaintext": Shape::Word(&["trusted-network"]), Means("loopback addresses and Unix sockets only");
        /// How a member is picked. `least-connections`: the fewest requests in flight by weight, over all workers; requests
        /// differ a hundredfold in length. `round-robin`: in turn, by weight. `random`: of two members drawn by weight the
        /// less busy one, where several proxies share the members and do not know of each other's requests. `source-hash`: by
        /// the client's address, so that a client comes back to its member; one that leaves moves its own clients alone, and
        /// all behind one address are one client.
        "algorithm": Shape::Word(&["least-connections", "round-robin", "random", "source-hash"]), Value("\"least-connections\"");
        /// Whether `X-Client-Cert` goes with the request, beside `X-Client-Verify: SUCCESS` only. It goes to the CA with
        /// renewals (`[ca] renewal`), whatever this says, and never otherwise.
        /// Without it trusted facts (`$trusted['extensions']`) are empty, and the agents' runs succeed all the same.
        "forward_cert": Shape::Switch, Value("true");
        /// Most bytes of the value of `X-Client-Cert`. Jetty reads heads of 8 KiB, and all else of an agent's takes less than
        /// one; a certificate with 200 alternative names takes ten. Where `request-header-max-size` of the servers is larger,
        /// this one may be too.
        "forward_cert_max": Shape::Size { min: 1 << 10, max: 64 << 10 }, Value("\"7KiB\"");
        /// What becomes of a request whose `X-Client-Cert` would be larger. `refuse`: it is answered 431 with the reason, and
        /// no server sees it. `omit`: it goes without, as with `forward_cert = false`, and is counted in
        /// `proscenium_certificates_omitted_total`; then trusted facts of these agents are empty.
        "forward_cert_over": Shape::Word(&["refuse", "omit"]), Value("\"refuse\"");
        /// What the Host field says, and with it the server name (SNI) in the TLS handshake. `keep`: what the client said, and
        /// no server name, since Jetty answers 400 where the two disagree. `member`: both name the member, for members
        /// behind something that routes by server name. The member's certificate is verified either way.
        "host": Shape::Word(&["keep", "member"]), Value("\"keep\"");
        /// As in `[upstream]`.
        "connect_timeout": Shape::Duration { min: milliseconds(10), max: DAY }, Means("that of `[upstream]`");
        /// As in `[upstream]`.
        "first_byte_timeout": Shape::Duration { min: milliseconds(10), max: DAY }, Means("that of `[upstream]`");
        /// As in `[upstream]`.
        "idle_timeout": Shape::Duration { min: milliseconds(10), max: DAY }, Means("that of `[upstream]`");
        /// As in `[upstream]`.
        "tunnel_idle_timeout": Shape::Duration { min: milliseconds(10), max: DAY }, Means("that of `[upstream]`");
        /// As in `[upstream]`.
        "keepalive": Shape::Duration { min: seconds(0), max: DAY }, Means("that of `[upstream]`");
        /// As in `[upstream]`.
        "connections_max": Shape::Count { min: 1, max: 100_000 }, Means("that of `[upstream]`");
        "tls": Shape::Table(&MEMBER_TLS), Means("`[upstream.tls]`");
        "check": Shape::Table(&CHECK), Means("the defaults below");
        "identity": Shape::Table(&POOL_IDENTITY), Means("`[identity]`");
    }

    /// A member that needs more than an address.
    MEMBER at "pools.NAME.members[]" {
        /// `"host:port"` or `"unix:/path"`.
        "address": Shape::Text(&forms::MEMBER), Refused;
        /// Share of the load within the pool: a member of weight 2 gets twice as much as one of weight 1.
        "weight": Shape::Count { min: 1, max: 1000 }, Value("1");
        /// Most requests in flight at once; what is too much goes to other members. A Puppet server works on as many
        /// catalogs as it has JRuby instances.
        "max": Shape::Count { min: 1, max: 100_000 }, Means("no limit of its own");
        /// Name that the member's certificate must carry.
        "server_name": Shape::Text(&forms::SERVER_NAME), Means("the host of `address`");
        /// Whether the member is a backup: asked only while no other member of the pool is available, which is up, ready and
        /// not at its `max`. A second CA server is one. A write to the CA goes to a backup only while the first member is
        /// known to be down or is taken out by the operator, and never where any of it can have reached the first: that
        /// is answered 502, and the agent comes again.
        "backup": Shape::Switch, Value("false");
    }

    /// How members are probed.
    CHECK at "pools.NAME.check" {
        /// What a probe asks. `http`: GET `/status/v1/simple`, wanting 200 and `running`, which a Puppet server says only
        /// when it can work; with `port` see there. `legacy`, for masters of Puppet 0.25 to 3: GET
        /// `/production/status/no_key` with `Accept: pson`, wanting 200 and `"is_alive":true`; a probe claims to be nobody, so
        /// their auth.conf has to let everybody ask. `tcp`: a connection that opens. `none`: no probes; a member is up
        /// until it refuses a connection.
        "type": Shape::Word(&["http", "legacy", "tcp", "none"]), Value("\"http\"");
        /// Port of the member's host (for a Unix socket, of this machine) where something else answers for it, a script below
        /// inetd for instance. With
        /// `type = "http"` it is asked GET `/` in plain HTTP and says 200 for up, 503 or anything else for down, whatever the
        /// body; with `tcp` it has to take a connection. Stopping it takes the member out while it stays in use by hand.
        /// Nothing secret goes there, and whoever is on the way can say up or down.
        "port": Shape::Count { min: 1, max: 65_535 }, Means("the member's own, over the pool's `scheme`");
        /// Time between two probes of a member. With `fall` it says how long a member that hangs still gets requests: 15 s.
        "interval": Shape::Duration { min: milliseconds(10), max: DAY }, Value("\"5s\"");
        /// Time allowed for one probe. A Puppet server answers in 2 to 4 ms, and late when it is busy: late is not down.
        "timeout": Shape::Duration { min: milliseconds(10), max: DAY }, Value("\"3s\"");
        /// Good probes in a row that bring a member up again. One that was never probed comes up on its first.
        "rise": Shape::Count { min: 1, max: 100 }, Value("2");
        /// Bad probes in a row that take a member down. A refused connection takes it down at once.
        "fall": Shape::Count { min: 1, max: 100 }, Value("3");
        /// Whether a member counts as up before its first probe has come back.
        "assume_up": Shape::Switch, Value("false");
    }

    /// A route: conditions, who may use it, and a pool. All conditions must hold; the first route that matches wins; the
    /// built-in routes follow. A condition that does not hold leads to the next route and never to a refusal: who may do what
    /// is said by `client` and `allow`. What an endpoint of a Puppet server demands of the client holds on every route.
    ROUTE at "routes[]" {
        /// Name in records, metrics and `explain`.
        "name": Shape::Text(&forms::NAME), Refused;
        /// Pool that requests go to.
        "pool": Shape::Text(&forms::POOL), Refused;
        /// Condition: host names, compared without case and port.
        "host": Shape::Texts(&forms::HOST), Means("any host");
        /// Condition: the path, as `{ prefix = "/a" }`, `{ exact = "/a/b" }` or `{ regex = "/a/[0-9]+" }`.
        "path": Shape::OneOf(&PATH), Means("any path");
        /// Condition: methods. The next route is tried for others.
        "method": Shape::Texts(&forms::METHOD), Means("any method");
        /// Condition: header fields and their exact values, as `{ X-Site = "north" }`; all must hold.
        "header": Shape::Pairs(&forms::HEADER_NAME, &forms::HEADER_TEXT), Means("any header");
        /// Condition: query parameters and their values, as `{ environment = "production" }`; all must hold. Both are compared
        /// decoded, as a server reads them (`+` is a blank, `%xx` a byte), with their case; a parameter without `=` has the
        /// empty value. One that is given twice, or stands in a query with a raw `;`, which servers read in different ways,
        /// is no match. Whoever sends a request writes its query: this chooses between pools that may serve the same
        /// clients, and guards nothing.
        "query": Shape::Pairs(&forms::PARAMETER, &forms::ANY_TEXT), Means("any query");
        /// Condition: cookies and their values, as `{ site = "north" }`; all must hold. They are compared byte for byte,
        /// quotes and escapes included; a cookie that is given twice is no match. Whoever sends a request writes its cookies:
        /// as with `query`, this guards nothing.
        "cookie": Shape::Pairs(&forms::COOKIE_NAME, &forms::COOKIE_TEXT), Means("any cookie");
        /// Condition: networks that the client's address is in, as `["10.0.0.0/8", "2001:db8::/32"]`. The address is that of
        /// the connection's other end, whatever a request says in `X-Forwarded-For`; an IPv4 client counts as one on an
        /// IPv6 socket too. Behind something that hides addresses every client has the same one.
        "source": Shape::Texts(&forms::NETWORK), Means("any address");
        /// Condition: names that the client asked for in the TLS handshake (SNI), compared without case. A client that asked
        /// for none, as one that connects by address, meets no such condition. It need not be the name in Host, and the client
        /// chooses it: what a client may do is for `client` and `allow` to say.
        "sni": Shape::Texts(&forms::SNI), Means("any name, or none");
        /// Condition: certnames of verified clients; `*` stands for any run of characters. The next route is tried for others.
        "certname": Shape::Texts(&forms::CERTNAME_PATTERN), Means("any client");
        /// Access: `verified` clients only, or `any`, where the endpoint's class allows it.
        "client": Shape::Word(&["verified", "any"]), Value("\"verified\"");
        /// Access: certnames that may use the route; `*` stands for any run of characters. Who matches the conditions and is
        /// not named here gets a 403.
        "allow": Shape::Texts(&forms::CERTNAME_PATTERN), Means("all that `client` admits");
        /// Guarded classes of endpoints that this route opens: the administration of the CA or compilation for services,
        /// to those whom `allow` names; `renewal`, beside `[ca] renewal = true`, where renewals go by this route.
        "classes": Shape::Words(CLASSES), Value("[]");
        /// Ignore the classes of endpoints: for members that are no Puppet servers. A Puppet server behind such a route is
        /// open to all whom the route admits.
        "unguarded": Shape::Switch, Value("false");
        /// Protocols that a request may switch to (RFC 9110, 7.8), as `["websocket"]`: after the member's 101 the
        /// connection is a tunnel, and what is said in it is neither read nor judged. Others that a client asks for are
        /// not passed on; versions of HTTP and TLS cannot be named. Endpoints of a Puppet server never switch, unless the
        /// route is `unguarded`.
        "upgrade": Shape::Texts(&forms::PROTOCOL), Value("[]");
        /// Largest request body; more is answered 413.
        "body_max": Shape::Size { min: 0, max: 1 << 40 }, Means("16 KiB on enrolment, else none; a certificate request never has more");
    }

    /// A path condition: exactly one of these.
    PATH at "routes[].path" {
        /// This path and everything below it, by whole segments: `/a` is not `/ab`.
        "prefix": Shape::Text(&forms::PATH_SEGMENTS), Means("no such condition");
        /// This path alone.
        "exact": Shape::Text(&forms::PATH_SEGMENTS), Means("no such condition");
        /// A regular expression that the whole path must match.
        "regex": Shape::Text(&forms::REGEX), Means("no such condition");
    }

    /// Which certificate requests are passed on to the CA: the bodies of `PUT certificate_request/NAME`, whoever sends them
    /// and on every route that is not `unguarded`. Each is read whole, 16 KiB at most, and judged before a CA is asked. What
    /// breaks a rule is answered 403 with the reason, since an agent takes a 400 for "already submitted". Whatever is set
    /// here, a request has to be one PEM block, of one CN that is NAME, with one attribute that asks for extensions at most.
    CSR at "csr" {
        /// Whether what breaks a rule is passed on all the same and only told of, in the access log (`cause`) and in
        /// `proscenium_certificate_requests_observed_total`: for finding out what a site sends before it is refused.
        "observe": Shape::Switch, Value("false");
        /// Kinds of keys.
        "keys": Shape::Words(CSR_KEYS), Means("all of them");
        /// Least bits of an RSA key. Puppet's agents make 4096, and 2048 is the least that is verified at all.
        "rsa_bits_min": Shape::Count { min: 2048, max: 8192 }, Value("2048");
        "allow": Shape::Tables(&CSR_ALLOW), Means("every rule holds for everybody");
    }

    /// Rules that do not hold for some names.
    CSR_ALLOW at "csr.allow[]" {
        /// Names that requests are sent for; `*` stands for any run of characters. Whoever sends one chooses its name: a
        /// pattern is a promise to look at these before the CA signs them.
        "certname": Shape::Texts(&forms::CERTNAME_PATTERN), Refused;
        /// Which rules. `key`: the key is of a kind and size that is admitted. `signature`: it was signed with its own key, by
        /// SHA-256 or better. `authorization`: it asks for no extension below 1.3.6.1.4.1.34380.1.3, as `pp_cli_auth`
        /// and `pp_auth_role`, which grant rights on the servers. `altnames`: it asks for no other name than its own
        /// (`dns_alt_names`). `extensions`: it asks for nothing else that is a CA's or that is critical and unknown.
        "lifts": Shape::Words(CSR_RULES), Refused;
    }

    /// What agents may ask of the CA through here beside enrolling, and what of it is for clients without a verified
    /// certificate (`anonymous_...`): agents that enrol, those that fetch the CA's certificate and list anew each day, and
    /// everybody else. Agents with a verified certificate have none of these limits.
    /// An agent that enrols asks four times, then twice every two minutes until it is signed: the defaults let 500 behind one
    /// address do so within ten minutes.
    CA at "ca" {
        /// Whether the CA's certificate and revocation lists (`certificate/ca`, `certificate_revocation_list/ca`, in the layout
        /// of Puppet 0.25 to 3 too) are answered here, from copies of what the CA has said, also while it is down. Agents
        /// ask for both each day; so the CA is asked once an interval of `[trust.fetch]`, which has to be on. Lists are those
        /// that were taken from the CA, certificates have to be of `[trust] ca`; what is neither is answered by the CA.
        "edge_answers": Shape::Switch, Value("false");
        /// How old a copy may be, from when the CA last said that this is what it has; `Age` tells each client. An older
        /// one is not answered with: the request goes to the CA. With a day, an agent's daily refresh does not fail for a
        /// night in which the CA is down.
        "edge_answers_age_max": Shape::Duration { min: seconds(1), max: EDGE_AGE_MAX }, Value("\"24h\"");
        /// Whether verified agents may renew their certificates through here (`POST certificate_renewal`, which agents of
        /// Puppet 8 ask for); a 404 otherwise. The CA has to be Puppet Server 8.2.1 or later with this proxy's certname in
        /// its `infra_inventory.txt`: others renew the certificate of the proxy. What the CA answers goes on only if it is
        /// a certificate of the agent's subject and key; the first other answer is a 502 and an alarm, and renewals end
        /// until the next `proscenium reload`.
        "renewal": Shape::Switch, Value("false");
        /// Requests a second, over all addresses. More are answered 429 with a `Retry-After` that spreads them. Agents sleep
        /// that long; those of Puppet 7 then end the attempt with an error, and make the next one after `waitforcert`.
        "anonymous_rate": Shape::Count { min: 1, max: 100_000 }, Value("100");
        /// Requests at once, after a quiet time.
        "anonymous_burst": Shape::Count { min: 1, max: 1_000_000 }, Value("1000");
        /// Requests a second of one address; of IPv6, of one /64. Behind something that hides addresses all share this one.
        "anonymous_rate_per_address": Shape::Count { min: 1, max: 100_000 }, Value("20");
        /// Requests at once of one address, after a quiet time.
        "anonymous_burst_per_address": Shape::Count { min: 1, max: 1_000_000 }, Value("500");
        /// Requests that the CA works on at once, slow downloads among them. More are answered 503 with a `Retry-After`,
        /// which agents take as they take that of a 429.
        /// One address (of IPv6, one /64) gets no more than are still free: half of them by itself, a second half of the rest.
        /// Never more than three quarters of what a member of the pool takes (`max`, `connections_max`): the rest is for
        /// requests with a certificate, so that no flood keeps agents from renewals; where a member takes one at a time, nothing is.
        /// Agents refresh the CA's certificate and list without showing theirs: what no flood keeps them from is `edge_answers`.
        "anonymous_in_flight_max": Shape::Count { min: 1, max: 100_000 }, Value("64");
    }

    /// A rule beside what the classes of endpoints and the routes say: whom it is about, and what becomes of them. All
    /// conditions must hold; the first rule whose conditions hold decides, once a route has matched. Where none does, all is
    /// as it is without rules. Certname, issuer and extensions are those of a verified certificate: a client without one
    /// meets no such condition. An extension's value that cannot be read for certain (no string of UTF-8 or ASCII, bad DER,
    /// the same extension twice, more than 1024 bytes) meets no condition of a rule that allows, and any of one that refuses.
    ACCESS at "access[]" {
        /// Name in records, metrics, refusals and `explain`.
        "name": Shape::Text(&forms::NAME), Refused;
        /// `refuse`: a 403 that names the rule. `allow`: no later rule is asked, and of the classes `own-documents`,
        /// `services` and `ca-administration` those that `class` names are open to whom the rule is about, whom `certname` or
        /// `extension` has to tell. What a route's `client` and `allow` demand holds all the same; no rule opens what is never
        /// passed on, nor anything to a client without a verified certificate.
        "action": Shape::Word(&["allow", "refuse"]), Refused;
        /// Condition: certnames; `*` stands for any run of characters.
        "certname": Shape::Texts(&forms::CERTNAME_PATTERN), Means("any client");
        /// Condition: extensions of the certificate by Puppet's names, by those of `[identity.extensions]` or by OID, and
        /// their values, as `{ pp_role = "database", pp_environment = "prod*" }`; all must hold. Values are compared with
        /// their case; `*` stands for any run of characters.
        /// An agent writes them into its certificate request by itself, and `[csr]` passes them, but for those below
        /// 1.3.6.1.4.1.34380.1.3 (`pp_auth_role`, `pp_cli_auth`): where a CA signs by itself, open a class by these alone.
        "extension": Shape::Pairs(&forms::EXTENSION, &forms::EXTENSION_VALUE), Means("any certificate, or none");
        /// Condition: who signed the certificate, by distinguished name (RFC 2253), the intermediate CA where there is one.
        "issuer": Shape::Texts(&forms::CA), Means("any issuer");
        /// Condition: networks that the client's address is in. The address is that of the connection's other end.
        "source": Shape::Texts(&forms::NETWORK), Means("any address");
        /// Condition: names of routes; those of built-in ones are `builtin:` with a class, as `"builtin:files"`.
        "route": Shape::Texts(&forms::ROUTE), Means("any route");
        /// Condition: classes of endpoints.
        "class": Shape::Words(ACCESS_CLASSES), Means("any class; none is opened");
        /// Whether the rule only tells what it would refuse, in records, metrics and events; it is as though it were not there
        /// otherwise, and rules after it are asked. Beside `refuse` alone.
        "observe": Shape::Switch, Value("false");
    }

    /// One line for each exchange and each refused handshake.
    ACCESS_LOG at "access_log" {
        /// `"stdout"`; or a file, which is opened again on each reload; or this machine's log daemon: `"syslog"` (at `/dev/log`)
        /// or `"journal"` (at `/run/systemd/journal/socket`), and at another socket `"syslog:/path"` or `"journal:/path"`.
        /// A daemon gets each line as a record of its own, at `info`; the journal gets each field by its name too, as
        /// `PROSCENIUM_CERTNAME`. What it does not take within moments is dropped and counted.
        "path": Shape::Text(&forms::OUTPUT), Value("\"stdout\"");
        /// Under what a syslog daemon sorts the lines.
        "facility": Shape::Word(FACILITIES), Value("\"daemon\"");
        /// `combined`: Apache's form with the certname as user, and more fields after it; `json`: one object a line.
        "format": Shape::Word(&["combined", "json"]), Value("\"combined\"");
        /// Most lines that wait to be written, about 4 MB of them; more are dropped and counted, since no request waits for a disk.
        "queue_max": Shape::Count { min: 1, max: 10_000_000 }, Value("8192");
    }

    /// What the program says of itself: starts, reloads, members that come and go. `run --log` says how much of it.
    EVENTS at "events" {
        /// `"stderr"`, or this machine's log daemon, as for the access log: `"syslog"`, `"journal"`, or either with a socket.
        /// The severity is that of the event. While the daemon is not there, events go to standard error; while it is full,
        /// they are dropped and counted. What keeps the program from starting always stands on standard error.
        "path": Shape::Text(&forms::EVENT_OUTPUT), Value("\"stderr\"");
        /// Under what a syslog daemon sorts them.
        "facility": Shape::Word(FACILITIES), Value("\"daemon\"");
    }

    /// The socket that `reload` and other commands talk to.
    ADMIN at "admin" {
        /// Unix socket, with mode 0600.
        "socket": Shape::Text(&forms::SOCKET), Value("\"/run/proscenium/admin.sock\"");
    }

    /// What outlasts a restart.
    STATE at "state" {
        /// Directory for what the program learns or is told while it runs. It is made, mode 0700, if its parent is
        /// there; nobody but its owner may write into it. While it cannot be used everything works, but does not outlast
        /// a restart: an alarm says so. Another directory is in force after a restart.
        /// A service manager that makes one (systemd's `StateDirectory=`) says where in the environment.
        "directory": Shape::Text(&forms::PATH),
            Means("the first directory of `$STATE_DIRECTORY` if that is set, else `/var/lib/proscenium`");
    }
}

const DN_FORMATS: &[&str] = &["rfc2253", "openssl", "cn-last"];
const CERT_FORMATS: &[&str] = &["escaped", "one-line"];

/// Words of the classes that a route can open; nothing opens what is never passed on.
pub(crate) const CLASSES: &[&str] = &[
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

/// Words of the rules that can be lifted.
const CSR_RULES: &[&str] = &[
    "key",
    "signature",
    "authorization",
    "altnames",
    "extensions",
];

/// Words of the classes that a rule of access can be about: all but what is never passed on.
const ACCESS_CLASSES: &[&str] = &[
    "enrolment",
    "renewal",
    "ca-administration",
    "own-documents",
    "files",
    "filebucket",
    "services",
    "status",
    "unknown",
];

/// Words of syslog's facilities.
const FACILITIES: &[&str] = &[
    "user", "daemon", "auth", "authpriv", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];

#[cfg(test)]
mod tests {
    use routing::Class;

    #[test]
    fn the_words_of_facilities_are_those_of_syslog() {
        let words = telemetry::Facility::ALL.map(telemetry::Facility::as_str);
        assert_eq!(words, super::FACILITIES);
    }

    #[test]
    fn the_words_of_certificate_requests_are_those_of_their_rules() {
        assert_eq!(pki::CsrKey::ALL.map(pki::CsrKey::as_str), super::CSR_KEYS);
        let rules = pki::CsrRule::LIFTABLE.map(pki::CsrRule::as_str);
        assert_eq!(rules, super::CSR_RULES);
    }

    #[test]
    fn the_words_of_classes_are_those_of_the_routes() {
        let openable = Class::ALL
            .into_iter()
            .filter(|class| !matches!(class, Class::Never | Class::Unknown));
        let words: Vec<_> = openable.map(Class::as_str).collect();
        assert_eq!(words, super::CLASSES);
        let judged = Class::ALL
            .into_iter()
            .filter(|class| *class != Class::Never);
        let words: Vec<_> = judged.map(Class::as_str).collect();
        assert_eq!(words, super::ACCESS_CLASSES);
    }
}
