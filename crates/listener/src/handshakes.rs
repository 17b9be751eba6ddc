//! The handshakes of one worker, over all its listeners.

use std::{fmt, io, rc::Rc, sync::Arc};

use crate::{
    handshake_executor::Executor,
    handshake_thread::{HandshakePriority, HandshakeThread},
    tls_handshake::Computed,
};

/// The thread that computes the handshakes of a worker, for use before the worker runs.
pub struct HandshakeHelper(HandshakeThread<Computed>);

impl HandshakeHelper {
    /// Starts the thread. The thread's name contains the number of its worker.
    ///
    /// # Errors
    /// The system provides no thread or no descriptor.
    pub fn start(worker: usize, priority: &Arc<HandshakePriority>) -> io::Result<Self> {
        HandshakeThread::start(worker, priority).map(Self)
    }
}

/// Computes the handshakes of one worker.
#[derive(Clone)]
pub struct Handshakes(Rc<Executor<Computed>>);

impl Handshakes {
    /// The handshakes of this worker, and the task that distributes them. Without a helper the worker computes them itself, one
    /// in each turn of its event loop.
    pub fn new(helper: Option<HandshakeHelper>) -> (Self, impl Future<Output = ()> + use<>) {
        let executor = Executor::new(helper.map(|helper| helper.0));
        let distributing = Rc::clone(&executor);
        (Self(executor), async move { distributing.run().await })
    }

    pub(crate) fn executor(&self) -> &Executor<Computed> {
        &self.0
    }
}

impl fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshakes").finish_non_exhaustive()
    }
}
