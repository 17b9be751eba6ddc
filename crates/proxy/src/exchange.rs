//! The request path in one function: every request passes [`handle`].

use std::{cell::RefCell, future::pending, panic::resume_unwind, rc::Rc, sync::Arc, time::Instant};

use http::{Request, Response, StatusCode, request, response};
use hyper::upgrade::OnUpgrade;
use identity::ClientIdentity;
use listener::{Stage, Standing};
use routing::{CanonicalPath, Class, Decision, Plan, Question, RouteRefusal};
use tokio::task::{JoinError, spawn_local};
use upstream::{Exchange, Lent};

use crate::{
    attempts::{Attempts, Outgoing},
    body_fault::BodyFault,
    client_body::ClientBody,
    connection::Conn,
    edge,
    enrolment::{Strangers, judge_request},
    error::ProxyError,
    generation::{Generation, PoolRuntime},
    record::Exchanged,
    renewal, respond,
    response_body::{AnswerBody, ResponseBody},
    sanitize::{Insane, Sane, host_of, is_server_wide, sanitize},
    settings::OverlongCert,
    stream, tunnel,
    upgrade::Upgrade,
    upload::{RequestBody, Upload},
    worker::{RequestId, Worker},
};

/// One request, from its head to a response whose body may still be on its way.
pub(crate) async fn handle(
    worker: Rc<Worker>,
    conn: Rc<Conn>,
    request: Request<impl Into<ClientBody>>,
) -> Response<ResponseBody> {
    let began = Instant::now();
    conn.activity.enter_at(Stage::Busy, began);
    // One request sees one generation from start to end.
    let generation = worker.current();
    let (head, body) = request.into_parts();
    let asked = (head, body.into());
    if renewal::outlasts_client(&generation, &asked.0) {
        let whole = spawn_local(exchange(worker, conn, generation, began, asked));
        return match whole.await.map_err(JoinError::try_into_panic) {
            Ok(response) => response,
            Err(Ok(panic)) => resume_unwind(panic),
            // The worker ends, and this with it.
            Err(Err(_)) => pending().await,
        };
    }
    exchange(worker, conn, generation, began, asked).await
}

async fn exchange(
    worker: Rc<Worker>,
    conn: Rc<Conn>,
    generation: Arc<Generation>,
    began: Instant,
    (head, body): (request::Parts, ClientBody),
) -> Response<ResponseBody> {
    let request_id = worker.request_id();
    let asked = (&head, body);
    let mut exchanged = Exchanged::begin(&worker, &conn, &generation, began, asked, &request_id);
    let standing = conn.standing(&generation.trust, exchanged.when());
    exchanged.identified(&standing);
    match pass(
        &worker,
        &conn,
        &generation,
        &standing,
        head,
        &request_id,
        &mut exchanged,
    )
    .await
    {
        Ok(Passed {
            head,
            body,
            lent,
            pool,
        }) => {
            if head.status == StatusCode::SWITCHING_PROTOCOLS {
                let to = (&*generation, pool);
                return Box::pin(tunnel::open(&worker, &conn, to, head, lent, exchanged)).await;
            }
            exchanged.lent = Some(lent);
            let idle = exchanged.idle_timeout();
            let close = exchanged.is_last();
            let body = ResponseBody::member(body, idle, exchanged);
            respond::from_member(&worker, &generation.own_names, head, body, close)
        }
        Err(ProxyError::Edge(answer)) => respond::from_copy(&answer, exchanged),
        Err(error) => respond::to_response(&worker, &error, exchanged),
    }
}

/// One request that was over before it was looked at: nobody is asked, and it leaves its record. `fault` is the client's,
/// unless it just went away.
pub(crate) fn give_up(
    worker: &Rc<Worker>,
    conn: &Rc<Conn>,
    request: Request<impl Into<ClientBody>>,
    fault: Option<BodyFault>,
) {
    let generation = worker.current();
    let (head, body) = request.into_parts();
    let asked = (&head, body.into());
    let began = Instant::now();
    let request_id = worker.request_id();
    let mut exchanged = Exchanged::begin(worker, conn, &generation, began, asked, &request_id);
    exchanged.identified(&conn.standing(&generation.trust, exchanged.when()));
    if let Some(fault) = fault {
        drop(respond::to_response(
            worker,
            &ProxyError::Body(fault),
            exchanged,
        ));
    }
}

/// A member's answer that is passed on.
struct Passed<'g> {
    head: response::Parts,
    body: AnswerBody,
    lent: Lent<RequestBody>,
    pool: &'g PoolRuntime,
}

