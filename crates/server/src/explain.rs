//! `explain`: where a request would go and why, by the request path's own functions.

use std::{
    collections::BTreeMap, fmt::Write as _, net::IpAddr, path::PathBuf, sync::Arc, time::Duration,
};

use balancing::{
    MemberPersistence, PickCriteria, key_hash,
    settings::{Algorithm, Role},
    source_hash,
};
use config::Report;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri,
    header::{COOKIE, HOST},
};
use identity::{
    Agent, Certname, ClientIdentity, ExtensionValue, HeaderForm, HeaderSet, IdentityName, Reason,
    Refusal,
};
use listener::ActiveListener;
use pki::PersistenceKey;
use proxy::{Generation, PoolRuntime, answers_from_copy};
use routing::{
    AccessRule, CanonicalPath, ForwardPlan, RouteCondition, RouteDecision, RoutePersistence,
    RoutingRequest, RoutingStep, RuleCondition, oid_of,
};
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject};

use crate::{Options, check::prepared, state_directory::StateDirectory, stored_state};

/// Who asks, in `explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExplainAs {
    /// Nobody with a certificate.
    Anonymous,
    /// A verified agent of this name, taken for granted, with what its certificate would say besides.
    Certname {
        /// The name.
        certname: String,
        /// Who signed it (RFC 2253).
        issuer: Option<String>,
        /// Extensions by Puppet's name, by one of the configuration, or by OID, and their values.
        extensions: Vec<(String, String)>,
    },
    /// Whoever this certificate (PEM) is found to be.
    Certificate(PathBuf),
}

/// A request, as far as `explain` is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainRequest {
    /// Its method.
    pub method: String,
    /// Its URL, or its path alone.
    pub url: String,
    /// Its header fields.
    pub headers: Vec<(String, String)>,
    /// Who sends it.
    pub client: ExplainAs,
    /// From which address.
    pub source: Option<IpAddr>,
    /// The server name that the client asked for in its handshake.
    pub sni: Option<String>,
}

/// A configuration that can be asked.
#[derive(Debug)]
pub struct Explainer {
    generation: Generation,
    /// Why blocks are not applied.
    without_blocks: Option<String>,
    /// The key of persistence cookies; why it cannot be read.
    persistence: Result<PersistenceKey, String>,
}

/// What would become of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestExplanation {
    /// Each step and the result, a line each.
    pub text: String,
    /// Whether the proxy would refuse the request, or the handshake at every listener.
    pub is_refused: bool,
}

/// Builds what requests would meet, without binding.
///
/// # Errors
/// The report that a start would print.
pub fn prepare_for_explain(options: &Options) -> Result<Explainer, Report> {
    let mut prepared = prepared(options)?;
    let directory = StateDirectory::unopened(&prepared.config.state_directory);
    let restored = stored_state::restore(&mut prepared, &directory);
    for unusable in restored.crls.unusable {
        tracing::warn!("{unusable}");
    }
    let generation = prepared.generation;
    suppose_up(&generation);
    Ok(Explainer {
        generation,
        // An account that may not read the blocks gets an answer too, which says that they are not applied.
        without_blocks: restored.blocks.err().map(|error| error.to_string()),
        persistence: restored
            .persistence_key
            .and_then(|key| key.ok_or_else(|| "the proxy has not stored one".to_owned())),
    })
}

