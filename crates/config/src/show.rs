//! A configuration as TOML again: what is in force, every default filled in or left out.

use std::{fmt::Write as _, path::Path};

use balancing::settings::Role;
use identity::{CertFormat, HeaderForm, settings::SubjectRule};
use listener::settings::{ClientCert, OnInvalid};
use pki::settings::{CrlExpired, Revocation};
use routing::settings::{ClientRule, PathPattern, RuleAction};
use telemetry::settings::{DaemonSettings, Format, Protocol};
use upstream::settings::{Plaintext, Scheme};

use crate::{
    config::{
        Config, Credential, EventOutput, Fetch, MemberTls, Output, PoolConfig, Watch, Watching,
    },
    draft::Environment,
    keys,
    quantity::{show_duration, show_size},
    schema::{Absent, Table},
    section::join,
};

/// One table on its way to TOML: keys with their values as TOML.
struct Printer {
    text: String,
    /// Whether keys that stand at their defaults are written.
    defaults: bool,
}

impl Config {
    /// What is in force, as TOML that reads back as the same: what differs from the defaults, or with `defaults`
    /// every setting. Materials are named, never shown.
    #[must_use]
    pub fn show(&self, defaults: bool) -> String {
        let mut printer = Printer {
            text: String::new(),
            defaults,
        };
        self.show_top(&mut printer);
        self.show_listeners(&mut printer);
        self.show_trust(&mut printer);
        self.show_upstream(&mut printer);
        for pool in &self.pools {
            show_pool(pool, self, &mut printer);
        }
        self.show_routes(&mut printer);
        self.show_ca(&mut printer);
        self.show_access(&mut printer);
        self.show_rest(&mut printer);
        printer.text
    }

    fn show_top(&self, printer: &mut Printer) {
        let keys = [
            ("ssldir", self.ssldir.as_deref().map(path)),
            ("certname", self.certname.as_deref().map(text)),
            ("workers", Some(self.workers.to_string())),
            (
                "builtin_routes",
                Some(self.routes.builtin_routes.to_string()),
            ),
            ("drain_grace", Some(text(&show_duration(self.drain_grace)))),
            (
                "access_observe",
                Some(self.routes.access_observe.to_string()),
            ),
        ];
        printer.table(&keys::ROOT, "", &keys);
    }

    fn show_listeners(&self, printer: &mut Printer) {
        for settings in &self.listeners {
            let client_cert = match settings.client_cert {
                ClientCert::Optional => "optional",
                ClientCert::Required => "required",
            };
            let on_invalid = match settings.on_invalid {
                OnInvalid::Explain => "explain",
                OnInvalid::Abort => "abort",
                OnInvalid::Forward => "forward",
            };
            let keys = [
                ("address", Some(text(&settings.address.to_string()))),
                ("client_cert", Some(text(client_cert))),
                ("on_invalid", Some(text(on_invalid))),
                ("sni_strict", Some(settings.sni_strict.to_string())),
                (
                    "certificates",
                    self.listener_certificates
                        .get(&settings.name)
                        .map(|own| credentials(own)),
                ),
                (
                    "connections_max",
                    Some(settings.connections_max.to_string()),
                ),
                ("handshakes_max", Some(settings.handshakes_max.to_string())),
                (
                    "handshake_timeout",
                    Some(text(&show_duration(settings.handshake_timeout))),
                ),
                (
                    "head_timeout",
                    Some(text(&show_duration(settings.head_timeout))),
                ),
                (
                    "idle_timeout",
                    Some(text(&show_duration(settings.idle_timeout))),
                ),
                (
                    "write_timeout",
                    Some(text(&show_duration(settings.write_timeout))),
                ),
                (
                    "head_max",
                    Some(text(&show_size(settings.head_bytes_max as u64))),
                ),
                ("http2", Some(settings.http2.to_string())),
                ("streams_max", Some(settings.streams_max.to_string())),
            ];
            printer.table(
                &keys::LISTENER,
                &format!("[{}]", join("listeners", &settings.name)),
                &keys,
            );
        }
    }

