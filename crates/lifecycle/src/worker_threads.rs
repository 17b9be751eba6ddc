//! The worker threads: one for each core, each with a current-thread runtime and its own connections to members.

use std::{collections::HashMap, io, os::fd::OwnedFd, rc::Rc, sync::Arc, thread};

use listener::{
    AcceptQueue, HandshakeHelper, HandshakePriority, ListenEndpoint, Listener, ListeningSocket,
};
use proxy::{Shared, Worker};
use state::supervise::supervise_once;
use tokio::{
    runtime::{self, Handle},
    sync::{mpsc, oneshot},
    task::{JoinHandle, LocalSet},
};

/// Maximum number of commands that wait for a worker.
const COMMANDS_MAX: usize = 64;
/// Maximum number of threads of one worker that resolve names.
const RESOLVERS_MAX: usize = 8;

enum Command {
    /// Accepts connections on this socket too.
    Listen {
        listener: Arc<Listener>,
        endpoint: ListenEndpoint,
        socket: ListeningSocket,
        done: oneshot::Sender<()>,
    },
    /// Serves the connections in the accept queue of this listener's endpoint, and closes its socket. Without an endpoint, it
    /// closes all endpoints of the listener.
    Close {
        name: Arc<str>,
        endpoint: Option<ListenEndpoint>,
        done: oneshot::Sender<()>,
    },
    /// Copies the sockets that this worker accepts on.
    Share(oneshot::Sender<Vec<SharedSocket>>),
}

/// A copy of a listening socket, with the endpoint that it was bound for.
pub(crate) struct SharedSocket {
    pub(crate) endpoint: ListenEndpoint,
    pub(crate) socket: OwnedFd,
}

/// The worker threads of the process.
pub(crate) struct WorkerThreads {
    senders: Vec<mpsc::Sender<Command>>,
    event_loops: Vec<Handle>,
    /// The priority of the threads that compute handshakes, one for each worker.
    pub(crate) handshakes: Arc<HandshakePriority>,
}

impl WorkerThreads {
    /// Starts `count` threads.
    ///
    /// # Errors
    /// The operating system provides no thread or no event queue.
    pub(crate) fn start(count: usize, shared: &Arc<Shared>) -> io::Result<Self> {
        Self::start_with(count, |helper| {
            let shared = Arc::clone(shared);
            |commands| work(shared, helper, commands)
        })
    }

