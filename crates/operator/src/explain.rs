//! `explain`: where a request would go and why. It calls the same functions as a request.

mod client;
mod forward;

use std::{net::IpAddr, path::Path, sync::Arc, time::Duration};

use admin::{
    ExplainError, ExplainRequest, ExplainedOutcome, ExplainedRefusal, ExplainedStep,
    RequestExplanation,
};
use config::ConfigReport;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header::HOST};
use http1::{FieldName, Fields};
use identity::{ClientIdentity, HeaderRules};
use lifecycle::{App, Options, RestoredGeneration};
use listener::{ActiveListener, ClientCertPolicy};
use pki::PersistenceKey;
use proxy::{Generation, Shared, Upgrade};
use routing::{
    CanonicalPath, RouteCondition, RouteDecision, RouteExplanation, RouteRefusal, RoutingRequest,
    RoutingStep, RuleCondition,
};
use upstream::Scrubbed;

/// A prepared configuration that explains requests.
#[derive(Debug)]
pub struct Explainer {
    generation: Arc<Generation>,
    /// Why blocks are not applied.
    without_blocks: Option<String>,
    /// The key of persistence cookies, or why it cannot be read.
    persistence: Result<PersistenceKey, String>,
    /// The counts of the running proxy. `None` if no proxy runs: every member is then assumed up and idle.
    running: Option<Arc<Shared>>,
}

