//! The request path: every request passes [`handle`].

use std::{cell::Cell, future::pending, panic::resume_unwind, pin::pin, rc::Rc, sync::Arc};

use http::StatusCode;
use http1::RequestHead;
use identity::HeaderRules;
use listener::{ClientVerdict, ConnectionStage};
use routing::{AccessRule, Class, ForwardPlan, RouteDecision};
use telemetry::Limit;
use tokio::task::{JoinError, spawn_local};
use tokio::time::Instant;
use upstream::{MemberHead, settings::HttpVersion};

use crate::{
    attempts::{Attempts, MemberResponse},
    authorization::{UpstreamRequest, question, refused_anywhere},
    body_fault::BodyFault,
    client_body::ClientBody,
    client_response::ClientResponse,
    connection::Conn,
    context::RequestContext,
    edge::{self, EdgeAnswer},
    enrolment::{check_certificate_request, count_stranger, stranger_slot},
    error::ProxyError,
    location,
    member_names::{self, NameRewriter, Unreadable},
    pace::Pace,
    persistence,
    pool_runtime::PoolRuntime,
    reason::LogReason,
    record::ActiveExchange,
    renewal,
    request_id::RequestId,
    respond,
    response_body::{AnswerBody, ResponseBody},
    sanitize::{
        InvalidRequest, SanitizedRequest, check_http2_head, host_of, is_server_wide, sanitize,
    },
    settings::OverlongCert,
    tunnel,
    upgrade::Upgrade,
    upload::{BufferMaxima, Gathered, Upload},
    worker::Worker,
};

/// Handles one request, from its head to a response whose body may still be on its way.
pub(crate) async fn handle(
    worker: Rc<Worker>,
    conn: Rc<Conn>,
    head: RequestHead,
    body: ClientBody,
) -> ClientResponse {
    let began = Instant::now();
    conn.activity.enter_at(ConnectionStage::Busy, began);
    let context = RequestContext::new(worker, conn, began);
    if renewal::outlasts_client(&context.generation, &head) {
        let whole = spawn_local(run_exchange(context, head, body));
        return match whole.await.map_err(JoinError::try_into_panic) {
            Ok(response) => response,
            Err(Ok(panic)) => resume_unwind(panic),
            // The task was cancelled, so the worker is ending.
            Err(Err(_)) => pending().await,
        };
    }
    // Pinned here, because `await` would first copy the five kilobytes of the future.
    pin!(run_exchange(context, head, body)).await
}

async fn run_exchange(
    context: RequestContext,
    head: RequestHead,
    body: ClientBody,
) -> ClientResponse {
    let mut exchange = ActiveExchange::begin(&context, &head, body);
    let passed = pin!(pass(&context, head, &mut exchange)).await;
    let mut response = match passed {
        Ok(Outcome::Answered {
            head,
            body: AnswerBody::Streamed(member),
            pool,
        }) if head.status == StatusCode::SWITCHING_PROTOCOLS => {
            tunnel::open(&context, pool, head, member.into_tunnel(), exchange)
        }
        Ok(Outcome::Answered { head, body, .. }) => {
            let idle = exchange.idle_timeout();
            let close = exchange.is_last();
            let support = exchange.retry_support();
            let body = ResponseBody::member(body, idle, exchange);
            let own_names = &context.generation.own_names;
            respond::from_member(&context.worker, own_names, head, body, close, support)
        }
        Ok(Outcome::Copy(answer)) => respond::from_copy(&answer, exchange),
        Ok(Outcome::Status { available }) => respond::status(available, exchange),
        Ok(Outcome::ServerWide) => respond::server_wide(exchange),
        Err(error) => respond::to_response(&context.worker, &error, exchange),
    };
    // The same id is in the access record and in the request to the member. An operator can therefore find both by the error
    // that an agent shows.
    response
        .fields
        .insert(RequestId::HEADER, context.request_id.to_value());
    response
}

/// Records a request that ended before it was handled. No member is used. `fault`: the client's fault, or `None` if the client
/// only closed or cancelled.
pub(crate) fn give_up(
    worker: &Rc<Worker>,
    conn: &Rc<Conn>,
    (head, body): (&RequestHead, ClientBody),
    fault: Option<BodyFault>,
) {
    let context = RequestContext::new(Rc::clone(worker), Rc::clone(conn), Instant::now());
    let exchange = ActiveExchange::begin(&context, head, body);
    if let Some(fault) = fault {
        drop(respond::to_response(
            worker,
            &ProxyError::Body(fault),
            exchange,
        ));
    }
}

