//! Tasks that last as long as the process: a panic of one is an error event and an alarm, and the task starts again. Panics of
//! short tasks are error events.

use std::{
    any::Any,
    env,
    fmt::Display,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, SystemTime},
};

use telemetry::{Alarm, Alarms};
use tokio::{
    task::{JoinError, JoinSet, spawn_blocking},
    time::sleep,
};

/// Pause before a task starts again. Each further pause is twice as long.
const RESTART_PAUSE_MIN: Duration = Duration::from_secs(1);
/// Maximum pause before a task starts again.
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long a task runs after a restart until its alarm is cleared, and the next pause is the shortest one again.
const RUNS_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Runs a task until it ends by itself. `task` starts it. If it panics or fails, it starts again after a pause, and the alarm
/// `task-ended` is active until it has run for a minute. The name of the task is the object of the alarm.
pub async fn supervise<F>(alarms: Arc<Alarms>, name: String, mut task: impl FnMut() -> F)
where
    F: Future<Output: TaskEnd>,
{
    let alarm = TaskAlarm { alarms, name };
    let mut pause = RESTART_PAUSE_MIN;
    loop {
        let ended = {
            let mut running = pin!(caught(async {
                panic_in_test(&alarm.name);
                task().await.failure()
            }));
            tokio::select! {
                biased;
                ended = &mut running => ended,
                () = sleep(RUNS_AGAIN_AFTER) => {
                    alarm.clear();
                    pause = RESTART_PAUSE_MIN;
                    running.await
                }
            }
        };
        let why = match ended {
            Ok(None) => return,
            Ok(Some(why)) => why,
            Err(panic) => message_of(&*panic).to_owned(),
        };
        raise(
            &alarm.alarms,
            &alarm.name,
            &why,
            &format!("it starts again after {} s", pause.as_secs()),
        );
        sleep(pause).await;
        pause = RESTART_PAUSE_MAX.min(pause * 2);
    }
}

/// Runs a task that cannot start again. If it panics, the alarm `task-ended` stays until the process ends. `None` after a panic.
pub async fn supervise_once<T>(
    alarms: Arc<Alarms>,
    name: &str,
    task: impl Future<Output = T>,
) -> Option<T> {
    let ended = caught(task).await;
    let next = "it starts again only with the process";
    ended
        .inspect_err(|panic| raise(&alarms, name, message_of(&**panic), next))
        .ok()
}

/// Tasks that are supervised. Dropping them ends the tasks.
#[derive(Debug)]
pub struct SupervisedTasks {
    alarms: Arc<Alarms>,
    tasks: JoinSet<()>,
}

impl SupervisedTasks {
    /// No tasks yet.
    pub fn new(alarms: &Arc<Alarms>) -> Self {
        Self {
            alarms: Arc::clone(alarms),
            tasks: JoinSet::new(),
        }
    }

    /// Starts a task of `owner`, as [`supervise`] does.
    pub fn start<T, F>(
        &mut self,
        name: impl Into<String>,
        owner: &Arc<T>,
        task: impl Fn(Arc<T>) -> F + Send + 'static,
    ) where
        T: Send + Sync + 'static,
        F: Future<Output: TaskEnd> + Send + 'static,
    {
        let (alarms, owner) = (Arc::clone(&self.alarms), Arc::clone(owner));
        let task = move || task(Arc::clone(&owner));
        self.tasks.spawn(supervise(alarms, name.into(), task));
    }

