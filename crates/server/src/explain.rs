//! `explain`: where a request would go and why. It calls the same functions as a request.

use std::{
    collections::BTreeMap, fmt::Write as _, net::IpAddr, path::PathBuf, sync::Arc, time::Duration,
};

use balancing::{
    MemberPersistence, PickCriteria, key_hash,
    settings::{Algorithm, Role},
    source_hash,
};
use config::ConfigReport;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header::HOST};
use http1::{FieldName, Fields};
use identity::{
    Agent, Certname, ClientIdentity, ExtensionValue, HeaderForm, HeaderRules, HeaderSet,
    IdentityName, Reason, Refusal,
};
use listener::ActiveListener;
use pki::PersistenceKey;
use proxy::{Generation, IdentitySent, PoolRuntime, answers_from_copy};
use routing::{
    AccessRule, CanonicalPath, ForwardPlan, RouteCondition, RouteDecision, RoutePersistence,
    RoutingRequest, RoutingStep, RuleCondition, oid_of,
};
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject};

use crate::{
    Options, check::prepared, shared_state::App, state_directory::StateDirectory, stored_state,
};

/// The client whose request is explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExplainAs {
    /// A client without a certificate.
    Anonymous,
    /// An agent that is assumed to be verified, with the given parts of its certificate.
    Certname {
        /// Its certname.
        certname: String,
        /// The subject of the CA that signed its certificate (RFC 2253).
        issuer: Option<String>,
        /// Extensions and their values. An extension has Puppet's name, a name from the configuration, or an OID.
        extensions: Vec<(String, String)>,
    },
    /// The client that presents the certificate in this PEM file.
    Certificate(PathBuf),
}

/// The request to explain. What is not given counts as unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainRequest {
    /// Its method.
    pub method: String,
    /// Its URL, or its path alone.
    pub url: String,
    /// Its header fields.
    pub headers: Vec<(String, String)>,
    /// The client that sends it.
    pub client: ExplainAs,
    /// The address of the client.
    pub source: Option<IpAddr>,
    /// The server name that the client indicates in its handshake (SNI).
    pub sni: Option<String>,
    /// The listener that accepts its connection. If not given, the only listener that terminates TLS.
    pub listener: Option<String>,
}

/// A prepared configuration that explains requests.
#[derive(Debug)]
pub struct Explainer {
    generation: Arc<Generation>,
    /// Why blocks are not applied.
    without_blocks: Option<String>,
    /// The key of persistence cookies, or why it cannot be read.
    persistence: Result<PersistenceKey, String>,
}

/// What the proxy would do with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestExplanation {
    /// Each step and the result, one line each.
    pub text: String,
    /// Whether the proxy would refuse the request, or the handshake at every listener.
    pub is_refused: bool,
}

/// Prepares the configuration without listening.
///
/// # Errors
/// The report that a start would print.
pub fn prepare_for_explain(options: &Options) -> Result<Explainer, ConfigReport> {
    let mut prepared = prepared(options)?;
    let directory = StateDirectory::unopened(&prepared.config.state_directory);
    let restored = stored_state::restore(&mut prepared, &directory);
    for unusable in restored.crls.unusable {
        tracing::warn!("{unusable}");
    }
    let generation = prepared.generation;
    assume_up(&generation);
    Ok(Explainer {
        generation: Arc::new(generation),
        // An account that may not read the blocks gets an answer too, which says that they are not applied.
        without_blocks: restored.blocks.err().map(|error| error.to_string()),
        persistence: restored
            .persistence_key
            .and_then(|key| key.ok_or_else(|| "the proxy has not stored one".to_owned())),
    })
}

/// Assumes that every member is up. Without probes all members would be unknown, and there would be no order to explain.
fn assume_up(generation: &Generation) {
    for runtime in &*generation.pools {
        let check = runtime.pool.check();
        for entry in runtime.pool.entries() {
            for _ in 0..check.rise.max(1) {
                entry.member.probe_succeeded(check);
            }
        }
    }
}

impl Explainer {
    /// Explains what the running proxy does now: with the health and the queues of its members.
    pub(crate) fn live(app: &App) -> Self {
        Self {
            generation: app.generation(),
            without_blocks: None,
            persistence: Ok(app.shared.persistence.clone()),
        }
    }

