//! All members, examined at the same time: each must be reachable, have a valid certificate, and behave as its pool
//! needs.

use std::sync::Arc;

use http::StatusCode;
use pki::{Credential, MemberError};
use routing::pool_names;
use rustls_pki_types::UnixTime;
use tokio::{sync::Semaphore, task::JoinSet};
use upstream::{QueryError, QueryResponse};

use crate::{
    Check, DoctorOptions, DoctorReport, FindingSeverity, certificates,
    claimed_identity::{self, ProxyIdentity},
    clock, direct_access, environments, forged_headers,
    member::{Member, MemberContext, Role, STATUS, role},
    member_services, passthrough, request_head_size, unreachable_members,
};
use lifecycle::PreparedStart;

/// Maximum number of members that are examined at the same time.
const MEMBERS_AT_ONCE_MAX: usize = 32;
pub(crate) async fn examine(
    examination: &DoctorOptions,
    prepared: &PreparedStart,
    proxy_identity: Option<ProxyIdentity>,
    agent: Option<Credential>,
    report: &mut DoctorReport,
) {
    let places = Arc::new(Semaphore::new(MEMBERS_AT_ONCE_MAX));
    let mut examined = JoinSet::new();
    let pools = prepared.config().pools.iter().zip(prepared.pools());
    for (pool, runtime) in pools {
        for (entry, connector) in runtime.pool.entries().iter().zip(runtime.connectors()) {
            let about = format!("{} in pool {}", connector.address, pool.pool.name);
            let asked = MemberContext {
                examination,
                prepared,
                pool,
                addresses: connector.addresses(),
                server_name: entry.server_name.as_deref(),
                agent: agent.as_ref(),
                about: &about,
            };
            let member = Member {
                role: role(pool, prepared),
                by_name: matches!(&*pool.pool.name, pool_names::CA | pool_names::COMPILERS),
                check: pool.pool.check.clone(),
                connector: Arc::clone(connector),
                otherwise: asked.otherwise(&connector.address),
                access_paths: direct_access::access_paths(&asked, connector, report),
                rules: pool.rules.clone(),
                proxy_identity: proxy_identity.clone(),
                trust: Arc::clone(prepared.trust()),
                fetches: prepared.config().trust.fetch.is_some(),
                about: about.clone(),
            };
            let places = Arc::clone(&places);
            if pool.rules.passthrough.is_used {
                for form in passthrough::forms(prepared) {
                    let member = passthrough::member(&asked, member.clone(), connector, form);
                    let places = Arc::clone(&places);
                    examined.spawn(async move {
                        let _place = places.acquire().await;
                        passthrough::examine(member).await
                    });
                }
                continue;
            }
            examined.spawn(async move {
                let _place = places.acquire().await;
                member.examine().await
            });
        }
    }
    while let Some(examined) = examined.join_next().await {
        match examined {
            Ok(examined) => report.append(examined),
            // The findings of this member are missing, so nothing is reported as passed.
            Err(error) => member_services::unclear(
                Check::MemberReached,
                "a member",
                format!("its examination failed: {error}"),
                report,
            ),
        }
    }
}

impl Member {
    async fn examine(mut self) -> DoctorReport {
        let mut report = DoctorReport::default();
        let now = UnixTime::now();
        let answer = match self.reach(&mut report).await {
            Ok(answer) => answer,
            Err(error) => {
                // Both run at the same time, so that a member that is down delays nothing.
                let mut access_paths = DoctorReport::default();
                tokio::join!(
                    unreachable_members::report_outcome(&self, &error, &mut report),
                    direct_access::examine_unreached(&self, &mut access_paths)
                );
                report.append(access_paths);
                return report;
            }
        };
        if !self.by_name && !self.has_nodes().await {
            self.role = Role::Other;
        }
        clock::examine(&self.about, &answer.headers, now, &mut report);
        self.certificate(&answer, now, &mut report);
        member_services::status(&self, &answer, &mut report).await;
        match self.role {
            Role::Ca => {
                let is_ca = member_services::ca(&self, &mut report).await;
                forged_headers::ca(&self, is_ca, &mut report).await;
            }
            Role::Compiler => {
                member_services::compiler(&self, &mut report).await;
                member_services::jrubies(&self, &mut report).await;
                environments::examine(&self, &mut report).await;
                forged_headers::compiler(&self, &answer, &mut report).await;
                request_head_size::examine(&self, &answer, &mut report).await;
            }
            Role::Other => {}
        }
        if self.role != Role::Other {
            direct_access::examine(&self, &mut report).await;
        }
        report
    }

    /// Whether the member serves nodes: PuppetDB has a status service, but no other service of a Puppet Server.
    async fn has_nodes(&self) -> bool {
        let path = self.node(claimed_identity::UNKNOWN_NAME);
        let answer = self
            .query_as_proxy(&path, claimed_identity::unknown_client(self.form()))
            .await;
        // A member that does not answer may be of any kind, so it is examined further, and the tests that remain
        // unclear are reported.
        answer.map_or(true, |answer| answer.status != StatusCode::NOT_FOUND)
    }

    async fn reach(&self, report: &mut DoctorReport) -> Result<QueryResponse, QueryError> {
        let about = &self.about;
        let unknown = claimed_identity::unknown_client(self.form());
        let answer = self.query(&self.connector, STATUS, unknown).await?;
        report.passed(Check::MemberReached, about);
        if answer.certificate.is_some() {
            report.passed(Check::CredentialAccepted, about);
        }
        Ok(answer)
    }

    fn certificate(&self, answer: &QueryResponse, now: UnixTime, report: &mut DoctorReport) {
        if let Some(Err(error)) = answer
            .certificate
            .as_ref()
            .map(|own| self.trust.check_member(own, now))
        {
            let remedy = "the proxy does not send requests to it: issue another certificate for that server, or remove it from `members`";
            let found =
                MemberError::find(&error).map_or_else(|| error.to_string(), ToString::to_string);
            return report.found(
                Check::MemberCertificate,
                FindingSeverity::Failure,
                &self.about,
                found,
                remedy,
            );
        }
        let facts = answer.certificate.as_deref().and_then(pki::facts_of);
        let Some(facts) = facts else { return };
        match certificates::time(facts.not_before, facts.not_after, now) {
            None => report.passed(Check::MemberCertificate, &self.about),
            Some((grade, found)) => report.found(
                Check::MemberCertificate,
                grade,
                &self.about,
                format!("its certificate {}: {found}", facts.subject),
                "renew it on that server before the proxy refuses it",
            ),
        }
    }
}