    fn show_trust(&self, printer: &mut Printer) {
        let certificates = credentials(&self.certificates);
        let lifetime = text(&show_duration(self.session_lifetime));
        let keys = [
            ("certificates", Some(certificates)),
            ("session_lifetime", Some(lifetime)),
        ];
        printer.table(&keys::TLS, "[tls]", &keys);
        let trust = &self.trust;
        let keys = [
            ("ca", Some(paths(&trust.ca))),
            ("crl", Some(paths(&trust.crl))),
            ("depth", Some(trust.settings.depth.to_string())),
            ("unchecked", Some(texts(&trust.settings.unchecked))),
            (
                "legacy_signatures",
                Some(texts(&trust.settings.legacy_signatures)),
            ),
            ("crl_expired", Some(crl_expired(trust.settings.crl_expired))),
            ("revocation", Some(revocation(trust.settings.revocation))),
            (
                "remembered_max",
                Some(trust.settings.remembered_max.to_string()),
            ),
            (
                "revoked_close_rate",
                Some(trust.revoked_close_rate.to_string()),
            ),
        ];
        printer.table(&keys::TRUST, "[trust]", &keys);
        for own in &trust.settings.issuers {
            let keys = [
                ("name", Some(text(&own.name))),
                ("crl_expired", own.crl_expired.map(crl_expired)),
                ("unchecked", own.unchecked.map(|is| is.to_string())),
                ("revocation", own.revocation.map(revocation)),
            ];
            printer.table(&keys::TRUST_ISSUER, "[[trust.issuers]]", &keys);
        }
        show_fetch(trust.fetch, printer);
        show_watching(self.materials, printer);
        let subject = match self.identity.subject {
            SubjectRule::Puppet => "puppet",
            SubjectRule::SingleCn => "single-cn",
        };
        let mut keys = vec![("subject", Some(text(subject)))];
        keys.extend(header_form(&self.form, None, printer.defaults));
        keys.push(("extensions", pairs(&self.routes.extension_names)));
        printer.table(&keys::IDENTITY, "[identity]", &keys);
    }

    fn show_upstream(&self, printer: &mut Printer) {
        let settings = &self.upstream;
        let keys = [
            (
                "connect_timeout",
                Some(text(&show_duration(settings.connect_timeout))),
            ),
            (
                "first_byte_timeout",
                Some(text(&show_duration(settings.first_byte_timeout))),
            ),
            (
                "idle_timeout",
                Some(text(&show_duration(settings.idle_timeout))),
            ),
            (
                "tunnel_idle_timeout",
                Some(text(&show_duration(settings.tunnel_idle_timeout))),
            ),
            ("keepalive", Some(text(&show_duration(settings.keepalive)))),
            (
                "connections_max",
                Some(settings.connections_max.to_string()),
            ),
            ("attempts_max", Some(self.exchange.attempts_max.to_string())),
            (
                "discard_max",
                Some(text(&show_size(self.exchange.discard_bytes_max))),
            ),
            (
                "discard_timeout",
                Some(text(&show_duration(self.exchange.discard_timeout))),
            ),
        ];
        printer.table(&keys::UPSTREAM, "[upstream]", &keys);
    }

