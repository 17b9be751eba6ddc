//! Checks before a request is sent to the CA: the rate limit and the slot of a client without a verified certificate, and the
//! rules for certificate requests.

use std::time::Duration;

use listener::ClientVerdict;
use pki::{CsrPolicy, CsrRefusal};
use routing::ForwardPlan;

use crate::{
    context::RequestContext, error::ProxyError, pool_runtime::PoolRuntime, record::ActiveExchange,
    settings::CaSettings, strangers::StrangerSlot, upload::Upload,
};

/// Counts a request to the CA from a client without a verified certificate.
///
/// # Errors
/// The client's address, or all such clients together, send too many requests.
pub(crate) fn count_stranger(
    context: &RequestContext,
    plan: &ForwardPlan<'_>,
) -> Result<(), ProxyError> {
    if !is_strangers(plan, &context.verdict) {
        return Ok(());
    }
    let worker = &context.worker;
    let (shared, client) = (&worker.shared, context.conn.downstream.client.ip());
    let (rates, now) = (&context.generation.ca.rates, shared.now());
    let counted = shared.strangers.count(rates, client, now, worker.random());
    counted.map_err(ProxyError::TooSoon)
}

/// Takes a slot of the CA for a request from a client without a verified certificate. Other requests need no slot.
///
/// # Errors
/// All slots that such clients, or this address, may hold are in use.
pub(crate) fn stranger_slot(
    context: &RequestContext,
    plan: &ForwardPlan<'_>,
    pool: &PoolRuntime,
) -> Result<Option<StrangerSlot>, ProxyError> {
    if !is_strangers(plan, &context.verdict) {
        return Ok(None);
    }
    let shared = &context.worker.shared;
    let max = in_flight_max(context.generation.ca, pool, shared.now());
    let client = context.conn.downstream.client.ip();
    let slot = shared.strangers.take_slot(client, max);
    slot.map(Some).map_err(ProxyError::CaBusy)
}

fn is_strangers(plan: &ForwardPlan<'_>, verdict: &ClientVerdict) -> bool {
    plan.endpoint.class.is_ca() && !plan.route.unguarded && verdict.identity().agent().is_none()
}

/// The configured maximum, or three quarters of the lowest limit of a member in the active tier if that is less. Each member's
/// limit counts, because a write goes to only one member.
fn in_flight_max(settings: CaSettings, pool: &PoolRuntime, now: Duration) -> u32 {
    let tier = pool.pool.active_tier(now);
    let entries = pool.pool.entries().iter();
    let entries_in_turn = entries.filter(|entry| entry.tier == tier);
    let least = entries_in_turn
        .map(|entry| entry.in_flight_max)
        .fold(u32::MAX, u32::min);
    settings
        .anonymous_in_flight_max
        .min(least - least.div_ceil(4))
        .max(1)
}

/// Reads a certificate request completely and checks it. The member gets exactly the bytes that were checked.
pub(crate) async fn check_certificate_request(
    policy: &CsrPolicy,
    certname: &str,
    upload: &Upload,
    exchange: &mut ActiveExchange,
) -> Result<(), ProxyError> {
    upload.read_whole().await.map_err(ProxyError::Body)?;
    match policy.check(certname, &upload.read_so_far()) {
        Ok(()) => Ok(()),
        Err(refusal) if policy.observes() => {
            observed(&refusal, exchange);
            Ok(())
        }
        Err(refusal) => Err(ProxyError::Csr(Box::new(refusal))),
    }
}

fn observed(refusal: &CsrRefusal, exchange: &mut ActiveExchange) {
    let (reason, what) = (refusal.rule.reason(), &refusal.what);
    exchange.csr_observed(reason);
    exchange.set_cause(format!("observed only: {reason}: {what}"));
}