/// How a request is answered, unless it fails.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every request ends in the large one, and a box would cost each an allocation"
)]
enum Outcome<'g> {
    /// With a member's response, which is passed on.
    Answered {
        head: MemberHead,
        body: AnswerBody,
        pool: &'g Arc<PoolRuntime>,
    },
    /// With a document of the CA, from a copy.
    Copy(EdgeAnswer),
    /// With the built-in status response.
    Status { available: bool },
    /// With the response to `OPTIONS *`.
    ServerWide,
}

/// Sanitizes, routes and authorizes the request, and tries members until one responds.
async fn pass<'g>(
    context: &'g RequestContext,
    mut head: RequestHead,
    exchange: &mut ActiveExchange,
) -> Result<Outcome<'g>, ProxyError> {
    let generation = &context.generation;
    if let Some(fault) = head.fault {
        return Err(ProxyError::InvalidRequest(InvalidRequest::Head(fault)));
    }
    if let Some(streams) = &context.conn.streams {
        check_http2_head(&head, streams.head_bytes_max).map_err(ProxyError::InvalidRequest)?;
    }
    // Most heads have no `Upgrade` field, so they are not searched for it.
    let upgrade = if head.has_upgrade {
        Upgrade::requested_by(&mut head, exchange.upload.finished().is_none())
    } else {
        None
    };
    if is_server_wide(&head) {
        return refused_anywhere(&context.verdict).map_or(Ok(Outcome::ServerWide), Err);
    }
    let SanitizedRequest {
        method,
        target,
        scrubbed,
        scrubbing,
    } = sanitize(head, &generation.own_names).map_err(ProxyError::InvalidRequest)?;
    exchange.scrubbed(scrubbing);
    let question = question(context, (&method, &target), scrubbed.fields())?;
    let decision = generation.routes.find(&question);
    let none = HeaderRules::default();
    let header_rules = match &decision {
        RouteDecision::Forward(plan) => {
            [plan.headers(), &generation.pools[plan.pool].rules.headers]
        }
        RouteDecision::Status(_) | RouteDecision::Refuse(_) => [&none; 2],
    };
    exchange.scrubbed(scrubbed.unkept(header_rules));
    let plan = match decision {
        RouteDecision::Forward(plan) => plan,
        RouteDecision::Status(observed) => return Ok(status(context, observed, exchange)),
        RouteDecision::Refuse(refusal) => return Err(ProxyError::Refused(Box::new(refusal))),
    };
    exchange.routed(&plan);
    if let Some(rule) = plan.observed {
        exchange.observed(rule, plan.endpoint.class);
    }
    let pool = &generation.pools[plan.pool];
    let copies = &context.worker.shared.edge;
    if let Some(answer) = edge::answer(copies, generation, &plan, scrubbed.fields()) {
        return Ok(Outcome::Copy(answer));
    }
    let with_certificate = admit_request(context, &plan, pool, exchange).await?;
    let speaks_http10 = pool.settings.http_version == HttpVersion::Http10;
    let upgrade = upgrade.filter(|_| !speaks_http10);
    let upgrade = upgrade.and_then(|asked| asked.allowed(plan.upgrade()));
    let by_rules = scrubbed.with_rules(header_rules);
    let request = UpstreamRequest {
        method: &method,
        target: &target,
        scrubbed: by_rules.as_ref().unwrap_or(&scrubbed),
        upgrade: upgrade.as_ref(),
    };
    let stay = persistence::stay(context, pool, &plan, scrubbed.fields());
    let attempts = Attempts {
        context,
        pool,
        plan: &plan,
        with_certificate,
        stay,
        tried_home: Cell::new(false),
        request,
    };
    let MemberResponse { mut head, body } = attempts
        .run(generation.settings.attempts_max, exchange)
        .await?;
    let answered_by = (exchange.lease.as_ref(), attempts.tried_home.get());
    persistence::note_answer(context, &plan, stay, answered_by, &mut head.fields);
    if pool.rules.proxy_pass_reverse {
        location::rewrite(pool, host_of(scrubbed.fields()), &mut head.fields);
    }
    let body = match body {
        AnswerBody::Streamed(body) if plan.is_renewal() => {
            let member = exchange.member();
            Box::pin(renewal::verify_response(
                context, pool, &member, &head, body,
            ))
            .await?
        }
        AnswerBody::Streamed(body) => match rewriter(&plan, pool, &mut head, exchange)? {
            Some(rewriter) => AnswerBody::Rewritten(body, rewriter),
            None => AnswerBody::Streamed(body),
        },
        body => body,
    };
    Ok(Outcome::Answered { head, body, pool })
}

