//! The process from start to stop.

use std::sync::Arc;

use state::supervise::{SupervisedTasks, joined, supervise_once};
use telemetry::Events;
use tokio::{
    runtime,
    signal::unix::Signal,
    sync::{Mutex, watch},
    time::timeout,
};
use trust_keeper::TrustKeeper;

use crate::{
    Options, descriptors,
    drain::{CUT_GRACE, drain},
    hand_over::{accept_hand_overs, follow_state, successor_runs},
    materials::refresh,
    own_renewal,
    pending_changes::compare,
    process::ControlOf,
    service_manager::ServiceManager,
    shared_state::App,
    sharing::SharingTask,
    signals::{EarlySignals, Signals, Stop},
    start::{AdminSocket, StartError, Started, start},
    state_retry, stored_history,
};

/// Threads of the main runtime for work that blocks: reading and writing files, building trust stores. Work that readers of the
/// admin socket cause has threads of its own ([`ReaderThreads`](state::ReaderThreads)).
const BLOCKING_THREADS_MAX: usize = 8;

/// Starts, serves until a signal stops the process, and drains. `events` are sent to the configured destination. `control`
/// creates the object that answers operators.
///
/// # Errors
/// Why the process did not start. After the start there is no error.
pub fn run(options: &Options, events: &Arc<Events>, control: ControlOf) -> Result<(), StartError> {
    // Only the account and the group of the service may read the files that the process creates (access log, socket).
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o027));
    descriptors::raise_limit();
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()?;
    runtime.block_on(async {
        let signals = EarlySignals::new()?;
        let Started {
            app,
            admin_socket,
            signals,
        } = start(options, (events, control), signals).await?;
        serve(&app, admin_socket, signals).await;
        Ok(())
    })
}

/// Serves until a signal stops the process, and drains.
async fn serve(app: &Arc<App>, admin_socket: AdminSocket, signals: Signals) {
    let Signals {
        hangup,
        reopen,
        mut stop,
    } = signals;
    let (stop_admin, stopped) = watch::channel(false);
    app.state().admin = admin_socket.listener.try_clone().ok();
    let alarms = &app.lasting.metrics.alarms;
    let mut admin = SupervisedTasks::new(alarms);
    let listener = admin_socket.listener;
    admin.start("admin", app, move |app| {
        let (listener, stopped) = (listener.try_clone(), stopped.clone());
        let control = (app.control)(app);
        async move { admin::serve(listener?, control, stopped).await }
    });
    tracing::info!(
        history.kind = "process",
        generation = app.generation().number,
        workers = app.workers.count(),
        version = %app.options.build.version,
        took_over_from = app.hand_over.former.pid(),
        "serving"
    );
    let manager = ServiceManager::from_environment().map(Arc::new);
    // This task is not ended by the stop: the service manager must notice a drain that hangs too.
    let mut pings = SupervisedTasks::new(alarms);
    if let Some(manager) = &manager {
        manager.ready();
        let manager = Arc::clone(manager);
        pings.start("watchdog", app, move |app| {
            let manager = Arc::clone(&manager);
            async move { manager.keep_pinging(&app.workers).await }
        });
    }
    let on_signals = start_on_signals(app, hangup, reopen);
    let upkeep = start_upkeep(app);
    let mut trust_upkeep = start_trust_upkeep(app);
    // The stop is part of the history.
    let mut history = SupervisedTasks::new(alarms);
    history.start("history", app, stored_history::store_at_intervals);
    let sharing = SharingTask::start(app);
    // A hand-over that has begun cannot begin again.
    let accepting = accept_hand_overs(Arc::clone(app));
    let accepting = supervise_once(Arc::clone(alarms), "hand-over", accepting);
    let hand_over = tokio::spawn(accepting);
    let mut connection = None;
    let mut successor = app.active.successor();
    tokio::select! {
        () = stop.recv() => {}
        _ = successor.wait_for(Option::is_some) => {}
    }
    drop(upkeep);
    if app.active.owns_state() {
        if let Some(manager) = &manager {
            manager.stopping();
        }
        app.hand_over.cancel();
        hand_over.abort();
        drain(app, stop.recv()).await;
        sharing.leave().await;
        app.trust.store_cas_seen();
        let _ = stop_admin.send(true);
        app.state().admin = None;
        drop((admin_socket.file, admin_socket.path));
    } else {
        // The new process writes the entry of this proxy from now on.
        drop(sharing);
        app.state().listeners.leave_socket_files();
        for file in [admin_socket.file, admin_socket.path].into_iter().flatten() {
            file.leave();
        }
        let _ = stop_admin.send(true);
        app.state().admin = None;
        app.state().metrics = None;
        trust_upkeep.start("stored-state", app, follow_state);
        drain(app, stop_beside_successor(app, &mut stop)).await;
        // The other process may still be receiving the agents that this one has seen.
        app.hand_over.finished.send_replace(true);
        connection = joined("hand-over", hand_over.await).flatten().flatten();
    }
    drop((on_signals, trust_upkeep));
    drop(history);
    app.store_history();
    let _ = timeout(CUT_GRACE, admin.ended()).await;
    let access_logs = app.state().access_logs.take();
    if let Some(logs) = access_logs
        && let Err(unwritten) = logs.close(CUT_GRACE)
    {
        tracing::error!("{unwritten}");
    }
    drop(connection);
}