    fn show_routes(&self, printer: &mut Printer) {
        for route in &self.routes.routes {
            let list = |texts_: &[String]| (!texts_.is_empty()).then(|| texts(texts_));
            let condition = route.path.as_ref().map(|pattern| match pattern {
                PathPattern::Prefix(prefix) => format!("{{ prefix = {} }}", text(prefix)),
                PathPattern::Exact(exact) => format!("{{ exact = {} }}", text(exact)),
                PathPattern::Regex(regex) => format!("{{ regex = {} }}", text(regex)),
            });
            let client = match route.client {
                ClientRule::Verified => "verified",
                ClientRule::Any => "any",
            };
            let classes: Vec<_> = route
                .classes
                .iter()
                .map(|class| class.as_str().to_owned())
                .collect();
            let keys = [
                ("name", Some(text(&route.name))),
                ("pool", Some(text(&route.pool))),
                ("host", list(&route.host)),
                ("path", condition),
                ("method", list(&route.method)),
                ("header", pairs(&route.header)),
                ("query", pairs(&route.query)),
                ("cookie", pairs(&route.cookie)),
                ("source", list(&route.source)),
                ("sni", list(&route.sni)),
                ("certname", list(&route.certname)),
                ("client", Some(text(client))),
                ("allow", list(&route.allow)),
                ("classes", Some(texts(&classes))),
                ("unguarded", Some(route.unguarded.to_string())),
                ("upgrade", Some(texts(&route.upgrade))),
                (
                    "body_max",
                    route.body_bytes_max.map(|bytes| text(&show_size(bytes))),
                ),
            ];
            printer.table(&keys::ROUTE, "[[routes]]", &keys);
        }
    }

    fn show_ca(&self, printer: &mut Printer) {
        let words =
            |words: Vec<&str>| texts(&words.into_iter().map(str::to_owned).collect::<Vec<_>>());
        let csr = &self.csr;
        let all = csr.keys == pki::CsrKey::ALL;
        let kinds = csr.keys.iter().map(|key| key.as_str()).collect();
        let keys = [
            ("observe", Some(csr.observe.to_string())),
            ("keys", (printer.defaults || !all).then(|| words(kinds))),
            ("rsa_bits_min", Some(csr.rsa_bits_min.to_string())),
        ];
        printer.table(&keys::CSR, "[csr]", &keys);
        for allow in &csr.allow {
            let names = allow.certname.iter().map(|pattern| pattern.as_str());
            let lifts = allow.lifts.iter().map(|rule| rule.as_str());
            let keys = [
                ("certname", Some(words(names.collect()))),
                ("lifts", Some(words(lifts.collect()))),
            ];
            printer.table(&keys::CSR_ALLOW, "[[csr.allow]]", &keys);
        }
        let (ca, number) = (&self.ca, |number: u32| Some(number.to_string()));
        let (address, total) = (ca.rates.address, ca.rates.total);
        let keys = [
            ("edge_answers", Some(ca.edge_answers.is_some().to_string())),
            (
                "edge_answers_age_max",
                ca.edge_answers.map(|age| text(&show_duration(age))),
            ),
            ("renewal", Some(ca.renewal.to_string())),
            ("anonymous_rate", number(total.per_second)),
            ("anonymous_burst", number(total.burst)),
            ("anonymous_rate_per_address", number(address.per_second)),
            ("anonymous_burst_per_address", number(address.burst)),
            (
                "anonymous_in_flight_max",
                number(ca.anonymous_in_flight_max),
            ),
        ];
        printer.table(&keys::CA, "[ca]", &keys);
    }

    fn show_access(&self, printer: &mut Printer) {
        for rule in &self.routes.access {
            let list = |texts_: &[String]| (!texts_.is_empty()).then(|| texts(texts_));
            let action = match rule.action {
                RuleAction::Allow => "allow",
                RuleAction::Refuse => "refuse",
            };
            let classes: Vec<_> = rule
                .class
                .iter()
                .map(|class| class.as_str().to_owned())
                .collect();
            let keys = [
                ("name", Some(text(&rule.name))),
                ("action", Some(text(action))),
                ("certname", list(&rule.certname)),
                ("extension", pairs(&rule.extension)),
                ("issuer", list(&rule.issuer)),
                ("source", list(&rule.source)),
                ("route", list(&rule.route)),
                ("class", list(&classes)),
                ("observe", Some(rule.observe.to_string())),
            ];
            printer.table(&keys::ACCESS, "[[access]]", &keys);
        }
    }