/// Admits a request and its body to its pool. Returns whether the client's certificate is forwarded with it.
async fn admit_request(
    context: &RequestContext,
    plan: &ForwardPlan<'_>,
    pool: &Arc<PoolRuntime>,
    exchange: &mut ActiveExchange,
) -> Result<bool, ProxyError> {
    if plan.is_renewal() {
        // Boxed, so that other requests need no room for it.
        Box::pin(renewal::admit(context, pool)).await?;
    }
    let with_certificate = has_certificate(plan, pool, &context.verdict)?;
    count_stranger(context, plan)?;
    let upload = Rc::clone(&exchange.upload);
    admit_body(&upload, plan, (&context.conn, pool))?;
    buffer_body(context, &upload).await?;
    if pool.settings.http_version == HttpVersion::Http10 && upload.length_unknown() {
        return Err(ProxyError::LengthRequired);
    }
    if let Some(certname) = plan.certificate_request() {
        // Boxed, so that requests without a certificate request need no room for it.
        let csr = &context.generation.csr;
        Box::pin(check_certificate_request(csr, certname, &upload, exchange)).await?;
    }
    exchange.stranger_slot = stranger_slot(context, plan, pool)?;
    Ok(with_certificate)
}

/// The rewriter of member names, if the route has one.
///
/// # Errors
/// Names cannot be replaced in the text of the response. A client would run the text with the name of a member in it.
fn rewriter(
    plan: &ForwardPlan<'_>,
    pool: &PoolRuntime,
    head: &mut MemberHead,
    exchange: &ActiveExchange,
) -> Result<Option<Box<NameRewriter>>, ProxyError> {
    let Some(front) = plan.rewrite_member_names() else {
        return Ok(None);
    };
    member_names::rewrite(pool, front, head).map_err(|Unreadable| ProxyError::Answer {
        member: exchange.member(),
        reason: LogReason::EncodedText,
    })
}

/// The status response, which shows whether a compiler is available.
fn status<'g>(
    context: &'g RequestContext,
    observed: Option<&AccessRule>,
    exchange: &mut ActiveExchange,
) -> Outcome<'g> {
    if let Some(rule) = observed {
        exchange.observed(rule, Class::Status);
    }
    let generation = &context.generation;
    let available = generation.status_pool.is_some_and(|pool| {
        generation.pools[pool]
            .pool
            .is_available(context.worker.shared.now())
    });
    Outcome::Status { available }
}

/// Whether the client's certificate is forwarded with the request.
///
/// # Errors
/// The certificate is required, and is too large for the pool's servers.
fn has_certificate(
    plan: &ForwardPlan<'_>,
    pool: &PoolRuntime,
    verdict: &ClientVerdict,
) -> Result<bool, ProxyError> {
    let (rules, renewal) = (&pool.rules, plan.is_renewal());
    let max = rules.forward_cert_bytes_max;
    let refused = |bytes| {
        Err(ProxyError::OverlongCertificate {
            pool: Arc::clone(pool.pool.name()),
            bytes,
            max,
        })
    };
    let forwards = plan.with_certificate_class && (rules.forward_cert || renewal);
    if forwards {
        let bytes = verdict.headers.certificate_length(&rules.form);
        match rules.overlong_cert {
            _ if bytes <= max => return Ok(true),
            // Without the header the CA would renew another certificate.
            OverlongCert::Omit if !renewal => _ = pool.metrics.certificates_omitted.inc(),
            OverlongCert::Omit | OverlongCert::Refuse => return refused(bytes),
        }
    }
    // The names may be too large even without the certificate. Truncated, they could be another client's names.
    match verdict.headers.digest_length(&rules.form) {
        bytes if bytes <= max => Ok(false),
        bytes => refused(bytes),
    }
}

/// Refuses a body whose declared length is too large, before any of it is read.
fn admit_body(
    upload: &Upload,
    plan: &ForwardPlan<'_>,
    (conn, pool): (&Conn, &PoolRuntime),
) -> Result<(), ProxyError> {
    let pace = Pace::new(conn.rates.body_min, conn.rates.grace);
    upload.allow(plan.body_bytes_max, pool.settings.idle_timeout, pace);
    upload.check_length().map_err(ProxyError::Body)
}

/// Waits until a body is complete or larger than the buffer, so that a slow client does not hold a connection to a member. If
/// the memory for buffers is used up, the request continues at once and its body is streamed.
async fn buffer_body(context: &RequestContext, upload: &Upload) -> Result<(), ProxyError> {
    let settings = &context.generation.settings;
    let maxima = BufferMaxima {
        body: settings.body_buffer_bytes_max,
        all: settings.body_buffers_bytes_max,
    };
    let charge = || {
        context
            .worker
            .shared
            .shares
            .charge(context.client_accounts())
    };
    match upload.gather(maxima, charge).await {
        Ok(Gathered::Enough) => Ok(()),
        Ok(Gathered::NoRoom) => {
            context.conn.metrics.limit(Limit::BodyBuffers);
            Ok(())
        }
        Err(fault) => Err(ProxyError::Body(fault)),
    }
}