    /// Explains path rule, class, route, access and pool, and the order of members with the reason for each.
    ///
    /// # Errors
    /// The request is invalid: its method, its URL, or a certificate that cannot be read.
    pub fn explain(&self, request: &ExplainRequest) -> Result<RequestExplanation, String> {
        let method: Method = request
            .method
            .parse()
            .map_err(|_| format!("`{}` is not a method", request.method))?;
        let (authority, target) = split(&request.url);
        let named =
            |tls: &&Arc<ActiveListener>| Some(&tls.settings.name) == request.listener.as_ref();
        let is_anonymous = self
            .tls_listeners()
            .find(named)
            .is_some_and(|tls| tls.settings.client_cert == listener::ClientCertPolicy::None);
        let identity = match is_anonymous {
            true => ClientIdentity::Anonymous,
            false => self.identity(&request.client)?,
        };
        let mut fields = HeaderMap::new();
        if let Some(authority) = authority {
            fields.insert(
                HOST,
                HeaderValue::from_str(authority)
                    .map_err(|_| format!("`{authority}` is not a host"))?,
            );
        }
        for (name, value) in &request.headers {
            let name: HeaderName = name
                .parse()
                .map_err(|_| format!("`{name}` is not a header name"))?;
            fields.append(
                name,
                HeaderValue::from_str(value)
                    .map_err(|_| format!("`{value}` is not a header value"))?,
            );
        }
        let (scrubbed, scrubbing) =
            upstream::Scrubbed::new(Fields::from(&fields), &self.generation.own_names);
        let mut text = String::new();
        let mut print = |line: std::fmt::Arguments<'_>| {
            writeln!(text, "{line}").expect("writing to a String cannot fail")
        };
        if let Some(why) = &self.without_blocks {
            print(format_args!("blocks   not applied: {why}"));
        }
        print(format_args!("client   {}", describe(&identity)));
        if let Some(line) = self.ambiguity(&identity, &request.client) {
            print(format_args!("issuer   {line}"));
        }
        if self.generation.routes.reads_certificates() {
            self.certificate_facts(&identity)
                .iter()
                .for_each(|line| print(format_args!("{line}")));
        }
        let forwarded = self.forwards(&identity);
        for (listener, difference) in self.differing_listeners(&identity, forwarded) {
            print(format_args!("listener {listener}: {difference}"));
        }
        let unkept = scrubbed.unkept([&HeaderRules::default(); 2]);
        let removed =
            scrubbing.identity + scrubbing.underscore + unkept.identity + unkept.underscore;
        if removed > 0 {
            print(format_args!("headers  {removed} removed before routing"));
        }
        let uri: Uri = match target.parse() {
            Ok(uri) => uri,
            Err(error) => {
                print(format_args!("path     refused with 400: {error}"));
                return Ok(RequestExplanation::refused(text));
            }
        };
        let path = match CanonicalPath::of_target(uri.path(), uri.query()) {
            Ok(path) => path,
            Err(problem) => {
                print(format_args!("path     refused with 400: {problem}"));
                return Ok(RequestExplanation::refused(text));
            }
        };
        print(format_args!("path     {} passes the path rule", uri.path()));
        let listeners: Vec<_> = self
            .tls_listeners()
            .map(|tls| &*tls.settings.name)
            .collect();
        let asked = request.listener.as_deref();
        if let Some(name) = asked.filter(|name| !listeners.contains(name)) {
            return Err(format!("`{name}` is not a listener that terminates TLS"));
        }
        let only_listener = match listeners[..] {
            [only] => Some(only),
            _ => None,
        };
        let explanation = self.generation.routes.explain(&RoutingRequest {
            method: &method,
            path,
            query: uri.query(),
            listener: asked.or(only_listener),
            host: scrubbed
                .fields()
                .get(FieldName::Host)
                .and_then(|host| std::str::from_utf8(host).ok()),
            fields: scrubbed.fields(),
            source: request.source,
            sni: request.sni.as_deref(),
            identity: &identity,
            failed_is_forwarded: forwarded,
        });
        for step in &explanation.steps {
            match missing_option(step, request) {
                Some(option) => print(format_args!("{step} ({option} is not set)")),
                None => print(format_args!("{step}")),
            }
        }
        match &explanation.decision {
            RouteDecision::Status(observed) => {
                observed
                    .iter()
                    .for_each(|rule| print(format_args!("{}", would_refuse(rule))));
                print(format_args!(
                    "answer   by the proxy: 200 `running` while a compiler is available, else 503 `error`"
                ));
            }
            RouteDecision::Refuse(refusal) => {
                print(format_args!(
                    "answer   {} ({}): {}",
                    refusal.status,
                    refusal.reason.as_str(),
                    refusal.text
                ));
                if refusal.needs_legacy_routes {
                    print(format_args!(
                        "a path of Puppet 0.25 to 3: with legacy_routes = true, its modern equivalent decides"
                    ));
                }
            }
            RouteDecision::Forward(plan) => {
                let runtime = &self.generation.pools[plan.pool];
                plan.observed
                    .iter()
                    .for_each(|rule| print(format_args!("{}", would_refuse(rule))));
                if let Some((document, age_max)) = answers_from_copy(&self.generation, plan) {
                    print(format_args!(
                        "answer   by the proxy, from a copy of the CA document ({}) that the CA confirmed within the last {age_max:?}; without such a copy:",
                        document.as_str()
                    ));
                }
                print(format_args!("pool     {}", runtime.pool.name()));
                let rules = [plan.headers(), &runtime.rules.headers];
                for name in scrubbed.kept(rules) {
                    print(format_args!("headers  {name} is kept by keep_headers"));
                }
                for name in scrubbed.removed(rules) {
                    print(format_args!("headers  {name} is removed by remove_headers"));
                }
                print(format_args!(
                    "identity {}",
                    identity_headers(&identity, runtime, plan)
                ));
                if !plan.upgrade().is_empty() {
                    print(format_args!("upgrade  {}", plan.upgrade().join(", ")));
                }
                if let Some(name) = plan.rewrite_member_names() {
                    print(format_args!(
                        "response names of members become {name} in texts and redirects"
                    ));
                }
                if let Some(certname) = plan.certificate_request() {
                    print(format_args!(
                        "body     checked by [csr] before it is forwarded, as the certificate request of {}",
                        certname.escape_default()
                    ));
                }
                if plan.endpoint.ca_write {
                    let writer = runtime.pool.writer();
                    let writer = writer.map(|writer| &*runtime.members[writer].connector.address);
                    let alone = if runtime.pool.has_backup() {
                        ""
                    } else {
                        " and no other"
                    };
                    print(format_args!(
                        "member   {}{alone}, because a write to the CA is never repeated",
                        writer.unwrap_or("none: the pool has no member now")
                    ));
                    let members = runtime.connectors().zip(runtime.pool.entries());
                    for (connector, _) in members.filter(|(_, entry)| entry.role == Role::Backup) {
                        print(format_args!(
                            "member   {} (backup): only while the first is down, and never for a write that may have reached the first",
                            connector.address
                        ));
                    }
                } else {
                    let agent = identity.agent();
                    let criteria = PickCriteria {
                        certname: agent.map(|agent| key_hash(agent.certname().as_str().as_bytes())),
                        key: plan.bucket_key.map(|key| key_hash(key.as_bytes())),
                        source: request.source.map(source_hash),
                        random: 0,
                        task: plan.endpoint.task,
                        persistence: plan.persistence().map_or(
                            MemberPersistence::No,
                            |persistence| {
                                let sent = (scrubbed.fields(), request.source);
                                let key = self.persistence.as_ref().ok();
                                runtime.stay(persistence, sent, key)
                            },
                        ),
                    };
                    if let Some(persistence) = plan.persistence() {
                        let applies = criteria.persistence != MemberPersistence::No;
                        let line = self.persistence_line(persistence, scrubbed.fields(), applies);
                        print(format_args!("persist  {line}"));
                    }
                    if runtime.pool.algorithm() == Algorithm::SourceHash
                        && criteria.key.or(criteria.source).is_none()
                    {
                        print(format_args!(
                            "members  picked by the client's address (--source is not set); without an address, the order is:"
                        ));
                    }
                    if runtime.pool.algorithm() == Algorithm::CertnameHash
                        && criteria.key.or(criteria.certname).is_none()
                    {
                        print(format_args!(
                            "members  picked by the certname; without a verified certname, the order is:"
                        ));
                    }
                    for place in runtime.pool.order(criteria, Duration::ZERO) {
                        let entry = &runtime.pool.entries()[place.index];
                        let backup = match (entry.role, entry.priority) {
                            (Role::Backup, _) => " (backup)".to_owned(),
                            (Role::Ordinary, 0) => String::new(),
                            (Role::Ordinary, priority) => format!(" (priority {priority})"),
                        };
                        let priority = match runtime.pool.entries()[place.index].priority {
                            0 => String::new(),
                            priority => format!(" (priority {priority})"),
                        };
                        print(format_args!(
                            "member   {}{backup}{priority}: {}",
                            runtime.members[place.index].connector.address, place.why
                        ));
                    }
                    if runtime.members.is_empty() {
                        print(format_args!("member   none: the pool has no member now"));
                    }
                    print(format_args!(
                        "health   every member is assumed up and idle; `proscenium status` shows their health"
                    ));
                }
            }
        }
        let is_refused = matches!(explanation.decision, RouteDecision::Refuse(_))
            || self.no_listener_accepts(&identity);
        Ok(RequestExplanation { text, is_refused })
    }

    /// Why the client stays with one member. `applies`: whether it does for this request.
    fn persistence_line(
        &self,
        persistence: &RoutePersistence,
        sent: &Fields,
        applies: bool,
    ) -> String {
        match (persistence, applies) {
            (RoutePersistence::Cookie(name), true) => {
                format!("the client stays with the member in its cookie {name}")
            }
            (RoutePersistence::Cookie(name), false) if !has_cookie(sent, name) => format!(
                "the client stays with the member in the proxy's cookie {name}; without the cookie, the order is:"
            ),
            (RoutePersistence::Cookie(name), false) => match &self.persistence {
                Ok(_) => format!(
                    "the cookie {name} is ignored: it appears twice, or the proxy did not issue it for a member of this pool"
                ),
                Err(why) => format!(
                    "the cookie {name} cannot be verified, because the key of the proxy cannot be read: {why}; without the cookie, the order is:"
                ),
            },
            (RoutePersistence::Header(name), true) => {
                format!("the client stays with one member by its header {name}")
            }
            (RoutePersistence::Header(name), false) => format!(
                "the client stays with one member by its header {name}, which is absent or appears twice; without it, the order is:"
            ),
            (RoutePersistence::Source, true) => {
                "the client stays with one member by its address".to_owned()
            }
            (RoutePersistence::Source, false) => {
                "the client stays with one member by its address (--source is not set); without it, the order is:".to_owned()
            }
        }
    }

    /// The issuer of a verified client, if several CAs of the bundle can issue its name.
    fn ambiguity(&self, identity: &ClientIdentity, client: &ExplainAs) -> Option<String> {
        let agent = identity.agent()?;
        let roots = self.generation.trust.separate_roots(UnixTime::now());
        if roots.is_empty() {
            return None;
        }
        let issuer = match client {
            ExplainAs::Certname { issuer, .. } => issuer.clone(),
            _ => pki::facts_of(agent.leaf()).map(|facts| facts.issuer),
        };
        Some(format!(
            "{}; each of these CAs can issue this name, and they do not sign each other: {}",
            issuer.as_deref().unwrap_or("unknown (--issuer is not set)"),
            roots.join("; ")
        ))
    }

    /// Whether every listener fails the handshake of this client.
    fn no_listener_accepts(&self, identity: &ClientIdentity) -> bool {
        self.tls_listeners()
            .all(|tls| handshake_failure(identity, &tls.settings).is_some())
    }

    /// Whether requests with a refused certificate are forwarded, at every listener.
    fn forwards(&self, identity: &ClientIdentity) -> bool {
        let forward = |tls: &Arc<ActiveListener>| {
            tls.settings.on_invalid == listener::InvalidCertPolicy::Forward
        };
        matches!(identity, ClientIdentity::Refused(_)) && self.tls_listeners().all(forward)
    }

    /// The listeners that agents can use. Other listeners verify no certificate.
    fn tls_listeners(&self) -> impl Iterator<Item = &Arc<ActiveListener>> {
        let listeners = self.generation.listeners.values();
        listeners.filter(|listener| listener.tls.is_some())
    }

    /// Listeners that treat this client differently from this explanation, by name.
    fn differing_listeners(
        &self,
        identity: &ClientIdentity,
        forwarded: bool,
    ) -> BTreeMap<&str, &'static str> {
        let differs = |settings: &listener::ListenerSettings| match (identity, settings.on_invalid)
        {
            (ClientIdentity::Refused(_), listener::InvalidCertPolicy::Forward) if !forwarded => {
                Some(
                    "enrolment and routes with client = \"any\" are forwarded as FAILED (on_invalid = \"forward\")",
                )
            }
            (ClientIdentity::Anonymous, _) => handshake_failure(identity, settings),
            _ if settings.client_cert == listener::ClientCertPolicy::None => {
                Some("clients have no certificate there (client_cert = \"none\")")
            }
            _ => handshake_failure(identity, settings),
        };
        self.tls_listeners()
            .filter_map(|tls| Some((&*tls.settings.name, differs(&tls.settings)?)))
            .collect()
    }

    /// The parts of a certificate that rules can match.
    fn certificate_facts(&self, identity: &ClientIdentity) -> Vec<String> {
        let Some(agent) = identity.agent() else {
            return Vec::new();
        };
        let own = self.generation.routes.extension_names();
        let known = agent.extensions().iter().map(|(name, _)| name);
        let names = known.chain(own.iter().map(|(name, _)| name.as_str()));
        let extensions = names.filter_map(|name| {
            let value = agent.extensions().value(&oid_of(name, own)?);
            match value {
                ExtensionValue::Text(value) => Some(format!("with     {name} = {value:?}")),
                ExtensionValue::Unreadable => Some(format!(
                    "with     {name}, whose value is ambiguous: it matches no route and no rule that allows, and every rule that refuses"
                )),
                ExtensionValue::Absent => None,
            }
        });
        let issuer = (!agent.issuer().is_empty()).then(|| format!("issuer   {}", agent.issuer()));
        issuer.into_iter().chain(extensions).collect()
    }

    /// The given extensions by OID.
    fn extensions_by_oid(
        &self,
        extensions: &[(String, String)],
    ) -> Result<Vec<(String, String)>, String> {
        let own = self.generation.routes.extension_names();
        let by_oid = |(name, value): &(String, String)| {
            let oid = oid_of(name, own).ok_or_else(|| format!("unknown extension `{name}`"))?;
            Ok((oid, value.clone()))
        };
        extensions.iter().map(by_oid).collect()
    }

    fn identity(&self, client: &ExplainAs) -> Result<ClientIdentity, String> {
        match client {
            ExplainAs::Anonymous => Ok(ClientIdentity::Anonymous),
            ExplainAs::Certname {
                certname,
                issuer,
                extensions,
            } => {
                let agent = Certname::parse(certname)
                    .map(Agent::assumed)
                    .map_err(|error| format!("certname `{certname}`: {error}"))?;
                let extensions = self.extensions_by_oid(extensions)?;
                let deny = self.generation.trust.deny_list();
                if deny
                    .of_certname(agent.certname(), UnixTime::now())
                    .is_some()
                {
                    return Ok(ClientIdentity::Refused(blocked(agent.certname())));
                }
                let agent = agent.assuming(issuer.as_deref(), extensions);
                Ok(ClientIdentity::Verified(Arc::new(agent)))
            }
            ExplainAs::Certificate(path) => {
                let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(path)
                    .and_then(Iterator::collect)
                    .map_err(|error| format!("certificate {}: {error}", path.display()))?;
                if chain.is_empty() {
                    return Err(format!(
                        "certificate {}: the file contains no certificate",
                        path.display()
                    ));
                }
                Ok(self
                    .generation
                    .trust
                    .verify(&chain, UnixTime::now())
                    .identity)
            }
        }
    }
}