    fn show_rest(&self, printer: &mut Printer) {
        let (output, access_facility) = match &self.access_log.output {
            Output::Stdout => (text("stdout"), None),
            Output::File(file) => (path(file), None),
            Output::Daemon(daemon) => (log_daemon(daemon), facility(daemon)),
        };
        let (events, events_facility) = match &self.events {
            EventOutput::Stderr => (text("stderr"), None),
            EventOutput::Daemon(daemon) => (log_daemon(daemon), facility(daemon)),
        };
        let format = match self.access_log.settings.format {
            Format::Combined => "combined",
            Format::Json => "json",
        };
        let keys = [
            ("path", Some(output)),
            ("facility", access_facility),
            ("format", Some(text(format))),
            (
                "queue_max",
                Some(self.access_log.settings.queue_max.to_string()),
            ),
        ];
        printer.table(&keys::ACCESS_LOG, "[access_log]", &keys);
        printer.table(
            &keys::EVENTS,
            "[events]",
            &[("path", Some(events)), ("facility", events_facility)],
        );
        printer.table(
            &keys::ADMIN,
            "[admin]",
            &[("socket", Some(path(&self.admin.socket)))],
        );
        let usual = Path::new(Environment::STATE_DIRECTORY);
        let directory = (printer.defaults || self.state_directory != usual)
            .then(|| path(&self.state_directory));
        printer.table(&keys::STATE, "[state]", &[("directory", directory)]);
    }
}

fn crl_expired(policy: CrlExpired) -> String {
    text(&match policy {
        CrlExpired::Warn => "warn".into(),
        CrlExpired::Reject => "reject".into(),
        CrlExpired::Grace(grace) => format!("grace:{}", show_duration(grace)),
    })
}

fn revocation(policy: Revocation) -> String {
    text(match policy {
        Revocation::Chain => "chain",
        Revocation::Leaf => "leaf",
    })
}

fn show_fetch(fetch: Option<Fetch>, printer: &mut Printer) {
    // Lists are named above, and where they are it has to be said that they are fetched as well.
    let enabled = (fetch.is_some() || printer.defaults).then(|| fetch.is_some().to_string());
    let mut keys = vec![("enabled", enabled)];
    if let Some(fetch) = fetch {
        keys.extend([
            ("interval", Some(text(&show_duration(fetch.interval)))),
            ("jitter", Some(text(&show_duration(fetch.jitter)))),
            ("timeout", Some(text(&show_duration(fetch.timeout)))),
            (
                "whole_interval",
                Some(text(&show_duration(fetch.whole_interval))),
            ),
            ("body_max", Some(text(&show_size(fetch.body_bytes_max)))),
        ]);
    }
    printer.table(&keys::FETCH, "[trust.fetch]", &keys);
}

fn show_watching(watching: Watching, printer: &mut Printer) {
    let watch = match watching.watch {
        Watch::Notify => "notify",
        Watch::Poll => "poll",
        Watch::Off => "off",
    };
    let keys = [
        ("watch", Some(text(watch))),
        ("interval", Some(text(&show_duration(watching.interval)))),
        ("settle", Some(text(&show_duration(watching.settle)))),
        (
            "settle_max",
            Some(text(&show_duration(watching.settle_max))),
        ),
    ];
    printer.table(&keys::MATERIALS, "[materials]", &keys);
}