/// Prepares the configuration without listening.
///
/// # Errors
/// The report that a start would print.
pub fn prepare_for_explain(options: &Options) -> Result<Explainer, ConfigReport> {
    let restored = RestoredGeneration::new(options)?;
    assume_up(&restored.generation);
    Ok(Explainer {
        generation: Arc::new(restored.generation),
        // An account that may not read the blocks gets an answer too, which says that they are not applied.
        without_blocks: restored.without_blocks,
        persistence: restored
            .persistence_key
            .and_then(|key| key.ok_or_else(|| "the proxy has not stored one".to_owned())),
        running: None,
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

/// A request that is being explained.
struct Explained<'a> {
    explainer: &'a Explainer,
    request: &'a ExplainRequest,
    method: Method,
    source: Option<IpAddr>,
    listener: Option<&'a str>,
    identity: ClientIdentity,
    head: Scrubbed,
    /// The protocols that the request asks to switch to.
    upgrade: Option<Upgrade>,
    /// Whether every listener forwards requests of this client although its certificate is refused.
    failed_is_forwarded: bool,
}

impl Explainer {
    /// Explains what the running proxy does now: with the health and the queues of its members.
    pub(crate) fn live(app: &App) -> Self {
        Self {
            generation: app.active().generation(),
            without_blocks: None,
            persistence: Ok(app.active().shared().persistence.clone()),
            running: Some(Arc::clone(app.active().shared())),
        }
    }

    /// Time since the start of the running proxy.
    fn now(&self) -> Duration {
        self.running
            .as_ref()
            .map_or(Duration::ZERO, |running| running.now())
    }

    /// Explains path rule, class, route, access and pool, and the order of members with the reason for each.
    /// `certificate`: the file with the certificate that the client presents (PEM), in place of a certname.
    ///
    /// # Errors
    /// The request is invalid, or the certificate cannot be read.
    pub fn explain(
        &self,
        request: &ExplainRequest,
        certificate: Option<&Path>,
    ) -> Result<RequestExplanation, ExplainError> {
        let method: Result<Method, _> = request.method.parse();
        let method = method.map_err(|_| ExplainError::Method(request.method.clone()))?;
        let source = request.source.as_ref().map(|source| {
            let address = source.parse::<IpAddr>();
            address.map_err(|_| ExplainError::Source(source.clone()))
        });
        let listener = self.listener(request)?;
        let is_anonymous =
            listener.is_some_and(|tls| tls.settings.client_cert == ClientCertPolicy::None);
        let identity = match is_anonymous && request.listener.is_some() {
            true => ClientIdentity::Anonymous,
            false => self.identity(request, certificate)?,
        };
        let (authority, target) = split(&request.url);
        let fields = Fields::from(&header_fields(request, authority)?);
        let upgrade = Upgrade::requested(&method, &fields, false);
        let (head, removed) = Scrubbed::new(fields, &self.generation.own_names);
        let unkept = head.unkept([&HeaderRules::default(); 2]);
        let explained = Explained {
            explainer: self,
            request,
            method,
            source: source.transpose()?,
            listener: listener.map(|tls| &*tls.settings.name),
            failed_is_forwarded: self.forwards(&identity),
            identity,
            head,
            upgrade,
        };
        let decided = explained.decide(target);
        Ok(RequestExplanation {
            is_refused: matches!(decided.outcome, ExplainedOutcome::Refused(_))
                || self.no_listener_accepts(&explained.identity),
            blocks_not_applied: self.without_blocks.clone(),
            client: self.client(&explained.identity),
            listeners: self.differing_listeners(&explained),
            headers_removed: removed.identity
                + removed.underscore
                + unkept.identity
                + unkept.underscore,
            path: target.split('?').next().unwrap_or_default().to_owned(),
            steps: decided.steps,
            observed_rule: decided.observed_rule,
            outcome: decided.outcome,
        })
    }

    /// The listener that accepts the connection: the one that the request names, or the only one.
    fn listener(&self, request: &ExplainRequest) -> Result<Option<&ActiveListener>, ExplainError> {
        let mut listeners = self.tls_listeners();
        match &request.listener {
            Some(name) => match listeners.find(|tls| *tls.settings.name == **name) {
                Some(listener) => Ok(Some(listener)),
                None => Err(ExplainError::Listener(name.clone())),
            },
            None => Ok(listeners.next().filter(|_| listeners.next().is_none())),
        }
    }

    /// The listeners that agents can use. Other listeners verify no certificate.
    fn tls_listeners(&self) -> impl Iterator<Item = &ActiveListener> {
        let listeners = self
            .generation
            .listeners
            .values()
            .map(|listener| &**listener);
        listeners.filter(|listener| listener.tls.is_some())
    }
}

/// The decision of the route table.
struct Decided {
    steps: Vec<ExplainedStep>,
    observed_rule: Option<String>,
    outcome: ExplainedOutcome,
}

impl Explained<'_> {
    fn decide(&self, target: &str) -> Decided {
        let bad_target = |reason, text| Decided {
            steps: Vec::new(),
            observed_rule: None,
            outcome: ExplainedOutcome::Refused(ExplainedRefusal {
                status: 400,
                reason: String::from(reason),
                text,
                needs_legacy_routes: false,
            }),
        };
        let uri: Uri = match target.parse() {
            Ok(uri) => uri,
            Err(error) => return bad_target("bad-target", format!("{error}")),
        };
        let path = match CanonicalPath::of_target(uri.path(), uri.query()) {
            Ok(path) => path,
            Err(problem) => return bad_target("bad-path", problem.to_string()),
        };
        let host = self.head.fields().get(FieldName::Host);
        let RouteExplanation { steps, decision } =
            self.explainer.generation.routes.explain(&RoutingRequest {
                method: &self.method,
                path,
                query: uri.query(),
                listener: self.listener,
                host: host.and_then(|host| std::str::from_utf8(host).ok()),
                fields: self.head.fields(),
                source: self.source,
                sni: self.request.sni.as_deref(),
                identity: &self.identity,
                failed_is_forwarded: self.failed_is_forwarded,
            });
        let (observed, outcome) = match decision {
            RouteDecision::Status(observed) => (observed, ExplainedOutcome::Status),
            RouteDecision::Refuse(refusal) => (None, ExplainedOutcome::Refused(refused(refusal))),
            RouteDecision::Forward(plan) => {
                let forward = self.forward(&plan);
                (
                    plan.observed,
                    ExplainedOutcome::Forwarded(Box::new(forward)),
                )
            }
        };
        Decided {
            steps: steps.iter().map(|step| self.step(step)).collect(),
            observed_rule: observed.map(|rule| rule.name.to_string()),
            outcome,
        }
    }

    fn step(&self, step: &RoutingStep<'_>) -> ExplainedStep {
        let (route, rule, failed_condition, missing_option) = match step {
            RoutingStep::Tried { route, failed } => (
                Some(route.name.to_string()),
                None,
                failed.map(|failed| failed.to_string()),
                failed.and_then(|failed| self.option_for_route(failed)),
            ),
            RoutingStep::Rule { rule, failed } => (
                None,
                Some(rule.name.to_string()),
                failed.map(|failed| failed.to_string()),
                failed.and_then(|failed| self.option_for_rule(failed)),
            ),
            _ => (None, None, None, None),
        };
        ExplainedStep {
            text: step.to_string(),
            route,
            rule,
            failed_condition,
            missing_option: missing_option.map(str::to_owned),
        }
    }

    /// The command line option without which a condition of a route could not match.
    fn option_for_route(&self, condition: RouteCondition) -> Option<&'static str> {
        let request = self.request;
        match condition {
            RouteCondition::Source => self.option_for_rule(RuleCondition::Source),
            RouteCondition::Issuer => self.option_for_rule(RuleCondition::Issuer),
            RouteCondition::Extension => self.option_for_rule(RuleCondition::Extension),
            RouteCondition::Sni => request.sni.is_none().then_some("--sni"),
            RouteCondition::Listener => request.listener.is_none().then_some("--listener"),
            RouteCondition::Share if matches!(self.identity, ClientIdentity::Anonymous) => {
                self.option_for_rule(RuleCondition::Source)
            }
            _ => None,
        }
    }

    /// The command line option without which a condition of an access rule could not match.
    fn option_for_rule(&self, condition: RuleCondition) -> Option<&'static str> {
        let request = self.request;
        let by_name = request.certname.is_some();
        match condition {
            RuleCondition::Source => request.source.is_none().then_some("--source"),
            RuleCondition::Issuer if by_name => request.issuer.is_none().then_some("--issuer"),
            RuleCondition::Extension if by_name => {
                request.extensions.is_empty().then_some("--extension")
            }
            _ => None,
        }
    }
}

fn refused(refusal: RouteRefusal) -> ExplainedRefusal {
    ExplainedRefusal {
        status: refusal.status,
        reason: refusal.reason.as_str().to_owned(),
        text: refusal.text,
        needs_legacy_routes: refusal.needs_legacy_routes,
    }
}

fn header_fields(
    request: &ExplainRequest,
    authority: Option<&str>,
) -> Result<HeaderMap, ExplainError> {
    let mut fields = HeaderMap::new();
    if let Some(authority) = authority {
        let host = HeaderValue::from_str(authority);
        fields.insert(
            HOST,
            host.map_err(|_| ExplainError::Host(authority.to_owned()))?,
        );
    }
    for field in &request.headers {
        let name: Result<HeaderName, _> = field.name.parse();
        let value = HeaderValue::from_str(&field.value);
        fields.append(
            name.map_err(|_| ExplainError::HeaderName(field.name.clone()))?,
            value.map_err(|_| ExplainError::HeaderValue(field.value.clone()))?,
        );
    }
    Ok(fields)
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
