//! The worker threads: one per core, each a current-thread runtime with its own member connections.

use std::{collections::HashMap, io, net::TcpListener, rc::Rc, sync::Arc, thread};

use listener::Listener;
use proxy::{Shared, Worker};
use tokio::{
    runtime,
    sync::{mpsc, oneshot},
    task::LocalSet,
};

/// Commands that may wait for a worker.
const COMMANDS_MAX: usize = 64;
/// Threads of one worker that may wait for a name to resolve.
const RESOLVERS_MAX: usize = 8;

/// What a worker is told.
enum Command {
    /// Accept on this socket too.
    Listen { listener: Arc<Listener>, socket: TcpListener },
    /// Take what waits in the queue of this listener, then close its socket.
    Close { name: Arc<str> },
}

/// The worker threads of the process.
pub(crate) struct WorkerThreads {
    senders: Vec<mpsc::Sender<Command>>,
}

impl WorkerThreads {
    /// Starts `count` threads.
    ///
    /// # Errors
    /// The system gives no thread or no event queue.
    pub(crate) fn start(count: usize, shared: &Arc<Shared>) -> io::Result<Self> {
        let senders = (0..count.max(1)).map(|index| start(index, Arc::clone(shared))).collect::<io::Result<_>>()?;
        Ok(Self { senders })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.senders.len()
    }

    /// Hands each worker a socket of a listener.
    pub(crate) async fn listen(&self, listener: &Arc<Listener>, sockets: Vec<TcpListener>) {
        for (sender, socket) in self.senders.iter().zip(sockets) {
            let _ = sender.send(Command::Listen { listener: Arc::clone(listener), socket }).await;
        }
    }

    /// Has all workers close their sockets of a listener.
    pub(crate) async fn close(&self, name: &Arc<str>) {
        for sender in &self.senders {
            let _ = sender.send(Command::Close { name: Arc::clone(name) }).await;
        }
    }
}

fn start(index: usize, shared: Arc<Shared>) -> io::Result<mpsc::Sender<Command>> {
    let (sender, commands) = mpsc::channel(COMMANDS_MAX);
    let runtime = runtime::Builder::new_current_thread().enable_all().max_blocking_threads(RESOLVERS_MAX).build()?;
    thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
        LocalSet::new().block_on(&runtime, work(shared, commands));
    })?;
    Ok(sender)
}

/// Obeys until nobody commands any more. Tasks of this thread end with it.
async fn work(shared: Arc<Shared>, mut commands: mpsc::Receiver<Command>) {
    let (worker, sweeping) = Worker::new(&shared);
    tokio::task::spawn_local(sweeping);
    let mut closers: HashMap<Arc<str>, oneshot::Sender<()>> = HashMap::new();
    while let Some(command) = commands.recv().await {
        match command {
            Command::Listen { listener, socket } => match tokio::net::TcpListener::from_std(socket) {
                Ok(socket) => {
                    let (close, closed) = oneshot::channel();
                    closers.insert(Arc::clone(&listener.name), close);
                    let listening = Rc::clone(&worker).listen(listener, socket, async {
                        let _ = closed.await;
                    });
                    tokio::task::spawn_local(listening);
                }
                Err(error) => tracing::error!(listener = %listener.name, %error, "a worker cannot listen"),
            },
            Command::Close { name } => {
                closers.remove(&name);
            }
        }
    }
}