fn show_pool(config: &PoolConfig, whole: &Config, printer: &mut Printer) {
    use balancing::settings::CheckKind;
    use proxy::settings::{HostRule, OverlongCert};
    let (settings, above) = (&config.upstream, &whole.upstream);
    let all = printer.defaults;
    let scheme = match settings.scheme {
        Scheme::Https => "https",
        Scheme::Http => "http",
    };
    let host = match config.rules.host {
        HostRule::Keep => "keep",
        HostRule::Member => "member",
    };
    let cert_max = config.rules.forward_cert_bytes_max;
    let overlong_cert = match config.rules.overlong_cert {
        OverlongCert::Refuse => "refuse",
        OverlongCert::Omit => "omit",
    };
    let own = |value: String, differs: bool| (all || differs).then_some(value);
    let duration = |one, other| own(text(&show_duration(one)), one != other);
    let members: Vec<_> = config.pool.members.iter().map(member).collect();
    let keys = [
        ("members", Some(format!("[{}]", members.join(", ")))),
        ("scheme", Some(text(scheme))),
        (
            "plaintext",
            (settings.plaintext == Plaintext::TrustedNetwork).then(|| text("trusted-network")),
        ),
        ("algorithm", Some(text(config.pool.algorithm.as_str()))),
        ("forward_cert", Some(config.rules.forward_cert.to_string())),
        ("forward_cert_max", Some(text(&show_size(cert_max as u64)))),
        ("forward_cert_over", Some(text(overlong_cert))),
        ("host", Some(text(host))),
        (
            "connect_timeout",
            duration(settings.connect_timeout, above.connect_timeout),
        ),
        (
            "first_byte_timeout",
            duration(settings.first_byte_timeout, above.first_byte_timeout),
        ),
        (
            "idle_timeout",
            duration(settings.idle_timeout, above.idle_timeout),
        ),
        (
            "tunnel_idle_timeout",
            duration(settings.tunnel_idle_timeout, above.tunnel_idle_timeout),
        ),
        ("keepalive", duration(settings.keepalive, above.keepalive)),
        (
            "connections_max",
            own(
                settings.connections_max.to_string(),
                settings.connections_max != above.connections_max,
            ),
        ),
    ];
    let header = join("pools", &config.pool.name);
    printer.table(&keys::POOL, &format!("[{header}]"), &keys);
    if let Some(tls) = &config.tls {
        show_member_tls(tls, whole, &format!("[{header}.tls]"), printer);
    }
    let check = &config.pool.check;
    let kind = match check.kind {
        CheckKind::Http => "http",
        CheckKind::Legacy => "legacy",
        CheckKind::Tcp => "tcp",
        CheckKind::None => "none",
    };
    let keys = [
        ("type", Some(text(kind))),
        ("port", check.port.map(|port| port.to_string())),
        ("interval", Some(text(&show_duration(check.interval)))),
        ("timeout", Some(text(&show_duration(check.timeout)))),
        ("rise", Some(check.rise.to_string())),
        ("fall", Some(check.fall.to_string())),
        ("assume_up", Some(check.assume_up.to_string())),
    ];
    printer.table(&keys::CHECK, &format!("[{header}.check]"), &keys);
    let form = header_form(&config.rules.form, Some(&whole.form), all);
    printer.table(&keys::POOL_IDENTITY, &format!("[{header}.identity]"), &form);
}

/// The form of the trusted headers; of a pool's what differs from that of `[identity]`, if not `all` is asked for.
fn header_form(
    form: &HeaderForm,
    above: Option<&HeaderForm>,
    all: bool,
) -> [(&'static str, Option<String>); 5] {
    let shown = |of: fn(&HeaderForm) -> String| {
        let value = of(form);
        (all || above.is_none_or(|above| of(above) != value)).then_some(value)
    };
    // The usual name follows the format, and so does one that stands for it.
    let cert = (all || form.cert != form.cert_format.usual_name() || above.is_some())
        .then(|| shown(|form| text(&form.cert.to_string())))
        .flatten();
    [
        ("dn_format", shown(|form| text(&form.dn_format.to_string()))),
        ("dn_header", shown(|form| names(&form.dn))),
        (
            "verify_header",
            shown(|form| text(&form.verify.to_string())),
        ),
        ("cert_header", cert),
        (
            "cert_format",
            shown(|form| text(cert_format(form.cert_format))),
        ),
    ]
}

fn cert_format(format: CertFormat) -> &'static str {
    match format {
        CertFormat::Escaped => "escaped",
        CertFormat::OneLine => "one-line",
    }
}

fn names(names: &[identity::IdentityName]) -> String {
    match names {
        [one] => text(&one.to_string()),
        many => texts(&many.iter().map(ToString::to_string).collect::<Vec<_>>()),
    }
}