    /// Waits until all have ended by themselves.
    pub async fn ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Starts a supervised task that is not ended with its caller.
pub fn supervise_detached<F>(
    alarms: Arc<Alarms>,
    name: &str,
    task: impl FnMut() -> F + Send + 'static,
) where
    F: Future<Output: TaskEnd> + Send + 'static,
{
    tokio::spawn(supervise(alarms, name.to_owned(), task));
}

/// Runs a short task that continues if the returned future is dropped. `None` if it panicked, which is an error event with the
/// name of the task.
pub fn outliving<T: Send + 'static>(
    name: &'static str,
    task: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = Option<T>> {
    let running = tokio::spawn(async move { within(name, task).await });
    async move { joined(name, running.await).flatten() }
}

/// Runs a short task within its caller. `None` if it panicked, which is an error event with the name of the task.
pub async fn within<T>(name: &str, task: impl Future<Output = T>) -> Option<T> {
    let ended = caught(task).await;
    let log = |panic: &Box<dyn Any + Send>| log_panic(name, message_of(&**panic));
    ended.inspect_err(log).ok()
}

/// Runs work that blocks on a thread for blocking work. It continues if the returned future is dropped. `None` if it panicked,
/// which is an error event with the name of the work, or if the process stops.
pub fn blocking<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Option<T>> {
    let running = spawn_blocking(move || unless_panicked(name, work));
    async move { joined(name, running.await).flatten() }
}

/// The result of work. `None` if it panics, which is an error event with the name of the work.
pub(crate) fn unless_panicked<T>(name: &str, work: impl FnOnce() -> T) -> Option<T> {
    // The caller gets nothing that the panic could have left in an invalid state.
    catch_unwind(AssertUnwindSafe(work))
        .inspect_err(|panic| log_panic(name, message_of(&**panic)))
        .ok()
}

/// The result of a short task. `None` if it panicked, which is an error event with the name of the task, or was cancelled.
pub fn joined<T>(name: &str, ended: Result<T, JoinError>) -> Option<T> {
    let panic = |error: JoinError| {
        if let Ok(panic) = error.try_into_panic() {
            log_panic(name, message_of(&*panic));
        }
    };
    ended.map_err(panic).ok()
}

fn log_panic(task: &str, panic: &str) {
    tracing::error!(task, panic, "a task has panicked: report this as a defect");
}

/// What operators read in place of the result of a task that has panicked.
pub const PANICKED: &str = "an internal error, which an event describes";

/// How a supervised task has ended by itself.
pub trait TaskEnd {
    /// Why the task must start again. `None` if it has nothing more to do.
    fn failure(self) -> Option<String>;
}

impl TaskEnd for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: Display> TaskEnd for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

/// The alarm about one task. Dropping it clears the alarm: the task is no longer wanted.
struct TaskAlarm {
    alarms: Arc<Alarms>,
    name: String,
}

impl TaskAlarm {
    fn clear(&self) {
        self.alarms.clear(Alarm::TaskEnded, &self.name);
    }
}

impl Drop for TaskAlarm {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Logs the end of a task each time, and raises the alarm about it.
fn raise(alarms: &Alarms, name: &str, why: &str, next: &str) {
    tracing::error!(
        task = name,
        why,
        "a task of the proxy has ended unexpectedly: {next}"
    );
    let message = format!(
        "the task {name} of the proxy has ended unexpectedly: {why}; {next}; report this as a defect, with the events of the proxy"
    );
    alarms.raise(Alarm::TaskEnded, name, message, SystemTime::now());
}

/// Runs a future. The error is its panic.
async fn caught<T>(future: impl Future<Output = T>) -> Result<T, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    // After a panic, the future is not polled again, so no caller sees what the panic left behind in it.
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

/// Panics in the tasks that a test names, in debug builds only. A panic that is resumed prints nothing.
fn panic_in_test(task: &str) {
    if cfg!(debug_assertions)
        && let Ok(names) = env::var(PANICKING_TASKS)
        && names.split(',').any(|name| name == task)
    {
        resume_unwind(Box::new("a test has ended it"));
    }
}

/// Names of tasks, with a comma between them.
const PANICKING_TASKS: &str = "PROSCENIUM_PANICKING_TASKS";

/// The message of a panic.
fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let formatted = || panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(formatted)
        .unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Mutex};

    use tokio::time::Instant;

    use super::*;

    fn alarm(alarms: &Alarms) -> Option<String> {
        alarms
            .get(Alarm::TaskEnded, "blocks")
            .map(|active| active.message)
    }