impl RequestExplanation {
    fn refused(text: String) -> Self {
        Self {
            text,
            is_refused: true,
        }
    }
}

/// Why a listener fails the handshake of this client, if it does.
fn handshake_failure(
    identity: &ClientIdentity,
    settings: &listener::ListenerSettings,
) -> Option<&'static str> {
    match (identity, settings.on_invalid) {
        (ClientIdentity::Anonymous, _)
            if settings.client_cert == listener::ClientCertPolicy::Required =>
        {
            Some("the handshake fails with an alert (client_cert = \"required\")")
        }
        (ClientIdentity::Refused(_), listener::InvalidCertPolicy::Abort) => {
            Some("the handshake fails with an alert (on_invalid = \"abort\")")
        }
        _ => None,
    }
}

/// The refusal of an agent whose name is blocked.
fn blocked(certname: &Certname) -> Refusal {
    Refusal {
        reason: Reason::Blocked,
        certificate: format!("of {certname}"),
        help: "proscenium blocks shows why.".to_owned(),
        claimed: Some(certname.clone()),
    }
}

fn has_cookie(sent: &Fields, name: &str) -> bool {
    let fields = sent.all("cookie");
    let pairs = fields.flat_map(|field| field.split(|byte| *byte == b';'));
    let mut names = pairs.filter_map(|pair| pair.split(|byte| *byte == b'=').next());
    names.any(|found| found.trim_ascii() == name.as_bytes())
}