/// What differs from what is used towards clients.
fn show_member_tls(tls: &MemberTls, whole: &Config, header: &str, printer: &mut Printer) {
    let all = printer.defaults;
    let credential =
        (all || whole.certificates.first() != Some(&tls.credential)).then_some(&tls.credential);
    let keys = [
        (
            "chain",
            credential.map(|credential| path(&credential.chain)),
        ),
        ("key", credential.map(|credential| path(&credential.key))),
        (
            "ca",
            (all || tls.ca != whole.trust.ca).then(|| paths(&tls.ca)),
        ),
        (
            "crl",
            (all || tls.crl != whole.trust.crl).then(|| paths(&tls.crl)),
        ),
        (
            "name_from_cn",
            (all || tls.name_from_cn).then(|| tls.name_from_cn.to_string()),
        ),
    ];
    printer.table(&keys::MEMBER_TLS, header, &keys);
}

impl Printer {
    /// A table whose keys all stand at their defaults is left out, unless it has to be there.
    fn table(&mut self, schema: &Table, header: &str, keys: &[(&str, Option<String>)]) {
        let mut lines = String::new();
        for (name, value) in keys {
            let declared = schema.key(name);
            let is_default =
                |value: &str| matches!(declared.absent, Absent::Value(default) if default == value);
            if let Some(value) = value
                .as_deref()
                .filter(|value| self.defaults || !is_default(value))
            {
                let _ = writeln!(lines, "{name} = {value}");
            }
        }
        if lines.is_empty() {
            return;
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        if !header.is_empty() {
            let _ = writeln!(self.text, "{header}");
        }
        self.text.push_str(&lines);
    }
}

fn member(settings: &balancing::settings::MemberSettings) -> String {
    let plain = settings.weight == 1
        && settings.in_flight_max.is_none()
        && settings.server_name.is_none()
        && settings.role == Role::Ordinary;
    if plain {
        return text(&settings.address);
    }
    let mut keys = format!("address = {}", text(&settings.address));
    if settings.weight != 1 {
        let _ = write!(keys, ", weight = {}", settings.weight);
    }
    if let Some(max) = settings.in_flight_max {
        let _ = write!(keys, ", max = {max}");
    }
    if let Some(name) = &settings.server_name {
        let _ = write!(keys, ", server_name = {}", text(name));
    }
    if settings.role == Role::Backup {
        keys.push_str(", backup = true");
    }
    format!("{{ {keys} }}")
}

fn credentials(list: &[Credential]) -> String {
    let shown: Vec<_> = list.iter().map(credential).collect();
    format!("[{}]", shown.join(", "))
}

fn credential(credential: &Credential) -> String {
    format!(
        "{{ chain = {}, key = {} }}",
        path(&credential.chain),
        path(&credential.key)
    )
}

fn path(path: &Path) -> String {
    text(&path.to_string_lossy())
}

/// `syslog`, or with another socket than the usual one `syslog:/path`.
fn log_daemon(daemon: &DaemonSettings) -> String {
    let kind = match daemon.protocol {
        Protocol::Syslog(_) => "syslog",
        Protocol::Journal => "journal",
    };
    match daemon.socket.to_string_lossy() {
        socket if socket == daemon.protocol.usual_socket() => text(kind),
        socket => text(&format!("{kind}:{socket}")),
    }
}

fn facility(daemon: &DaemonSettings) -> Option<String> {
    match daemon.protocol {
        Protocol::Syslog(facility) => Some(text(facility.as_str())),
        Protocol::Journal => None,
    }
}

fn paths(list: &[std::path::PathBuf]) -> String {
    let quoted: Vec<_> = list.iter().map(|element| path(element)).collect();
    match quoted.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// Names and texts as an inline table; none where there are none.
fn pairs(pairs: &[(String, String)]) -> Option<String> {
    let pair = |(name, value): &(String, String)| format!("{} = {}", join("", name), text(value));
    let pairs: Vec<_> = pairs.iter().map(pair).collect();
    (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", ")))
}

fn texts(list: &[String]) -> String {
    let quoted: Vec<_> = list.iter().map(|element| text(element)).collect();
    format!("[{}]", quoted.join(", "))
}

/// A TOML basic string.
fn text(value: &str) -> String {
    let mut quoted = String::from("\"");
    for character in value.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(control));
            }
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}
