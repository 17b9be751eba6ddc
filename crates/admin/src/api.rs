//! The endpoints of the admin API: one router, which also describes itself as OpenAPI.

mod agents;
mod blocks;
mod conditions;
mod crls;
mod events;
mod fleet;
mod members;
mod messages;
mod process;
mod rollback;

use std::{convert::Infallible, sync::Arc};

use axum::{
    Router,
    extract::{FromRequestParts, Request},
    http::{Extensions, StatusCode, header, request::Parts},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::Value;
use tokio::sync::watch;
use tower::{Layer, Service};
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::messages::Pretty;
pub(crate) use self::{
    messages::{Problem, problem},
    process::{LogLevelRequest, metrics_response},
};
use crate::{
    Caller, Control, OperatorAccount, Permission, connections::AccountLimits,
    history::TrafficHistory, refused_changes::RefusedChanges,
};

/// What every endpoint uses.
#[derive(Clone)]
pub(crate) struct Api {
    control: Arc<dyn Control>,
    history: Arc<TrafficHistory>,
    /// Event streams of each account.
    streams: Arc<AccountLimits>,
    refused: Arc<RefusedChanges>,
    /// Becomes true when the proxy stops, and ends event streams.
    stop: watch::Receiver<bool>,
}

/// What the document says about the API as a whole.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Proscenium admin API",
        description = "Status and commands of a running Proscenium, over its Unix socket. Errors are problem details \
                       (RFC 9457). A change with `If-Match` happens only if the entity tag still matches. A change of \
                       members or blocks on another proxy of the fleet changes the tag too."
    ),
    components(schemas(Problem))
)]
struct Description;

/// All endpoints.
pub(crate) fn endpoints(
    control: Arc<dyn Control>,
    history: Arc<TrafficHistory>,
    stop: watch::Receiver<bool>,
) -> impl Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static
{
    let api = Api {
        control,
        history,
        streams: Arc::default(),
        refused: Arc::default(),
        stop,
    };
    let (reads, mut description) = reads().split_for_parts();
    let (changes, described) = changes().split_for_parts();
    description.merge(described);
    let names = endpoint_names(&description);
    let document = serde_json::to_value(&description).unwrap_or_default();
    let reads = reads.route(
        "/v1/openapi.json",
        get(move || async move { Pretty(StatusCode::OK, document) }),
    );
    let permitted = |needed| {
        let api = api.clone();
        from_fn(move |request, next| permit(api.clone(), needed, request, next))
    };
    // A path can have a GET that reads and a POST that changes, each with its own permission.
    let router: Router = reads
        .route_layer(permitted(Permission::Read))
        .merge(changes.route_layer(permitted(Permission::Operate)))
        .fallback(move || async move { problem(StatusCode::NOT_FOUND, names) })
        .with_state(api);
    // Around the router, because the router itself adds `Allow`.
    from_fn(explain_wrong_method).layer(router)
}

/// Endpoints that change nothing.
fn reads() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(process::status))
        .routes(routes!(process::metrics))
        .routes(routes!(process::log_level))
        .routes(routes!(process::configuration))
        .routes(routes!(process::dry_run))
        .routes(routes!(rollback::configurations))
        .routes(routes!(rollback::configuration_text))
        .routes(routes!(rollback::dry_run))
        .routes(routes!(process::explain))
        .routes(routes!(process::traffic))
        .routes(routes!(process::history))
        .routes(routes!(process::requests))
        .routes(routes!(members::member))
        .routes(routes!(members::states))
        .routes(routes!(blocks::blocks))
        .routes(routes!(agents::agents))
        .routes(routes!(agents::refusals))
        .routes(routes!(agents::who))
        .routes(routes!(agents::certificates))
        .routes(routes!(fleet::fleet))
        .routes(routes!(events::events))
        .routes(routes!(events::history))
}

/// Endpoints that change the running proxy.
fn changes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(process::reload))
        .routes(routes!(rollback::roll_back))
        .routes(routes!(process::reopen_logs))
        .routes(routes!(process::set_log_level))
        .routes(routes!(members::set_state))
        .routes(routes!(members::set_states))
        .routes(routes!(blocks::block))
        .routes(routes!(blocks::block_certnames))
        .routes(routes!(blocks::lift))
        .routes(routes!(crls::fetch))
        .routes(routes!(crls::accept))
        .routes(routes!(fleet::ask_for_turn))
        .routes(routes!(fleet::end_turn))
}

/// Lets a request pass if the account of its caller may do this.
async fn permit(api: Api, needed: Permission, mut request: Request, next: Next) -> Response {
    let caller = caller(request.extensions());
    let permission = api.control.permission(caller).await;
    if permission >= needed {
        if needed == Permission::Operate {
            let account = api.control.account(caller).await;
            request.extensions_mut().insert(account);
        }
        return next.run(request).await;
    }
    let path = request.uri().path().to_owned();
    let setting = match needed {
        Permission::Operate => "operate_group",
        Permission::Read | Permission::None => "read_group",
    };
    let refused = format!(
        "this account may not do that: use root, the account of the proxy, or a member of [admin] {setting}"
    );
    // Only refused changes of accounts that may read are logged, because any local account could fill the disk otherwise.
    if needed == Permission::Operate && permission == Permission::Read {
        let refused = (Value::String(path), refused.clone());
        api.refused.note(&api.control, caller, refused).await;
    }
    problem(StatusCode::FORBIDDEN, refused).into_response()
}

/// Gives the 405 of the router a body.
async fn explain_wrong_method(request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let response = next.run(request).await;
    if response.status() != StatusCode::METHOD_NOT_ALLOWED {
        return response;
    }
    let allow = response.headers().get(header::ALLOW).cloned();
    let names = allow.as_ref().and_then(|allow| allow.to_str().ok());
    let names = names.unwrap_or_default().replace(',', ", ");
    let detail = format!("{method} is not supported here: use {names}");
    let mut response = problem(StatusCode::METHOD_NOT_ALLOWED, detail).into_response();
    if let Some(allow) = allow {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}

/// The sentence for a path that does not exist.
fn endpoint_names(description: &utoipa::openapi::OpenApi) -> String {
    let paths = description.paths.paths.iter().map(|(path, item)| {
        let methods = [("GET", &item.get), ("POST", &item.post)];
        let methods = methods.iter().filter(|(_, operation)| operation.is_some());
        let methods: Vec<_> = methods.map(|(method, _)| *method).collect();
        format!("{} {path}", methods.join(" and "))
    });
    let paths: Vec<_> = paths.collect();
    format!(
        "no such endpoint; the endpoints are {} (percent-encode / in names), and GET /v1/openapi.json describes them",
        paths.join(", ")
    )
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(caller(&parts.extensions))
    }
}

/// The account that makes a change.
impl<S: Sync> FromRequestParts<S> for OperatorAccount {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let known = parts.extensions.get::<Self>().cloned();
        Ok(known.unwrap_or_else(|| Self::new(caller(&parts.extensions).uid, None)))
    }
}

/// The account that the connection belongs to.
fn caller(extensions: &Extensions) -> Caller {
    let known = extensions.get::<Caller>();
    known.copied().unwrap_or(Caller {
        uid: None,
        gid: None,
    })
}