fn would_refuse(rule: &AccessRule) -> String {
    format!(
        "observed rule {} would refuse this, but it only observes",
        rule.name
    )
}

/// The command line option without which a condition could not match.
fn missing_option(step: &RoutingStep<'_>, request: &ExplainRequest) -> Option<&'static str> {
    match step {
        RoutingStep::Tried {
            failed: Some(RouteCondition::Source),
            ..
        } if request.source.is_none() => Some("--source"),
        RoutingStep::Tried {
            failed: Some(RouteCondition::Sni),
            ..
        } if request.sni.is_none() => Some("--sni"),
        RoutingStep::Tried {
            failed: Some(RouteCondition::Listener),
            ..
        } if request.listener.is_none() => Some("--listener"),
        RoutingStep::Tried {
            failed: Some(RouteCondition::Share),
            ..
        } if request.source.is_none() && matches!(request.client, ExplainAs::Anonymous) => {
            Some("--source")
        }
        RoutingStep::Tried {
            failed: Some(RouteCondition::Issuer),
            ..
        } => match &request.client {
            ExplainAs::Certname { issuer: None, .. } => Some("--issuer"),
            _ => None,
        },
        RoutingStep::Tried {
            failed: Some(RouteCondition::Extension),
            ..
        } => match &request.client {
            ExplainAs::Certname { extensions, .. } if extensions.is_empty() => Some("--extension"),
            _ => None,
        },
        RoutingStep::Rule {
            failed: Some(RuleCondition::Source),
            ..
        } if request.source.is_none() => Some("--source"),
        RoutingStep::Rule {
            failed: Some(condition),
            ..
        } => match (condition, &request.client) {
            (RuleCondition::Issuer, ExplainAs::Certname { issuer: None, .. }) => Some("--issuer"),
            (RuleCondition::Extension, ExplainAs::Certname { extensions, .. })
                if extensions.is_empty() =>
            {
                Some("--extension")
            }
            _ => None,
        },
        _ => None,
    }
}

/// The authority and the origin-form target of a URL. A path alone has no authority.
fn split(url: &str) -> (Option<&str>, &str) {
    let Some((_, rest)) = url.split_once("://") else {
        return (None, url);
    };
    match rest.find('/') {
        Some(slash) => (Some(&rest[..slash]), &rest[slash..]),
        None => (Some(rest), "/"),
    }
}

/// The identity headers that the member gets.
fn identity_headers(
    identity: &ClientIdentity,
    runtime: &PoolRuntime,
    plan: &ForwardPlan<'_>,
) -> String {
    let form = &runtime.rules.form;
    match runtime.rules.identity_of(plan) {
        IdentitySent::All => {}
        IdentitySent::Certificate => return format!("{} alone, with a renewal", form.cert),
        IdentitySent::None => return "none, because the CA needs none for this request".to_owned(),
    }
    let puppets = form.sends(HeaderSet::Puppet);
    let mut text = match puppets {
        true => format!("{}: {}", form.verify, identity.verdict()),
        false => format!("verdict {}, without Puppet's headers", identity.verdict()),
    };
    if identity.agent().is_none() {
        return text;
    }
    if puppets && *form != HeaderForm::default() {
        let names: Vec<_> = form.dn.iter().map(IdentityName::to_string).collect();
        let _ = write!(
            text,
            ", the subject as {} in {}",
            form.dn_format,
            names.join(", ")
        );
    }
    if plan.with_certificate_class && (runtime.rules.forward_cert || plan.is_renewal()) {
        let own = puppets.then_some(&form.cert).map(IdentityName::to_string);
        let others = form.other_names().map(|name| name.to_string());
        let names: Vec<_> = own.into_iter().chain(others).collect();
        let _ = write!(
            text,
            ", with {} of up to {} bytes",
            names.join(", "),
            runtime.rules.forward_cert_bytes_max
        );
    } else if form.sends(HeaderSet::Xfcc) {
        text.push_str(", with X-Forwarded-Client-Cert without the certificate");
    }
    text
}

fn describe(identity: &ClientIdentity) -> String {
    match identity {
        ClientIdentity::Anonymous => "no certificate".to_owned(),
        ClientIdentity::Verified(agent) => format!("verified agent {}", agent.certname()),
        ClientIdentity::Refused(refusal) => format!("refused: {}", refusal.text()),
    }
}
