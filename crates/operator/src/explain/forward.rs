//! How an explained request is forwarded: its pool, its headers, its members and its wait for one of them.

use std::{fmt::Write as _, net::Ipv4Addr, sync::Arc};

use admin::{ExplainedCopy, ExplainedForward, ExplainedMember, ExplainedQueue};
use balancing::{
    EligibleMembers, MemberPersistence, PickCriteria, RankedMember, key_hash,
    settings::{Algorithm, Role},
    source_hash,
};
use http1::Fields;
use identity::{HeaderForm, HeaderSet, IdentityName};
use proxy::{
    AdmissionForecast, ForecastRequest, IdentitySent, PoolRuntime, ShareHolder, answers_from_copy,
    eligible_members,
};
use routing::{ForwardPlan, RoutePersistence};
use upstream::settings::HttpVersion;

use super::Explained;

impl Explained<'_> {
    pub(super) fn forward(&self, plan: &ForwardPlan<'_>) -> ExplainedForward {
        let generation = &self.explainer.generation;
        let runtime = &generation.pools[plan.pool];
        let rules = [plan.headers(), &runtime.rules.headers];
        let copy = answers_from_copy(generation, plan).map(|(document, age_max)| ExplainedCopy {
            document: document.as_str().to_owned(),
            age_seconds_max: age_max.as_secs(),
        });
        let criteria = self.criteria(plan, runtime);
        let mut order = runtime.pool.order(criteria, self.explainer.now());
        order.retain(|ranked| may_get(plan, runtime, ranked.index));
        ExplainedForward {
            route: plan.route.name.to_string(),
            pool: runtime.pool.name().to_string(),
            copy,
            headers_kept: self.head.kept(rules).map(|name| name.to_string()).collect(),
            headers_removed: self
                .head
                .removed(rules)
                .map(|name| name.to_string())
                .collect(),
            identity: self.identity_headers(runtime, plan),
            upgrade: plan.upgrade().to_vec(),
            member_name: plan.rewrite_member_names().map(str::to_owned),
            certificate_request: plan
                .certificate_request()
                .map(|certname| certname.escape_default().to_string()),
            persistence: plan.persistence().map(|persistence| {
                let applies = criteria.persistence != MemberPersistence::No;
                self.persistence(persistence, applies)
            }),
            order_lacks: order_lacks(plan, runtime, criteria).map(str::to_owned),
            members: order
                .iter()
                .map(|ranked| member(plan, runtime, *ranked))
                .collect(),
            members_assumed_up: self.explainer.running.is_none(),
            queue: self.queue(plan, &criteria),
        }
    }

    fn criteria(&self, plan: &ForwardPlan<'_>, runtime: &PoolRuntime) -> PickCriteria {
        let certname = self.identity.agent().map(|agent| agent.certname());
        let source = self.source;
        let key = self.explainer.persistence.as_ref().ok();
        let stay = |persistence| runtime.stay(persistence, (self.head.fields(), source), key);
        PickCriteria {
            certname: certname.map(|certname| key_hash(certname.as_str().as_bytes())),
            key: plan.bucket_key.map(|key| key_hash(key.as_bytes())),
            source: source.map(source_hash),
            random: 0,
            task: proxy::task(plan, self.is_tunnel(plan)),
            persistence: plan.persistence().map_or(MemberPersistence::No, stay),
        }
    }

    /// Whether the request waits for a member.
    fn queue(&self, plan: &ForwardPlan<'_>, criteria: &PickCriteria) -> ExplainedQueue {
        let explainer = self.explainer;
        let agent = self.identity.agent();
        let certname = agent.map(|agent| Arc::from(agent.certname().as_str()));
        // The requests of an agent are counted by its certname, whatever its address.
        let any_address = certname.is_some().then_some(Ipv4Addr::UNSPECIFIED.into());
        let request = ForecastRequest {
            plan,
            criteria,
            client: self.source.or(any_address).map(|address| ShareHolder {
                certname: certname.as_ref(),
                address,
            }),
            is_tunnel: self.is_tunnel(plan),
        };
        let now = explainer.now();
        match request.forecast(&explainer.generation, explainer.running.as_deref(), now) {
            AdmissionForecast::Runs => ExplainedQueue::DoesNotWait,
            AdmissionForecast::Waits { max, why } => ExplainedQueue::Waits {
                seconds_max: max.as_millis().div_ceil(1000) as u64,
                why,
            },
            AdmissionForecast::Refused { reason, why } => ExplainedQueue::Refused {
                reason: reason.to_owned(),
                why,
            },
        }
    }

    /// Whether the request asks to switch to a protocol that its route allows.
    fn is_tunnel(&self, plan: &ForwardPlan<'_>) -> bool {
        let runtime = &self.explainer.generation.pools[plan.pool];
        let asked = self.upgrade.clone();
        let asked = asked.filter(|_| runtime.settings.http_version != HttpVersion::Http10);
        asked.is_some_and(|asked| asked.allowed(plan.upgrade()).is_some())
    }

    /// Why the client stays with one member, or why not. `applies`: whether it does for this request.
    fn persistence(&self, persistence: &RoutePersistence, applies: bool) -> String {
        match (persistence, applies) {
            (RoutePersistence::Cookie(name), true) => {
                format!("the client stays with the member in its cookie {name}")
            }
            (RoutePersistence::Cookie(name), false) if !has_cookie(self.head.fields(), name) => {
                format!(
                    "the client stays with the member in the proxy's cookie {name}; without the cookie, the order is:"
                )
            }
            (RoutePersistence::Cookie(name), false) => match &self.explainer.persistence {
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

    /// The identity headers that the member gets.
    fn identity_headers(&self, runtime: &PoolRuntime, plan: &ForwardPlan<'_>) -> String {
        let form = &runtime.rules.form;
        match runtime.rules.identity_of(plan) {
            IdentitySent::All => {}
            IdentitySent::Certificate => return format!("{} alone, with a renewal", form.cert),
            IdentitySent::None => {
                return "none, because the CA needs none for this request".to_owned();
            }
        }
        let puppets = form.sends(HeaderSet::Puppet);
        let verdict = self.identity.verdict();
        let mut text = match puppets {
            true => format!("{}: {verdict}", form.verify),
            false => format!("verdict {verdict}, without Puppet's headers"),
        };
        if self.identity.agent().is_none() {
            return text;
        }
        if puppets && *form != HeaderForm::default() {
            let names: Vec<_> = form.dn.iter().map(IdentityName::to_string).collect();
            let names = names.join(", ");
            let _ = write!(text, ", the subject as {} in {names}", form.dn_format);
        }
        if plan.with_certificate_class && (runtime.rules.forward_cert || plan.is_renewal()) {
            let own = puppets.then_some(&form.cert).map(IdentityName::to_string);
            let others = form.other_names().map(|name| name.to_string());
            let names: Vec<_> = own.into_iter().chain(others).collect();
            let (names, max) = (names.join(", "), runtime.rules.forward_cert_bytes_max);
            let _ = write!(text, ", with {names} of up to {max} bytes");
        } else if form.sends(HeaderSet::Xfcc) {
            text.push_str(", with X-Forwarded-Client-Cert without the certificate");
        }
        text
    }
}

/// Whether a member may get the request.
fn may_get(plan: &ForwardPlan<'_>, runtime: &PoolRuntime, index: usize) -> bool {
    let is_backup = runtime.pool.entries()[index].role == Role::Backup;
    let is_writer = runtime.pool.writer() == Some(index);
    match eligible_members(plan) {
        EligibleMembers::Any => true,
        EligibleMembers::WriterOrBackup => is_writer || is_backup,
        EligibleMembers::WriterOnly => is_writer,
    }
}

fn member(plan: &ForwardPlan<'_>, runtime: &PoolRuntime, ranked: RankedMember) -> ExplainedMember {
    let entry = &runtime.pool.entries()[ranked.index];
    let is_backup = entry.role == Role::Backup;
    let is_used = ranked.why.is_used();
    let is_write = eligible_members(plan) != EligibleMembers::Any;
    ExplainedMember {
        address: runtime.members[ranked.index].connector.address.to_string(),
        is_backup,
        priority: entry.priority.into(),
        is_used,
        why: match is_write && is_used {
            true if is_backup => "only while the first is down, and never for a write that may have reached the first".to_owned(),
            true => "gets all writes to the CA, because a write is never repeated".to_owned(),
            false => ranked.why.to_string(),
        },
    }
}

/// What the algorithm of the pool needs and the request does not have.
fn order_lacks(
    plan: &ForwardPlan<'_>,
    runtime: &PoolRuntime,
    criteria: PickCriteria,
) -> Option<&'static str> {
    let is_balanced = eligible_members(plan) == EligibleMembers::Any;
    match runtime.pool.algorithm() {
        _ if !is_balanced || criteria.key.is_some() => None,
        Algorithm::SourceHash if criteria.source.is_none() => Some(
            "picked by the client's address (--source is not set); without an address, the order is:",
        ),
        Algorithm::CertnameHash if criteria.certname.is_none() => {
            Some("picked by the certname; without a verified certname, the order is:")
        }
        _ => None,
    }
}

fn has_cookie(sent: &Fields, name: &str) -> bool {
    let fields = sent.all("cookie");
    let pairs = fields.flat_map(|field| field.split(|byte| *byte == b';'));
    let mut names = pairs.filter_map(|pair| pair.split(|byte| *byte == b'=').next());
    names.any(|found| found.trim_ascii() == name.as_bytes())
}
