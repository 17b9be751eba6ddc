//! What stands before the CA: certificate requests are judged, and clients without a verified certificate have limits,
//! so that whatever they do leaves room for those who have one.

use std::{sync::Arc, time::Duration};

use balancing::RateLimiter;
use listener::ClientVerdict;
use pki::{CsrPolicy, CsrRefusal};
use routing::ForwardPlan;

use crate::{
    context::RequestContext,
    error::ProxyError,
    generation::PoolRuntime,
    record::Exchanged,
    settings::CaSettings,
    strangers::{StrangerSlot, StrangerSlots},
    upload::Upload,
};

/// What clients without a verified certificate have asked of the CA, over all workers and generations.
#[derive(Debug)]
pub(crate) struct Strangers {
    rates: RateLimiter,
    places: Arc<StrangerSlots>,
}

impl Strangers {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rates: RateLimiter::new(seed),
            places: Arc::default(),
        }
    }

    /// Counts a request, unless its address or all have asked too often. Those who have a verified certificate, and those
    /// who ask nothing of the CA, are not counted.
    pub(crate) fn count(
        context: &RequestContext,
        plan: &ForwardPlan<'_>,
    ) -> Result<(), ProxyError> {
        if !is_strangers(plan, &context.verdict) {
            return Ok(());
        }
        let worker = &context.worker;
        let (shared, client) = (&worker.shared, context.conn.downstream.client.ip());
        let (rates, now) = (&context.generation.ca.rates, shared.now());
        let counted = shared
            .strangers
            .rates
            .count(rates, client, now, worker.random());
        counted.map_err(ProxyError::TooSoon)
    }

    /// Takes a place among the requests that the CA works on, where one is needed, unless all that strangers may have are
    /// taken.
    pub(crate) fn place(
        context: &RequestContext,
        plan: &ForwardPlan<'_>,
        pool: &PoolRuntime,
    ) -> Result<Option<StrangerSlot>, ProxyError> {
        if !is_strangers(plan, &context.verdict) {
            return Ok(None);
        }
        let shared = &context.worker.shared;
        let max = in_flight_max(context.generation.ca, pool, shared.now());
        let places = &shared.strangers.places;
        let place = places.take(context.conn.downstream.client.ip(), max);
        place.map(Some).map_err(ProxyError::CaBusy)
    }
}

fn is_strangers(plan: &ForwardPlan<'_>, verdict: &ClientVerdict) -> bool {
    plan.endpoint.class.is_ca() && !plan.route.unguarded && verdict.identity().agent().is_none()
}

/// What is set, and never more than three quarters of what any member takes whose turn it is: a write goes to one of
/// them.
fn in_flight_max(settings: CaSettings, pool: &PoolRuntime, now: Duration) -> u32 {
    let tier = pool.pool.tier_in_turn(now);
    let entries = pool.pool.entries().iter();
    let in_turn = entries.filter(|entry| entry.tier == tier);
    let least = in_turn
        .map(|entry| entry.in_flight_max)
        .fold(u32::MAX, u32::min);
    settings
        .anonymous_in_flight_max
        .min(least - least.div_ceil(4))
        .max(1)
}

/// Reads a certificate request whole and judges it. The bytes that are judged are those that are sent.
pub(crate) async fn check_certificate_request(
    policy: &CsrPolicy,
    certname: &str,
    upload: &Upload,
    exchanged: &mut Exchanged,
) -> Result<(), ProxyError> {
    upload.read_whole().await.map_err(ProxyError::Body)?;
    match policy.judge(certname, &upload.read_so_far()) {
        Ok(()) => Ok(()),
        Err(refusal) if policy.observes() => {
            observed(&refusal, exchanged);
            Ok(())
        }
        Err(refusal) => Err(ProxyError::Csr(Box::new(refusal))),
    }
}

fn observed(refusal: &CsrRefusal, exchanged: &mut Exchanged) {
    let (reason, what) = (refusal.rule.reason(), &refusal.what);
    exchanged.csr_observed(reason);
    exchanged.because(format!("observed only: {reason}: {what}"));
}
