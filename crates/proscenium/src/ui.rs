//! The command `ui`: a page about the running proxy, served by this process on a loopback address.

mod actions;
mod agents;
mod endpoints;
mod files;
mod guard;
mod session;

use std::{
    future::pending,
    io::{self, IsTerminal},
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use admin::AdminClient;
use anyhow::Context;
use serde::Serialize;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use self::session::Session;
pub(crate) use self::session::new_token;
use crate::{
    arguments::{Arguments, Ui},
    ask::{client, wait},
    failure::Failure,
    output,
};

/// The page stops after this time without a request of an operator.
const IDLE_MAX: Duration = Duration::from_secs(3_600);
/// Maximum number of connections at a time. A browser opens six.
const CONNECTIONS_MAX: usize = 32;
/// Maximum number of lines from the terminal that wait.
const LINES_MAX: usize = 4;

/// What every request uses.
struct Page {
    client: AdminClient,
    session: Mutex<Session>,
    /// The printed address, which `Host` must name.
    address: SocketAddr,
    /// Whether the page may change the proxy.
    actions: bool,
    /// The configuration file, which names the access log.
    config: PathBuf,
    /// When the last request with the secret arrived.
    used: watch::Sender<Instant>,
}

/// What the command prints.
#[derive(Serialize)]
struct Opened {
    url: String,
    actions: bool,
}

/// Serves the page until the terminal closes, a signal arrives, or no request has arrived for an hour.
pub(crate) fn ui(arguments: &Arguments, wanted: &Ui) -> Result<(), Failure> {
    if !wanted.listen.ip().is_loopback() {
        return Err(Failure::Usage(format!(
            "error: --listen {}: the page is only served on a loopback address, such as 127.0.0.1:8141; from another \
             machine, forward that port with `ssh -L`",
            wanted.listen
        )));
    }
    let client = client(arguments, &wanted.socket)?;
    // Shows at once whether the proxy answers this account.
    wait(client.status())?;
    let listener = TcpListener::bind(wanted.listen)
        .with_context(|| format!("cannot listen on {}", wanted.listen))?;
    let address = listener.local_addr().context("a listener has an address")?;
    let token = new_token()?;
    let page = Arc::new(Page {
        client,
        session: Mutex::new(Session::new(&token)),
        address,
        actions: wanted.actions,
        config: arguments.config.clone(),
        used: watch::Sender::new(Instant::now()),
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    runtime.block_on(serve(arguments, listener, page, &token))
}

async fn serve(
    arguments: &Arguments,
    listener: TcpListener,
    page: Arc<Page>,
    token: &str,
) -> Result<(), Failure> {
    let (stop, stopped) = watch::channel(false);
    let mut lines = terminal_lines();
    let mut signals = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ]
    .map(signal)
    .into_iter()
    .collect::<io::Result<Vec<_>>>()
    .context("cannot wait for signals")?;
    let [interrupt, terminate, hangup] = signals.as_mut_slice() else {
        return Err(Failure::because("three signals are waited for"));
    };
    print_address(arguments, &page, token)?;
    let endpoints = endpoints::router(&page);
    let serving = admin::serve_http(listener, endpoints, CONNECTIONS_MAX, stopped);
    tokio::pin!(serving);
    let idle = idle(page.used.subscribe());
    tokio::pin!(idle);
    loop {
        tokio::select! {
            ended = &mut serving => return Ok(ended.context("cannot serve the page")?),
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            _ = hangup.recv() => break,
            () = &mut idle => {
                output::print_error("the page was not used for an hour: ended");
                break;
            }
            line = next_line(&mut lines) => match line {
                Some(()) => renew(arguments, &page)?,
                None => break,
            },
        }
    }
    drop(stop);
    Ok(())
}

/// Replaces the token and ends the page that is open.
fn renew(arguments: &Arguments, page: &Page) -> Result<(), Failure> {
    let token = new_token()?;
    *page.session.lock().unwrap_or_else(PoisonError::into_inner) = Session::new(&token);
    print_address(arguments, page, &token)
}

fn print_address(arguments: &Arguments, page: &Page, token: &str) -> Result<(), Failure> {
    let opened = Opened {
        url: format!("http://{}/#{token}", page.address),
        actions: page.actions,
    };
    output::answer(arguments.json, &opened, |opened| {
        let may = if opened.actions {
            "may drain members and block agents as this account"
        } else {
            "only shows; --actions allows changes"
        };
        let enter = if io::stdin().is_terminal() {
            "Press Enter for a new address, Ctrl-C to end."
        } else {
            "SIGTERM ends it."
        };
        format!(
            "{}\n\nThe address works once, in one browser. The page {may}.\n{enter}",
            opened.url
        )
    })
}

/// A line of the terminal. `None` if the terminal has closed. Waits forever if standard input is not a terminal.
async fn next_line(lines: &mut Option<mpsc::Receiver<()>>) -> Option<()> {
    match lines {
        Some(lines) => lines.recv().await,
        None => pending().await,
    }
}

/// Reads lines from the terminal, which has no asynchronous reads. The channel closes when the terminal does.
fn terminal_lines() -> Option<mpsc::Receiver<()>> {
    if !io::stdin().is_terminal() {
        return None;
    }
    let (sender, lines) = mpsc::channel(LINES_MAX);
    thread::spawn(move || {
        let mut line = String::new();
        while matches!(io::stdin().read_line(&mut line), Ok(1..)) {
            line.clear();
            if sender.blocking_send(()).is_err() {
                return;
            }
        }
    });
    Some(lines)
}

/// Ends when no request has arrived for [`IDLE_MAX`].
async fn idle(mut used: watch::Receiver<Instant>) {
    loop {
        let end = *used.borrow_and_update() + IDLE_MAX;
        tokio::select! {
            biased;
            changed = used.changed() => if changed.is_err() { return },
            () = sleep_until(end) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_page_ends_an_hour_after_the_last_request() {
        let begun = Instant::now();
        let used = watch::Sender::new(begun);
        let idle = tokio::spawn(idle(used.subscribe()));
        tokio::time::sleep(Duration::from_secs(1_800)).await;
        used.send_replace(Instant::now());
        idle.await.expect("it ends");
        assert_eq!(begun.elapsed(), Duration::from_secs(1_800) + IDLE_MAX);
    }
}
