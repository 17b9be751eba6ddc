//! What may have changed while a request waited in a queue: its client and its access are judged again.

use std::time::SystemTime;

use routing::{RefusalReason, RouteDecision};

use crate::{
    attempts::Attempts,
    context::RequestContext,
    error::ProxyError,
    exchange::{question, refused_anywhere},
    record::Exchanged,
};

impl Attempts<'_> {
    /// Judges a request again that has waited, perhaps for minutes. Under a newer configuration it runs in the pool where it
    /// waited, even if requests like it go to another pool or have no route by now: it was prepared for these servers.
    ///
    /// # Errors
    /// Its client's certificate is no longer accepted (revoked, blocked or expired), or it may not use the endpoint any more.
    pub(crate) fn recheck_access(&self, exchanged: &mut Exchanged) -> Result<(), ProxyError> {
        let RequestContext {
            worker,
            conn,
            generation,
            verdict,
            ..
        } = self.context;
        let current = worker.current();
        let now = conn.current_verdict(&current.trust, SystemTime::now());
        if !verdict.is_refused()
            && let Some(refused) = refused_anywhere(&now)
        {
            return Err(refused);
        }
        if current.number == generation.number {
            return Ok(());
        }
        let request = &self.request;
        let asked = (request.method, request.target);
        // By the identity that its member would read.
        let question = question(self.context, asked, request.scrubbed.headers())?;
        match current.routes.find(&question) {
            RouteDecision::Refuse(refusal)
                if matches!(refusal.reason, RefusalReason::Access(_)) =>
            {
                // The rule that refuses it is one of that configuration.
                exchanged.decided_by(current);
                Err(ProxyError::Refused(Box::new(refusal)))
            }
            _ => Ok(()),
        }
    }
}