    fn start_with<W, F>(count: usize, work: impl Fn(HandshakeHelper) -> W) -> io::Result<Self>
    where
        W: FnOnce(mpsc::Receiver<Command>) -> F + Send + 'static,
        F: Future<Output = ()>,
    {
        let handshakes = Arc::default();
        let started = (0..count.max(1)).map(|index| {
            let helper = HandshakeHelper::start(index, &handshakes)?;
            start(index, work(helper))
        });
        let (senders, event_loops) = started.collect::<io::Result<_>>()?;
        Ok(Self {
            senders,
            event_loops,
            handshakes,
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.senders.len()
    }

    /// Gives the workers the sockets for an endpoint of a listener. If there are more sockets than workers, a worker gets
    /// several.
    pub(crate) async fn listen(
        &self,
        listener: &Arc<Listener>,
        endpoint: &ListenEndpoint,
        sockets: Vec<ListeningSocket>,
    ) {
        let mut sockets = sockets.into_iter().peekable();
        while sockets.peek().is_some() {
            let commands = sockets.by_ref().take(self.senders.len()).map(|socket| {
                |done| Command::Listen {
                    listener: Arc::clone(listener),
                    endpoint: endpoint.clone(),
                    socket,
                    done,
                }
            });
            self.send(commands).await;
        }
    }

    /// Has all workers close their sockets for an endpoint of a listener, or for all its endpoints. When this returns,
    /// connections that waited in the queues are served and the address is free.
    pub(crate) async fn close(&self, name: &Arc<str>, endpoint: Option<&ListenEndpoint>) {
        self.send(self.senders.iter().map(|_| {
            |done| Command::Close {
                name: Arc::clone(name),
                endpoint: endpoint.cloned(),
                done,
            }
        }))
        .await;
    }

    /// Copies of all sockets that the workers accept on.
    pub(crate) async fn shared_sockets(&self) -> Vec<SharedSocket> {
        let mut shared = Vec::new();
        for sender in &self.senders {
            let (reply, sockets) = oneshot::channel();
            let _ = sender.send(Command::Share(reply)).await;
            shared.extend(sockets.await.unwrap_or_default());
        }
        shared
    }

    /// Waits until the event loop of every worker has run once, so that none of them hangs. False if a worker has ended.
    pub(crate) async fn have_a_turn(&self) -> bool {
        let turns: Vec<_> = self
            .event_loops
            .iter()
            .map(|event_loop| event_loop.spawn(async {}))
            .collect();
        for turn in turns {
            if turn.await.is_err() {
                return false;
            }
        }
        true
    }

    /// Sends one command to each worker, and waits until all have executed it.
    async fn send<C: FnOnce(oneshot::Sender<()>) -> Command>(
        &self,
        commands: impl Iterator<Item = C>,
    ) {
        let mut pending = Vec::new();
        for (sender, command) in self.senders.iter().zip(commands) {
            let (done, executed) = oneshot::channel();
            let _ = sender.send(command(done)).await;
            pending.push(executed);
        }
        for executed in pending {
            // A worker that has ended has closed its sockets.
            let _ = executed.await;
        }
    }
}

fn start<F: Future<Output = ()>>(
    index: usize,
    work: impl FnOnce(mpsc::Receiver<Command>) -> F + Send + 'static,
) -> io::Result<(mpsc::Sender<Command>, Handle)> {
    let (sender, commands) = mpsc::channel(COMMANDS_MAX);
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(RESOLVERS_MAX)
        .build()?;
    let event_loop = runtime.handle().clone();
    thread::Builder::new()
        .name(format!("worker-{index}"))
        .spawn(move || {
            LocalSet::new().block_on(&runtime, work(commands));
        })?;
    Ok((sender, event_loop))
}

/// Executes commands until the sender is dropped. The tasks of this thread end with it.
async fn work(shared: Arc<Shared>, helper: HandshakeHelper, mut commands: mpsc::Receiver<Command>) {
    let (worker, chores) = Worker::new(&shared, Some(helper));
    let alarms = Arc::clone(&shared.metrics.alarms);
    tokio::task::spawn_local(supervise_once(alarms, "worker-chores", chores));
    let mut loops: HashMap<(Arc<str>, ListenEndpoint), Vec<Accepting>> = HashMap::new();
    while let Some(command) = commands.recv().await {
        match command {
            Command::Listen {
                listener,
                endpoint,
                socket,
                done,
            } => {
                let copy = socket.try_clone();
                match AcceptQueue::new(socket).and_then(|queue| Ok((queue, copy?))) {
                    Ok((queue, copy)) => {
                        let key = (Arc::clone(&listener.name), endpoint);
                        let accepting =
                            Accepting::start(Rc::clone(&worker), listener, queue, copy.into());
                        loops.entry(key).or_default().push(accepting);
                    }
                    Err(error) => {
                        tracing::error!(listener = %listener.name, %error, "a worker cannot listen")
                    }
                }
                let _ = done.send(());
            }
            Command::Close {
                name,
                endpoint,
                done,
            } => {
                let is_closed = |(of, at): &(Arc<str>, ListenEndpoint)| {
                    *of == name && endpoint.as_ref().is_none_or(|endpoint| at == endpoint)
                };
                let closed: Vec<_> = loops.extract_if(|key, _| is_closed(key)).collect();
                for accepting in closed.into_iter().flat_map(|(_, accepting)| accepting) {
                    accepting.end().await;
                }
                let _ = done.send(());
            }
            Command::Share(reply) => {
                let copies = loops.iter().flat_map(|((_, endpoint), accepting)| {
                    let sockets = accepting.iter().map(|one| one.copy.try_clone());
                    sockets.flatten().map(|socket| SharedSocket {
                        endpoint: endpoint.clone(),
                        socket,
                    })
                });
                let _ = reply.send(copies.collect());
            }
        }
    }
}

/// A worker's accept loop for one endpoint of a listener.
struct Accepting {
    /// A copy of the socket, for a hand-over.
    copy: OwnedFd,
    close: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Accepting {
    fn start(
        worker: Rc<Worker>,
        listener: Arc<Listener>,
        socket: AcceptQueue,
        copy: OwnedFd,
    ) -> Self {
        let (close, closed) = oneshot::channel();
        Self {
            copy,
            close,
            task: worker.listen(listener, socket, closed),
        }
    }

    /// Returns once the socket is closed.
    async fn end(self) {
        // Drops the copy first, because a socket that is still open would queue connections that no worker accepts.
        drop(self.copy);
        drop(self.close);
        let _ = self.task.await;
    }
}

#[cfg(test)]
impl WorkerThreads {
    /// Threads that do nothing.
    pub(crate) fn idle(count: usize) -> Self {
        let work = |_| {
            |mut commands: mpsc::Receiver<Command>| async move {
                while commands.recv().await.is_some() {}
            }
        };
        Self::start_with(count, work).expect("threads")
    }

    /// The event loop of a thread.
    pub(crate) fn event_loop(&self, index: usize) -> &Handle {
        &self.event_loops[index]
    }

    /// Ends a thread.
    pub(crate) fn end(&mut self, index: usize) {
        self.senders.remove(index);
    }
}