/// Waits until a signal ends the grace of a process that has handed over. A stop of the service signals this process too,
/// which drains already: only a second one ends the grace.
async fn stop_beside_successor(app: &App, stop: &mut Stop) {
    stop.recv().await;
    if !successor_runs(app) {
        tracing::warn!(
            "a stop is requested and the new process has ended: this process ends, so that the service can start again"
        );
        return;
    }
    tracing::info!("a stop is requested; this process finishes its requests anyway");
    stop.recv().await;
}

/// The tasks that obey signals. Reloads run one after the other: any number of SIGHUPs during a reload cause one more.
fn start_on_signals(app: &Arc<App>, hangup: Signal, reopen: Signal) -> SupervisedTasks {
    let mut tasks = SupervisedTasks::new(&app.lasting.metrics.alarms);
    // Locked by the task that waits for the signal, so that a signal during a restart of the task is not lost.
    let (hangup, reopen) = (Arc::new(Mutex::new(hangup)), Arc::new(Mutex::new(reopen)));
    tasks.start("reload-signal", app, move |app| {
        let hangup = Arc::clone(&hangup);
        async move {
            while hangup.lock().await.recv().await.is_some() {
                app.reload("SIGHUP", std::future::pending()).await;
            }
        }
    });
    tasks.start("log-signal", app, move |app| {
        let reopen = Arc::clone(&reopen);
        async move {
            while reopen.lock().await.recv().await.is_some() {
                // Errors are logged there.
                let _ = app.reopen_logs().await;
            }
        }
    });
    tasks
}

/// The tasks that decide which clients are accepted. They continue while the process drains.
fn start_trust_upkeep(app: &Arc<App>) -> SupervisedTasks {
    let mut upkeep = SupervisedTasks::new(&app.lasting.metrics.alarms);
    upkeep.start("changed-files", app, refresh::apply_changes);
    let trust = &app.trust;
    upkeep.start("block-expiry", trust, |trust| async move {
        trust.expire_when_due().await;
    });
    upkeep.start("crl-fetch", trust, |trust| async move {
        trust.fetch_at_intervals().await;
    });
    upkeep
}

/// The other tasks that keep the serving process up to date. Dropping the set ends them.
fn start_upkeep(app: &Arc<App>) -> SupervisedTasks {
    let mut upkeep = SupervisedTasks::new(&app.lasting.metrics.alarms);
    upkeep.start("pending-changes", app, compare::compare_at_intervals);
    upkeep.start("own-renewal", app, own_renewal::renew_when_due);
    upkeep.start("state-retry", app, state_retry::store_again);
    let membership = &app.membership;
    upkeep.start("member-state-expiry", membership, |membership| async move {
        membership.end_when_due().await;
    });
    upkeep.start("dns", membership, |membership| async move {
        membership.look_up_when_due().await;
    });
    upkeep.start("measurement", membership, |membership| async move {
        membership.measure_at_intervals().await;
    });
    let trust = &app.trust;
    upkeep.start("trust-alarms", trust, |trust| async move {
        trust.update_alarms_when_due().await;
    });
    upkeep.start("ca-examination", trust, |trust| async move {
        trust.examine_cas_at_intervals().await;
    });
    upkeep.start("cas-seen", trust, TrustKeeper::store_cas_seen_at_intervals);
    upkeep
}
