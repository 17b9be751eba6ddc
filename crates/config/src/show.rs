//! Prints a configuration as TOML: the active settings, with or without the defaults.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use balancing::settings::MemberSettings;
use identity::HeaderForm;
use routing::{PathPattern, Persistence};
use serde::de::DeserializeOwned;
use telemetry::{DaemonSettings, Facility, LogProtocol};

use crate::{
    binding::{Base, Bound},
    config::{
        AccessLog, AccessLogOutput, Config, CredentialFiles, EventOutput, Fetch, Fleet, MemberTls,
        PoolConfig,
    },
    keys,
    schema::{Absent, Key, join},
    values::{Reads as _, quoted, switch, text, text_or_texts, texts, word},
};

/// Settings that name files, directories, sockets, interfaces and names of one host.
const OF_HOST: [&str; 18] = [
    "ssldir",
    "certname",
    "workers",
    "certificates",
    "chain",
    "key",
    "certificate",
    "ca",
    "crl",
    "path",
    "audit_log",
    "socket",
    "directory",
    "key_file",
    "address",
    "interface",
    "redirect_to_https",
    "etcd",
];

/// A key with its value as TOML; `None` if a file expresses the value by leaving the key out.
type Value = (&'static Key, Option<String>);

/// Collects the settings of a configuration as TOML.
struct Printer {
    settings: Vec<Setting>,
    /// Whether settings with their default value are printed.
    defaults: bool,
}

/// One setting as it is printed.
pub(crate) struct Setting {
    /// For example `[[routes]]`; empty for the top level.
    header: String,
    /// For example `routes[1]`; empty for the top level.
    pub(crate) path: String,
    pub(crate) key: &'static str,
    /// The value as TOML.
    pub(crate) value: String,
}

impl Config {
    /// The active settings as TOML. Loading it gives the same configuration. It has the settings that differ from the
    /// defaults, or with `defaults` every setting. It has the paths of materials and never their contents.
    #[must_use]
    pub fn show(&self, defaults: bool) -> String {
        let settings = self.printed(defaults);
        let mut text = String::new();
        let mut table = None;
        for Setting {
            header,
            path,
            key,
            value,
        } in &settings
        {
            if table.replace(path) != Some(path) {
                if !text.is_empty() {
                    text.push('\n');
                }
                if !header.is_empty() {
                    let _ = writeln!(text, "{header}");
                }
            }
            let _ = writeln!(text, "{key} = {value}");
        }
        text
    }

    /// The settings of each section as text, without what differs between proxies of one fleet: certificates, keys, names and
    /// addresses of the host, and paths.
    #[must_use]
    pub fn sections(&self) -> BTreeMap<String, String> {
        let mut sections = BTreeMap::<String, String>::new();
        for Setting {
            path, key, value, ..
        } in self.printed(true)
        {
            let name = match path.as_str() {
                "" => "top level",
                path => path,
            };
            let is_of_host =
                OF_HOST.contains(&key) || name.starts_with("listeners") && key == "address";
            if !is_of_host {
                let text = sections.entry(name.to_owned()).or_default();
                let _ = writeln!(text, "{key} = {value}");
            }
        }
        sections
    }

    /// The settings that [`show`](Self::show) prints, as a value of another format, such as JSON.
    #[must_use]
    pub fn structured<T: DeserializeOwned>(&self, defaults: bool) -> T {
        toml::from_str(&self.show(defaults)).expect("printed settings are TOML")
    }

    /// Every setting, in the order of `show`. With `defaults`, two configurations print the same if and only if they
    /// are equal. The report of a reload and the fingerprint of a configuration rely on that.
    pub(crate) fn printed(&self, defaults: bool) -> Vec<Setting> {
        self.every_field_is_printed();
        let mut printer = Printer {
            settings: Vec::new(),
            defaults,
        };
        let base = Self::base();
        printer.table::<keys::Root>("", "", (self, &base), []);
        for listener in &self.listeners {
            let own = self.listener_certificates.get(&listener.name);
            let certificates = own.map(|own| credentials(own));
            printer.table::<keys::Listener>(
                &format!("[{}]", join("listeners", &listener.name)),
                &join("listeners", &listener.name),
                (listener, &listener::ListenerSettings::base()),
                [
                    (keys::Listener::certificates, certificates),
                    (keys::Listener::sni_passthrough, sni_passthrough(listener)),
                    (keys::Listener::proxy_protocol, proxy_protocol(listener)),
                ],
            );
        }
        self.print_trust(&base, &mut printer);
        printer.table::<keys::Materials>("[materials]", "materials", (self, &base), []);
        self.print_identity(&mut printer);
        printer.table::<keys::Upstream>("[upstream]", "upstream", (self, &base), []);
        printer.table::<keys::Dns>("[dns]", "dns", (self, &base), []);
        for pool in &self.pools {
            print_pool(pool, self, &mut printer);
        }
        self.print_routes(&mut printer);
        printer.table::<keys::Csr>("[csr]", "csr", (self, &base), []);
        for (index, allow) in self.csr.allow.iter().enumerate() {
            let path = format!("csr.allow[{index}]");
            let base = pki::CsrAllow::base();
            printer.table::<keys::CsrAllow>("[[csr.allow]]", &path, (allow, &base), []);
        }
        self.print_ca(&mut printer);
        for (index, rule) in self.routes.access.iter().enumerate() {
            let base = routing::settings::AccessRuleSettings::base();
            let path = format!("access[{index}]");
            printer.table::<keys::Access>("[[access]]", &path, (rule, &base), []);
        }
        self.print_logs(&base, &mut printer);
        printer.table::<keys::Admin>("[admin]", "admin", (self, &base), []);
        printer.table::<keys::Metrics>("[metrics]", "metrics", (self, &base), []);
        printer.table::<keys::State>("[state]", "state", (self, &base), []);
        if let Some(fleet) = &self.fleet {
            let paths = text(&crate::forms::PATH);
            let named = [
                (
                    keys::Fleet::certificate,
                    paths.show(&fleet.tls.credential.chain),
                ),
                (keys::Fleet::key, paths.show(&fleet.tls.credential.key)),
                (
                    keys::Fleet::ca,
                    text_or_texts(&crate::forms::PATH).show(&fleet.tls.ca),
                ),
            ];
            printer.table::<keys::Fleet>("[fleet]", "fleet", (fleet, &Fleet::base()), named);
        }
        printer.settings
    }

    /// A new field does not compile until it is listed here. Add a key for it, or print its table in `printed`.
    fn every_field_is_printed(&self) {
        let Self {
            // These are set by top-level keys.
            ssldir: _,
            certname: _,
            workers: _,
            drain_grace: _,
            // These are lists of tables and named tables.
            listeners: _,
            certificates: _,
            listener_certificates: _,
            pools: _,
            routes: _,
            // Each of these is set by the keys of one table.
            own_renewal: _,
            session_lifetime: _,
            trust: _,
            materials: _,
            identity: _,
            form: _,
            upstream: _,
            agent_max_except: _,
            exchange: _,
            csr: _,
            ca: _,
            access_log: _,
            other_access_logs: _,
            events: _,
            admin: _,
            metrics: _,
            state_directory: _,
            dns: _,
            fleet: _,
        } = self;
    }

    fn print_trust(&self, base: &Self, printer: &mut Printer) {
        let certificates = Some(credentials(&self.certificates));
        let certificates = [(keys::Tls::certificates, certificates)];
        printer.table::<keys::Tls>("[tls]", "tls", (self, base), certificates);
        let files = text_or_texts(&crate::forms::PATH);
        let named = [
            (keys::Trust::ca, files.show(&self.trust.ca)),
            (keys::Trust::crl, files.show(&self.trust.crl)),
        ];
        printer.table::<keys::Trust>("[trust]", "trust", (self, base), named);
        for (index, own) in self.trust.settings.issuers.iter().enumerate() {
            let path = format!("trust.issuers[{index}]");
            let base = pki::settings::IssuerSettings::base();
            printer.table::<keys::TrustIssuer>("[[trust.issuers]]", &path, (own, &base), []);
        }
        // The CRLs are printed above. A file that names CRLs must also enable fetching explicitly.
        let enabled = (self.trust.fetch.is_some() || printer.defaults)
            .then(|| switch().show(&self.trust.fetch.is_some()))
            .flatten();
        let enabled = [(keys::Fetch::enabled, enabled)];
        match &self.trust.fetch {
            Some(fetch) => {
                let tables = (fetch, &Fetch::base());
                printer.table::<keys::Fetch>("[trust.fetch]", "trust.fetch", tables, enabled);
            }
            None => printer.lines::<keys::Fetch>("[trust.fetch]", "trust.fetch", enabled.into()),
        }
    }

    /// The default of `edge_answers` depends on `[trust.fetch]`, so the base for the comparison does too.
    fn print_ca(&self, printer: &mut Printer) {
        let mut base = Self::base();
        base.ca.edge_answers = self.trust.fetch.is_some();
        printer.table::<keys::Ca>("[ca]", "ca", (self, &base), []);
    }

    /// The default name of the certificate's header depends on the format, so the base for the comparison does too.
    fn print_identity(&self, printer: &mut Printer) {
        let mut base = Self::base();
        base.form.cert = self.form.cert_format.usual_name();
        printer.table::<keys::Identity>("[identity]", "identity", (self, &base), []);
    }

    fn print_routes(&self, printer: &mut Printer) {
        for (index, route) in self.routes.routes.iter().enumerate() {
            let condition = route.path.as_ref().map(|pattern| {
                let (key, text) = match pattern {
                    PathPattern::Prefix(prefix) => (keys::RoutePath::prefix, prefix),
                    PathPattern::Exact(exact) => (keys::RoutePath::exact, exact),
                    PathPattern::Regex(regex) => (keys::RoutePath::regex, regex),
                };
                format!("{{ {} = {} }}", key.name, quoted(text))
            });
            let persistence = route
                .persistence
                .as_ref()
                .map(|persistence| match persistence {
                    Persistence::Cookie(name) => format!("{{ cookie = {} }}", quoted(name)),
                    Persistence::Header(name) => format!("{{ header = {} }}", quoted(name)),
                    Persistence::Source => "{ source = true }".to_owned(),
                });
            printer.table::<keys::Route>(
                "[[routes]]",
                &format!("routes[{index}]"),
                (route, &routing::settings::RouteSettings::base()),
                [
                    (keys::Route::path, condition),
                    (keys::Route::persistence, persistence),
                ],
            );
        }
    }

    fn print_logs(&self, base: &Self, printer: &mut Printer) {
        if self.other_access_logs.is_empty() {
            let base = AccessLog::base();
            print_access_log(
                (&self.access_log, &base),
                "[access_log]",
                "access_log",
                printer,
            );
        } else {
            let logs = std::iter::once(&self.access_log).chain(&self.other_access_logs);
            for (index, log) in logs.enumerate() {
                // Each table of the list must be printed, so its path is printed even if it is the default.
                let base = AccessLog {
                    output: AccessLogOutput::File(Default::default()),
                    ..AccessLog::base()
                };
                let path = format!("access_log[{index}]");
                print_access_log((log, &base), "[[access_log]]", &path, printer);
            }
        }
        let events = match &self.events {
            EventOutput::Daemon(daemon) => facility(daemon),
            EventOutput::Stderr => None,
        };
        let events = [(keys::Events::facility, events)];
        printer.table::<keys::Events>("[events]", "events", (self, base), events);
    }
}

fn print_access_log(
    (log, base): (&AccessLog, &AccessLog),
    header: &str,
    path: &str,
    printer: &mut Printer,
) {
    let facility = match &log.output {
        AccessLogOutput::Daemon(daemon) => facility(daemon),
        AccessLogOutput::Stdout | AccessLogOutput::File(_) => None,
    };
    let facility = [(keys::AccessLog::facility, facility)];
    printer.table::<keys::AccessLog>(header, path, (log, base), facility);
}

/// Prints a pool: the settings that differ from `[upstream]` and `[identity]`, or every setting.
fn print_pool(pool: &PoolConfig, whole: &Config, printer: &mut Printer) {
    let path = join("pools", &pool.pool.name);
    let members: Vec<_> = pool.pool.members.iter().map(member).collect();
    let mut base = PoolConfig::new(&pool.pool.name, whole);
    base.rules.identity = crate::identity::default_rule(whole, pool);
    printer.table::<keys::Pool>(
        &format!("[{path}]"),
        &path,
        (pool, &base),
        [(
            keys::Pool::members,
            Some(format!("[{}]", members.join(", "))),
        )],
    );
    if let Some(tls) = &pool.tls {
        print_member_tls(tls, whole, &format!("{path}.tls"), printer);
    }
    let check = format!("{path}.check");
    let mut base = balancing::settings::CheckSettings::base();
    if pool.rules.passthrough.is_used {
        base.kind = balancing::settings::CheckKind::Tcp;
    }
    let header = format!("[{check}]");
    printer.table::<keys::Check>(&header, &check, (&pool.pool.check, &base), []);
    let guards = &pool.rules.guards;
    if let Some(agent) = &guards.agent_check {
        let path = format!("{path}.agent_check");
        let base = balancing::settings::AgentCheckSettings::base();
        printer.table::<keys::AgentCheck>(&format!("[{path}]"), &path, (agent, &base), []);
    }
    let ejection = format!("{path}.ejection");
    let base = balancing::settings::EjectionSettings::base();
    let header = format!("[{ejection}]");
    printer.table::<keys::Ejection>(&header, &ejection, (&guards.ejection, &base), []);
    let form = &pool.rules.form;
    let mut above = whole.form.clone();
    if above.cert == above.cert_format.usual_name() {
        above.cert = form.cert_format.usual_name();
    }
    let identity = format!("{path}.identity");
    let forms: (&HeaderForm, &HeaderForm) = (form, &above);
    printer.table::<keys::PoolIdentity>(&format!("[{identity}]"), &identity, forms, []);
}

/// Prints the TLS materials for members that differ from those for clients.
fn print_member_tls(tls: &MemberTls, whole: &Config, path: &str, printer: &mut Printer) {
    let all = printer.defaults;
    let credential =
        (all || whole.certificates.first() != Some(&tls.credential)).then_some(&tls.credential);
    let file = |file: fn(&CredentialFiles) -> &Path| credential.map(|own| shown_path(file(own)));
    let files = text_or_texts(&crate::forms::PATH);
    let (ca, crl) = (
        all || tls.ca != whole.trust.ca,
        all || tls.crl != whole.trust.crl,
    );
    let named = [
        (keys::MemberTls::chain, file(|own| &own.chain)),
        (keys::MemberTls::key, file(|own| &own.key)),
        (
            keys::MemberTls::ca,
            ca.then(|| files.show(&tls.ca)).flatten(),
        ),
        (
            keys::MemberTls::crl,
            crl.then(|| files.show(&tls.crl)).flatten(),
        ),
    ];
    let tables = (tls, &MemberTls::base());
    printer.table::<keys::MemberTls>(&format!("[{path}]"), path, tables, named);
}

impl Printer {
    /// Prints a table from its bound keys and from `named`. A bound key is printed if its value differs from `base`, or
    /// if the table requires it. A value in `named` is printed if it is not `None` and not the default.
    fn table<T: Bound>(
        &mut self,
        header: &str,
        path: &str,
        (target, base): (&T::Target, &T::Target),
        named: impl IntoIterator<Item = Value>,
    ) {
        let defaults = self.defaults;
        let bound = T::values(target).into_iter().zip(T::values(base));
        let mut values: Vec<Value> = bound
            .filter(|((key, value), (_, base))| {
                defaults || matches!(key.absent, Absent::Required) || value != base
            })
            .map(|(value, _)| value)
            .collect();
        let differs = |(key, value): &Value| defaults || *value != key.default();
        values.extend(named.into_iter().filter(differs));
        self.lines::<T>(header, path, values);
    }

    /// Adds settings in the order of the declaration.
    fn lines<T: Bound>(&mut self, header: &str, path: &str, mut values: Vec<Value>) {
        let position = |key: &Key| {
            T::TABLE
                .keys
                .iter()
                .position(|known| known.name == key.name)
        };
        values.sort_by_key(|(key, _)| position(key));
        let lines = values.into_iter().filter_map(|(key, value)| {
            Some(Setting {
                header: header.to_owned(),
                path: path.to_owned(),
                key: key.name,
                value: value?,
            })
        });
        self.settings.extend(lines);
    }
}

/// A member as a string, or as an inline table if it has more than an address.
fn member(settings: &MemberSettings) -> String {
    let base = keys::Member::values(&MemberSettings::base());
    let values = keys::Member::values(settings).into_iter().zip(base);
    let differing: Vec<_> = values
        .filter(|((key, value), (_, base))| matches!(key.absent, Absent::Required) || value != base)
        .filter_map(|((key, value), _)| Some(format!("{} = {}", key.name, value?)))
        .collect();
    match differing.len() {
        1 => quoted(&settings.address),
        _ => format!("{{ {} }}", differing.join(", ")),
    }
}

fn credentials(list: &[CredentialFiles]) -> String {
    let shown = list.iter().map(|credential| {
        let (chain, key) = (shown_path(&credential.chain), shown_path(&credential.key));
        format!("{{ chain = {chain}, key = {key} }}")
    });
    format!("[{}]", shown.collect::<Vec<_>>().join(", "))
}

fn sni_passthrough(listener: &listener::ListenerSettings) -> Option<String> {
    let shown = listener.sni_passthrough.iter().map(|entry| {
        let values = keys::SniPassthrough::values(entry).into_iter();
        let values = values.filter_map(|(key, value)| Some(format!("{} = {}", key.name, value?)));
        format!("{{ {} }}", values.collect::<Vec<_>>().join(", "))
    });
    let shown: Vec<_> = shown.collect();
    (!shown.is_empty()).then(|| format!("[{}]", shown.join(", ")))
}

fn proxy_protocol(listener: &listener::ListenerSettings) -> Option<String> {
    let from = listener.proxy_protocol.as_ref()?;
    let from = texts(&crate::forms::NETWORK).show(from)?;
    Some(format!("{{ from = {from} }}"))
}

fn facility(daemon: &DaemonSettings) -> Option<String> {
    match daemon.protocol {
        LogProtocol::Syslog(facility) => word::<Facility>().show(&facility),
        LogProtocol::Journal => None,
    }
}

fn shown_path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}