/// Sanitize, route, authorise, and try members until one answers.
async fn pass<'g>(
    worker: &Rc<Worker>,
    conn: &Rc<Conn>,
    generation: &'g Generation,
    standing: &Standing,
    mut head: request::Parts,
    request_id: &RequestId,
    exchanged: &mut Exchanged,
) -> Result<Passed<'g>, ProxyError> {
    if let Some(streams) = &conn.streams {
        stream::check_head(&head, streams).map_err(ProxyError::Insane)?;
    }
    // hyper marks the requests that have an `Upgrade` field, so that others need not be searched for one.
    let upgrade = head.extensions.remove::<OnUpgrade>().and_then(|marked| {
        *conn.upgrade.borrow_mut() = Some(marked);
        Upgrade::asked_by(&mut head, exchanged.upload.finished().is_none())
    });
    if is_server_wide(&head) {
        return Err(refused_anywhere(standing).unwrap_or(ProxyError::ServerWide));
    }
    let Sane {
        method,
        target,
        scrubbed: first,
        scrubbing,
    } = sanitize(head, &generation.own_names).map_err(ProxyError::Insane)?;
    let scrubbed = first.clone();
    exchanged.scrubbed(scrubbing);
    let path = CanonicalPath::of_target(target.path(), target.query())
        .map_err(|problem| ProxyError::Insane(Insane::path(problem)))?;
    let decision = generation.routes.find(&Question {
        method: &method,
        path,
        query: target.query(),
        host: host_of(scrubbed.headers()),
        headers: scrubbed.headers(),
        source: Some(conn.downstream.client.ip()),
        sni: conn.downstream.tls.server_name.as_deref(),
        identity: standing.identity(),
        failed_is_forwarded: conn.failed_is_forwarded(),
    });
    let plan = match decision {
        Decision::Forward(plan) => plan,
        Decision::Status(observed) => {
            if let Some(rule) = observed {
                exchanged.observed(rule, Class::Status);
            }
            return Err(ProxyError::Status {
                available: status_available(worker, generation),
            });
        }
        Decision::Refuse(refusal) => return Err(ProxyError::Refused(Box::new(refusal))),
    };
    exchanged.routed(&plan);
    if let Some(rule) = plan.observed {
        exchanged.observed(rule, plan.endpoint.class);
    }
    let pool = &generation.pools[plan.pool];
    if let Some(answer) = edge::answer(worker, generation, &plan, scrubbed.headers()) {
        return Err(ProxyError::Edge(Box::new(answer)));
    }
    renewal::admit(worker, &plan, (pool, standing))?;
    let with_certificate = tells_certificate(&plan, pool, standing)?;
    Strangers::count(worker, generation, &plan, (conn, standing))?;
    let upload = Rc::clone(&exchanged.upload);
    admit_body(&upload, &plan, pool)?;
    upload.peek().await.map_err(ProxyError::Body)?;
    if let Some(certname) = plan.certificate_request() {
        // Boxed: every request's task would have to have room for it.
        Box::pin(judge_request(&generation.csr, certname, &upload, exchanged)).await?;
    }
    exchanged.place = Strangers::place(worker, generation, (&plan, pool), (conn, standing))?;
    let upgrade = upgrade.and_then(|asked| asked.allowed(plan.upgrade()));
    let request = Outgoing {
        method: &method,
        target: &target,
        first: RefCell::new(Some(first)),
        scrubbed: &scrubbed,
        request_id,
        upgrade: upgrade.as_ref(),
    };
    let attempts = Attempts {
        worker,
        conn,
        pool,
        plan: &plan,
        standing,
        with_certificate,
        request,
    };
    let Exchange {
        head, body, lent, ..
    } = attempts
        .run(generation.settings.attempts_max, exchanged)
        .await?;
    let body = if plan.is_renewal() {
        let member = exchanged.member();
        let of = (pool, standing);
        Box::pin(renewal::judge(worker, of, &member, &head, body)).await?
    } else {
        AnswerBody::Streamed(body)
    };
    Ok(Passed {
        head,
        body,
        lent,
        pool,
    })
}

/// What a refused client is told where no route is asked.
fn refused_anywhere(standing: &Standing) -> Option<ProxyError> {
    let ClientIdentity::Refused(refusal) = standing.identity() else {
        return None;
    };
    Some(ProxyError::Refused(Box::new(RouteRefusal {
        status: StatusCode::FORBIDDEN.as_u16(),
        reason: "refused-certificate",
        text: refusal.text(),
        allow: None,
        class: Class::Unknown,
        route: None,
        rule: None,
    })))
}

/// Whether a compiler could take a request now.
fn status_available(worker: &Worker, generation: &Generation) -> bool {
    generation.status_pool.is_some_and(|pool| {
        generation.pools[pool]
            .pool
            .is_available(worker.shared.now())
    })
}

/// Whether the client's certificate goes with the request.
///
/// # Errors
/// It would have to, and is larger than the pool's servers take.
fn tells_certificate(
    plan: &Plan<'_>,
    pool: &PoolRuntime,
    standing: &Standing,
) -> Result<bool, ProxyError> {
    let (rules, renewal) = (&pool.rules, plan.is_renewal());
    if !(plan.with_certificate_class && (rules.forward_cert || renewal)) {
        return Ok(false);
    }
    let (bytes, max) = (
        standing.headers.certificate_length(&rules.form),
        rules.forward_cert_bytes_max,
    );
    match rules.overlong_cert {
        _ if bytes <= max => Ok(true),
        // A renewal without it would be of another certificate.
        OverlongCert::Omit if !renewal => {
            pool.metrics.certificates_omitted.inc();
            Ok(false)
        }
        OverlongCert::Omit | OverlongCert::Refuse => Err(ProxyError::OverlongCertificate {
            pool: Arc::clone(pool.pool.name()),
            bytes,
            max,
        }),
    }
}

/// Refuses a body that says it is too large before anything of it is read.
fn admit_body(upload: &Upload, plan: &Plan<'_>, pool: &PoolRuntime) -> Result<(), ProxyError> {
    upload.allow(plan.body_bytes_max, pool.settings.idle_timeout);
    upload.check_length().map_err(ProxyError::Body)
}