/// Nobody has probed here, and an order in which nobody is asked would explain nothing.
fn suppose_up(generation: &Generation) {
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
    /// Path rule, class, route, access, pool, and the order of members with the reason for each.
    ///
    /// # Errors
    /// A question that makes no sense: no method, no URL, a certificate that cannot be read.
    pub fn explain(&self, asked: &ExplainRequest) -> Result<RequestExplanation, String> {
        let method: Method = asked
            .method
            .parse()
            .map_err(|_| format!("`{}` is not a method", asked.method))?;
        let (authority, target) = split(&asked.url);
        let identity = self.identity(&asked.client)?;
        let mut fields = HeaderMap::new();
        if let Some(authority) = authority {
            fields.insert(
                HOST,
                HeaderValue::from_str(authority)
                    .map_err(|_| format!("`{authority}` is not a host"))?,
            );
        }
        for (name, value) in &asked.headers {
            let name: HeaderName = name
                .parse()
                .map_err(|_| format!("`{name}` is not a header name"))?;
            fields.append(
                name,
                HeaderValue::from_str(value)
                    .map_err(|_| format!("`{value}` is not a header value"))?,
            );
        }
        let (scrubbed, scrubbing) = upstream::Scrubbed::new(fields, &self.generation.own_names);
        let mut text = String::new();
        let mut say = |line: std::fmt::Arguments<'_>| {
            writeln!(text, "{line}").expect("writing to a String cannot fail")
        };
        if let Some(why) = &self.without_blocks {
            say(format_args!("blocks   not applied: {why}"));
        }
        say(format_args!("client   {}", describe(&identity)));
        if self.generation.routes.reads_certificates() {
            self.certified(&identity)
                .iter()
                .for_each(|line| say(format_args!("{line}")));
        }
        let forwarded = self.forwards(&identity);
        for (listener, difference) in self.told_apart(&identity, forwarded) {
            say(format_args!("listener {listener}: {difference}"));
        }
        if scrubbing.identity + scrubbing.underscore > 0 {
            say(format_args!(
                "headers  {} removed before routing",
                scrubbing.identity + scrubbing.underscore
            ));
        }
        let uri: Uri = match target.parse() {
            Ok(uri) => uri,
            Err(error) => {
                say(format_args!("path     refused with 400: {error}"));
                return Ok(RequestExplanation::refused(text));
            }
        };
        let path = match CanonicalPath::of_target(uri.path(), uri.query()) {
            Ok(path) => path,
            Err(problem) => {
                say(format_args!("path     refused with 400: {problem}"));
                return Ok(RequestExplanation::refused(text));
            }
        };
        say(format_args!("path     {} passes the path rule", uri.path()));
        let explanation = self.generation.routes.explain(&RoutingRequest {
            method: &method,
            path,
            query: uri.query(),
            host: scrubbed
                .headers()
                .get(HOST)
                .and_then(|host| host.to_str().ok()),
            headers: scrubbed.headers(),
            source: asked.source,
            sni: asked.sni.as_deref(),
            identity: &identity,
            failed_is_forwarded: forwarded,
        });
        for step in &explanation.steps {
            match untold(step, asked) {
                Some(option) => say(format_args!("{step} ({option} is not set)")),
                None => say(format_args!("{step}")),
            }
        }
        match &explanation.decision {
            RouteDecision::Status(observed) => {
                observed
                    .iter()
                    .for_each(|rule| say(format_args!("{}", would_refuse(rule))));
                say(format_args!(
                    "answer   by the proxy: 200 `running` while a compiler is available, else 503 `error`"
                ));
            }
            RouteDecision::Refuse(refusal) => {
                say(format_args!(
                    "answer   {} ({}): {}",
                    refusal.status,
                    refusal.reason.as_str(),
                    refusal.text
                ));
                if refusal.needs_legacy_routes {
                    say(format_args!(
                        "a path of Puppet 0.25 to 3: with legacy_routes = true, its modern equivalent decides"
                    ));
                }
            }
            RouteDecision::Forward(plan) => {
                let runtime = &self.generation.pools[plan.pool];
                plan.observed
                    .iter()
                    .for_each(|rule| say(format_args!("{}", would_refuse(rule))));
                if let Some((document, age_max)) = answers_from_copy(&self.generation, plan) {
                    say(format_args!(
                        "answer   by the proxy, from a copy of the CA document ({}) that the CA confirmed within the last {age_max:?}; without such a copy:",
                        document.as_str()
                    ));
                }
                say(format_args!("pool     {}", runtime.pool.name()));
                say(format_args!("identity {}", told(&identity, runtime, plan)));
                if !plan.upgrade().is_empty() {
                    say(format_args!("upgrade  {}", plan.upgrade().join(", ")));
                }
                if let Some(name) = plan.rewrite_member_names() {
                    say(format_args!(
                        "response names of members become {name} in texts and redirects"
                    ));
                }
                if let Some(certname) = plan.certificate_request() {
                    say(format_args!(
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
                    say(format_args!(
                        "member   {}{alone}, because a write to the CA is never repeated",
                        writer.unwrap_or("none: the pool has no member now")
                    ));
                    let members = runtime.connectors().zip(runtime.pool.entries());
                    for (connector, _) in members.filter(|(_, entry)| entry.role == Role::Backup) {
                        say(format_args!(
                            "member   {} (backup): only while the first is down, and never for a write that may have reached the first",
                            connector.address
                        ));
                    }
                } else {
                    let agent = identity.agent();
                    let criteria = PickCriteria {
                        certname: agent.map(|agent| key_hash(agent.certname().as_str().as_bytes())),
                        key: plan.bucket_key.map(|key| key_hash(key.as_bytes())),
                        source: asked.source.map(source_hash),
                        random: 0,
                        task: plan.endpoint.task,
                        persistence: plan.persistence().map_or(
                            MemberPersistence::No,
                            |persistence| {
                                let sent = (scrubbed.headers(), asked.source);
                                let key = self.persistence.as_ref().ok();
                                runtime.stay(persistence, sent, key)
                            },
                        ),
                    };
                    if let Some(persistence) = plan.persistence() {
                        let applies = criteria.persistence != MemberPersistence::No;
                        let kept = self.kept_by(persistence, scrubbed.headers(), applies);
                        say(format_args!("persist  {kept}"));
                    }
                    if runtime.pool.algorithm() == Algorithm::SourceHash
                        && criteria.key.or(criteria.source).is_none()
                    {
                        say(format_args!(
                            "members  picked by the client's address (--source is not set); without an address, the order is:"
                        ));
                    }
                    if runtime.pool.algorithm() == Algorithm::CertnameHash
                        && criteria.key.or(criteria.certname).is_none()
                    {
                        say(format_args!(
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
                        say(format_args!(
                            "member   {}{backup}{priority}: {}",
                            runtime.members[place.index].connector.address, place.why
                        ));
                    }
                    if runtime.members.is_empty() {
                        say(format_args!("member   none: the pool has no member now"));
                    }
                    say(format_args!(
                        "health   every member is assumed up and idle; `proscenium status` shows their health"
                    ));
                }
            }
        }
        let is_refused = matches!(explanation.decision, RouteDecision::Refuse(_))
            || self.no_listener_accepts(&identity);
        Ok(RequestExplanation { text, is_refused })
    }

    /// What keeps the client on one member. `applies`: whether it does for this request.
    fn kept_by(&self, persistence: &RoutePersistence, sent: &HeaderMap, applies: bool) -> String {
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

    /// Whether every listener ends the handshake of this client.
    fn no_listener_accepts(&self, identity: &ClientIdentity) -> bool {
        self.tls_listeners()
            .all(|tls| handshake_end(identity, &tls.settings).is_some())
    }

    /// Whether a refused certificate is told upstream, whichever listener the client comes to.
    fn forwards(&self, identity: &ClientIdentity) -> bool {
        let forward = |tls: &Arc<ActiveListener>| {
            tls.settings.on_invalid == listener::InvalidCertPolicy::Forward
        };
        matches!(identity, ClientIdentity::Refused(_)) && self.tls_listeners().all(forward)
    }

    /// The listeners that agents can use: at others no certificate is verified.
    fn tls_listeners(&self) -> impl Iterator<Item = &Arc<ActiveListener>> {
        let listeners = self.generation.listeners.values();
        listeners.filter(|listener| listener.tls.is_some())
    }

    /// Listeners at which this client meets something else than what is told here, by name.
    fn told_apart(
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
            _ => handshake_end(identity, settings),
        };
        self.tls_listeners()
            .filter_map(|tls| Some((&*tls.settings.name, differs(&tls.settings)?)))
            .collect()
    }

    /// What rules can look at in a certificate.
    fn certified(&self, identity: &ClientIdentity) -> Vec<String> {
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

    /// Extensions by OID.
    fn supposed(&self, extensions: &[(String, String)]) -> Result<Vec<(String, String)>, String> {
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
                let extensions = self.supposed(extensions)?;
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

/// Why a listener ends the handshake of this client, if it does.
fn handshake_end(
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

fn has_cookie(sent: &HeaderMap, name: &str) -> bool {
    let fields = sent.get_all(COOKIE).iter();
    let pairs = fields.flat_map(|field| field.as_bytes().split(|byte| *byte == b';'));
    let mut names = pairs.filter_map(|pair| pair.split(|byte| *byte == b'=').next());
    names.any(|found| found.trim_ascii() == name.as_bytes())
}

fn would_refuse(rule: &AccessRule) -> String {
    format!(
        "observed rule {} would refuse this, but it only observes",
        rule.name
    )
}

/// The option that would tell what a condition did not hold for want of.
fn untold(step: &RoutingStep<'_>, asked: &ExplainRequest) -> Option<&'static str> {
    match step {
        RoutingStep::Tried {
            failed: Some(RouteCondition::Source),
            ..
        } if asked.source.is_none() => Some("--source"),
        RoutingStep::Tried {
            failed: Some(RouteCondition::Sni),
            ..
        } if asked.sni.is_none() => Some("--sni"),
        RoutingStep::Tried {
            failed: Some(RouteCondition::Share),
            ..
        } if asked.source.is_none() && matches!(asked.client, ExplainAs::Anonymous) => {
            Some("--source")
        }
        RoutingStep::Tried {
            failed: Some(RouteCondition::Issuer),
            ..
        } => match &asked.client {
            ExplainAs::Certname { issuer: None, .. } => Some("--issuer"),
            _ => None,
        },
        RoutingStep::Tried {
            failed: Some(RouteCondition::Extension),
            ..
        } => match &asked.client {
            ExplainAs::Certname { extensions, .. } if extensions.is_empty() => Some("--extension"),
            _ => None,
        },
        RoutingStep::Rule {
            failed: Some(RuleCondition::Source),
            ..
        } if asked.source.is_none() => Some("--source"),
        RoutingStep::Rule {
            failed: Some(condition),
            ..
        } => match (condition, &asked.client) {
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

/// Authority and origin-form target of a URL, or of a path alone.
fn split(url: &str) -> (Option<&str>, &str) {
    let Some((_, rest)) = url.split_once("://") else {
        return (None, url);
    };
    match rest.find('/') {
        Some(slash) => (Some(&rest[..slash]), &rest[slash..]),
        None => (Some(rest), "/"),
    }
}

/// The headers that say who the client is.
fn told(identity: &ClientIdentity, runtime: &PoolRuntime, plan: &ForwardPlan<'_>) -> String {
    let form = &runtime.rules.form;
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
