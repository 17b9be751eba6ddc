//! Threads for work that readers of the admin socket cause. They are separate from those of the runtime, on which trust, state
//! and hand-over do their blocking work, so that no number of readers delays a block.

use std::{sync::Arc, thread};

use tokio::sync::{Semaphore, oneshot};

use crate::supervise::unless_panicked;

/// A limited number of threads. Each piece of work gets a thread of its own.
#[derive(Debug)]
pub struct ReaderThreads {
    free: Arc<Semaphore>,
    name: &'static str,
}

impl ReaderThreads {
    /// At most `max` threads at a time, with this name.
    pub fn new(name: &'static str, max: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(max)),
            name,
        }
    }

    /// Runs work that may block, once a thread is free. Work that has begun continues if the future is dropped. `None` if it
    /// panicked, which is an error event, or if the host provides no thread.
    pub fn run<T, W>(&self, work: W) -> impl Future<Output = Option<T>> + Send + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce() -> T + Send + 'static,
    {
        let (free, name) = (Arc::clone(&self.free), self.name);
        async move {
            let slot = free.acquire_owned().await.ok()?;
            let (sender, result) = oneshot::channel();
            let started = thread::Builder::new().name(name.to_owned()).spawn(move || {
                let result = unless_panicked(name, work);
                drop(slot);
                sender.send(result)
            });
            if let Err(error) = started {
                tracing::error!(%error, "cannot start a thread for {name}");
            }
            result.await.ok().flatten()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::{runtime, task::JoinSet};

    use super::*;
    use crate::supervise::blocking;

    /// A runtime with one thread for blocking work, on which a block is stored.
    #[test]
    fn work_of_readers_that_hangs_delays_no_other_work() {
        let runtime = runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let (release, released) = mpsc::sync_channel::<()>(0);
        let released = Arc::new(std::sync::Mutex::new(released));
        runtime.block_on(async {
            let threads = ReaderThreads::new("test", 2);
            let mut hanging = JoinSet::new();
            for _ in 0..16 {
                let released = Arc::clone(&released);
                hanging.spawn(threads.run(move || released.lock().unwrap().recv().is_err()));
            }
            tokio::task::yield_now().await;
            assert_eq!(threads.free.available_permits(), 0, "all threads hang");
            assert_eq!(blocking("store", || "stored").await, Some("stored"));
            assert!(hanging.try_join_next().is_none(), "they hang still");
            drop(release);
            let ended = hanging.join_all().await;
            assert_eq!(ended, [Some(true); 16]);
        });
    }

    #[tokio::test]
    async fn a_panic_frees_the_thread() {
        let threads = ReaderThreads::new("test", 1);
        assert_eq!(threads.run(|| panic!("it fails")).await, None::<u8>);
        assert_eq!(threads.run(|| 1).await, Some(1));
    }
}
