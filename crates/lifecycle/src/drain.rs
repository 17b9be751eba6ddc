//! Draining: the process finishes what is open and accepts nothing new.

use std::{pin::pin, sync::Arc, time::Duration};

use proxy::LifecyclePhase;
use tokio::time::{Instant, interval, sleep_until, timeout};

use crate::shared_state::App;

/// How often a stopping process checks whether a connection is open.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Time for connections to close once they are cut, and for records to be written.
pub(crate) const CUT_GRACE: Duration = Duration::from_secs(2);

/// Finishes what is open within `drain_grace`, accepts nothing new, and logs the result. `cut` ends the grace.
///
/// The drain also waits for former processes that still finish their requests, because a service manager ends what is left of a
/// service when its main process has ended. The grace of a former process has begun earlier.
pub(crate) async fn drain(app: &App, cut: impl Future<Output = ()>) {
    let began = Instant::now();
    let grace = app.foundation().config.drain_grace;
    let open = connections(app);
    tracing::info!(
        history.kind = "process",
        connections = open,
        grace_seconds = grace.as_secs_f64(),
        "draining"
    );
    app.shared.signals.send_modify(|signals| {
        signals.phase = LifecyclePhase::Draining;
        signals.cut_at = Some(began + grace);
    });
    close_listeners(app).await;
    // Connections that waited in the accept queues count too.
    let open = connections(app).max(open);
    let mut cut = pin!(cut);
    tokio::select! {
        () = no_connection_open(app) => {
            tokio::select! {
                () = app.hand_over.former.ended() => {}
                () = sleep_until(began + grace + CUT_GRACE) => {}
                () = &mut cut => {}
            }
        }
        () = sleep_until(began + grace) => {}
        () = &mut cut => {}
    }
    let cut = connections(app);
    if cut > 0 {
        app.shared
            .signals
            .send_modify(|signals| signals.phase = LifecyclePhase::Cutting);
        let _ = timeout(CUT_GRACE, no_connection_open(app)).await;
    }
    tracing::info!(
        history.kind = "process",
        finished = open.saturating_sub(cut),
        cut,
        seconds = began.elapsed().as_secs_f64(),
        "drained"
    );
}

/// Closes the listening sockets. New clients find no socket, and clients in the accept queues are served.
async fn close_listeners(app: &App) {
    let names: Vec<_> = {
        let mut state = app.state();
        let open = state.listeners.open.iter_mut();
        open.map(|open| {
            for endpoint in &mut open.endpoints {
                endpoint.file = None;
            }
            Arc::clone(&open.listener.name)
        })
        .collect()
    };
    for name in &names {
        app.workers.close(name, None).await;
    }
}

fn connections(app: &App) -> u32 {
    app.state().listeners.connections()
}

async fn no_connection_open(app: &App) {
    let mut check = interval(CHECK_INTERVAL);
    loop {
        check.tick().await;
        if connections(app) == 0 {
            return;
        }
    }
}