    /// Starts a task that ends as `each` says for its first, second and further runs. Also returns when each run began, in
    /// seconds.
    fn start<F>(
        alarms: &Arc<Alarms>,
        each: fn(usize) -> F,
    ) -> (SupervisedTasks, Arc<Mutex<Vec<u64>>>)
    where
        F: Future<Output: TaskEnd> + Send + 'static,
    {
        let (began, starts) = (Instant::now(), Arc::<Mutex<Vec<u64>>>::default());
        let mut tasks = SupervisedTasks::new(alarms);
        tasks.start("blocks", &starts, move |starts| {
            let mut starts = starts.lock().unwrap();
            starts.push(began.elapsed().as_secs());
            each(starts.len())
        });
        (tasks, starts)
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_starts_again_after_growing_pauses_and_is_an_alarm_until_it_runs() {
        let alarms = Arc::<Alarms>::default();
        let (_tasks, starts) = start(&alarms, |run| async move {
            match run {
                1..=9 => panic!("run {run} of the task"),
                _ => pending::<()>().await,
            }
        });
        sleep(Duration::from_millis(500)).await;
        let message = alarm(&alarms).expect("an alarm");
        assert!(message.contains("the task blocks of the proxy has ended unexpectedly: run 1 of the task; it starts again after 1 s"), "{message}");
        sleep(Duration::from_secs(3)).await;
        assert!(
            alarm(&alarms)
                .expect("an alarm")
                .contains("run 3 of the task; it starts again after 4 s")
        );
        sleep(Duration::from_secs(240)).await;
        let expected = [0, 1, 3, 7, 15, 31, 63, 123, 183, 243];
        assert_eq!(*starts.lock().unwrap(), expected);
        assert!(alarm(&alarms).is_some(), "it has not run for long");
        sleep(RUNS_AGAIN_AFTER).await;
        assert_eq!(alarm(&alarms), None);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_long_run_the_pauses_begin_again() {
        let alarms = Arc::<Alarms>::default();
        let (_tasks, starts) = start(&alarms, |run| async move {
            if run > 2 {
                sleep(2 * RUNS_AGAIN_AFTER).await;
            }
            panic!("always");
            #[expect(unreachable_code, reason = "the type of the result")]
            ()
        });
        sleep(Duration::from_secs(260)).await;
        assert_eq!(*starts.lock().unwrap(), [0, 1, 3, 124, 245]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_an_alarm_and_an_end_is_not() {
        let alarms = Arc::<Alarms>::default();
        let (mut tasks, _starts) = start(&alarms, |run| async move {
            if run == 1 { Err("no socket") } else { Ok(()) }
        });
        sleep(Duration::from_millis(500)).await;
        assert!(alarm(&alarms).expect("an alarm").contains("no socket"));
        tasks.ended().await;
        assert_eq!(alarm(&alarms), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_is_no_longer_wanted_has_no_alarm() {
        let alarms = Arc::<Alarms>::default();
        let (tasks, _starts) = start(&alarms, |_| async {
            panic!("{}", "formatted");
            #[expect(unreachable_code, reason = "the type of the result")]
            ()
        });
        sleep(Duration::from_millis(500)).await;
        assert!(alarm(&alarms).expect("an alarm").contains("formatted"));
        drop(tasks);
        tokio::task::yield_now().await;
        assert_eq!(alarm(&alarms), None);
    }

    #[tokio::test]
    async fn a_task_that_cannot_start_again_keeps_its_alarm() {
        let alarms = Arc::<Alarms>::default();
        let run = async |result: Option<u8>| {
            let task = async move { result.expect("a result") };
            supervise_once(Arc::clone(&alarms), "blocks", task).await
        };
        assert_eq!(run(Some(1)).await, Some(1));
        assert_eq!(alarm(&alarms), None);
        assert_eq!(run(None).await, None);
        assert!(
            alarm(&alarms)
                .expect("an alarm")
                .contains("only with the process")
        );
    }

    #[tokio::test]
    async fn a_panic_of_a_short_task_gives_nothing() {
        assert_eq!(blocking("reading", || 1).await, Some(1));
        let none: Option<u8> = blocking("reading", || panic!("it fails")).await;
        assert_eq!(none, None);
        assert_eq!(outliving("reading", async { 1 }).await, Some(1));
        let none: Option<u8> = outliving("reading", async { panic!("it fails") }).await;
        assert_eq!(none, None);
    }
}
