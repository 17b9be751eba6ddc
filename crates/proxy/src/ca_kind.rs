//! Finds out what a CA server is, without sending a renewal. Puppet Server renews the certificate that the proxy forwards.
//! Other CAs renew the certificate of the connection, which is the proxy's, and some revoke the old certificate at once.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use routing::Class;
use tokio::sync::OnceCell;
use upstream::{Connector, MemberQuery, QueryError};

use crate::{
    generation::Generation,
    pool_runtime::PoolRuntime,
    renewal_switch::{PUPPET_VERSION, Renewal},
    settings::CaKind,
};

/// Examines the CA servers that get renewals, and raises or clears the alarm about each. Does nothing if no renewal is
/// forwarded, or if the configuration names the kind of the CA.
pub async fn examine_cas(generation: &Generation, renewal: &Renewal) {
    if !generation.ca.renewal || generation.ca.kind.is_some() {
        return;
    }
    let renews = |index: &usize| {
        let mut routes = generation.routes.routes();
        routes.any(|route| route.pool == *index && route.opens(Class::Renewal) && !route.unguarded)
    };
    for index in (0..generation.pools.len()).filter(renews) {
        let pool = &generation.pools[index];
        if let Err(error) = may_renew(pool, generation.ca.kind, renewal).await {
            let pool = pool.pool.name();
            tracing::debug!(%pool, %error, "cannot find out what the CA server is");
        }
    }
}

/// Whether the CA server that gets the renewals of this pool is known to renew the certificate that the proxy forwards.
///
/// # Errors
/// The server does not answer, so its kind is unknown.
pub(crate) async fn may_renew(
    pool: &PoolRuntime,
    kind: Option<CaKind>,
    renewal: &Renewal,
) -> Result<bool, Arc<UnansweredQuestion>> {
    if let Some(kind) = kind {
        return Ok(kind == CaKind::PuppetServer);
    }
    let Some(writer) = pool.pool.writer() else {
        return Ok(false);
    };
    let connector = &pool.members[writer].connector;
    let question = renewal.questions.join(connector);
    let ask = async || {
        let names_puppet = names_puppet(connector).await?;
        renewal.note_kind(&connector.address, names_puppet);
        Ok(names_puppet)
    };
    let answer = question.get_or_init(async || ask().await.map_err(Arc::new));
    answer.await.clone()
}

/// The questions that CA servers have not answered yet, of all workers. There is at most one for each server, and all renewals
/// that arrive meanwhile wait for its answer. If the request that asks ends, another waiting request asks again.
#[derive(Debug, Default)]
pub(crate) struct KindQuestions(Mutex<Vec<(Weak<Connector>, Weak<Question>)>>);

type Question = OnceCell<Result<bool, Arc<UnansweredQuestion>>>;

impl KindQuestions {
    /// The question that this server has not answered yet, or a new one.
    fn join(&self, connector: &Arc<Connector>) -> Arc<Question> {
        let mut questions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |question: &Arc<Question>| !question.initialized();
        questions.retain(|(_, question)| question.upgrade().is_some_and(|q| is_open(&q)));
        let mut known = questions.iter();
        let known = known.find(|(server, _)| std::ptr::eq(server.as_ptr(), Arc::as_ptr(connector)));
        if let Some(question) = known.and_then(|(_, question)| question.upgrade()) {
            return question;
        }
        let question = Arc::default();
        questions.push((Arc::downgrade(connector), Arc::downgrade(&question)));
        question
    }
}

/// Why the kind of a CA server is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnansweredQuestion {
    /// The server did not answer.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The server answered with an error. Its HTTP server sends such responses while it starts.
    #[error("it answered {0}")]
    Status(StatusCode),
}

/// Whether the responses of a CA server name a version of Puppet.
async fn names_puppet(connector: &Arc<Connector>) -> Result<bool, UnansweredQuestion> {
    let query = MemberQuery {
        method: Method::GET,
        path: PATH,
        port: None,
        headers: HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("*/*"))]),
        timeout: QUERY_TIME_MAX,
        body_bytes_max: 0,
    };
    let answer = upstream::query(connector, &query).await?;
    match answer.headers.contains_key(PUPPET_VERSION) {
        false if !answer.status.is_success() => Err(UnansweredQuestion::Status(answer.status)),
        names_puppet => Ok(names_puppet),
    }
}

/// The document that the query requests. Every client may read it, and it is small.
const PATH: &str = "/puppet-ca/v1/certificate/ca";
/// Maximum time of the query. A CA answers in milliseconds.
const QUERY_TIME_MAX: Duration = Duration::from_secs(10);
