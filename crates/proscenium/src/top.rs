//! The command `top`: a live view of the running proxy on the terminal.

mod draw;
mod view;

use std::{
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use admin::{AdminClient, AdminClientError};
use anyhow::Context;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event},
};
use tokio::time::timeout;

use self::{
    draw::draw,
    view::{AfterKey, Sample, View},
};
use crate::{
    arguments::{Arguments, Socket},
    ask::{client, wait},
    failure::Failure,
};

/// How long the view waits for an answer, because no key is obeyed meanwhile.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// How often the view is updated.
const INTERVAL: Duration = Duration::from_secs(1);

/// Shows the view until q, Esc or Ctrl-C.
pub(crate) fn top(arguments: &Arguments, socket: &Socket) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        return Err(Failure::Usage(
            "error: `top` needs a terminal; `status --watch` prints the status again and again"
                .to_owned(),
        ));
    }
    let client = client(arguments, socket)?;
    // The first request shows whether the proxy answers, before the screen changes.
    let mut view = View::new(read(&client)?);
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let ended = show(&mut terminal, &mut view, &client);
    ratatui::restore();
    Ok(ended.context("cannot use the terminal")?)
}

fn show(terminal: &mut DefaultTerminal, view: &mut View, client: &AdminClient) -> io::Result<()> {
    let mut due = Instant::now() + INTERVAL;
    loop {
        terminal.draw(|frame| draw(frame, view))?;
        if event::poll(due.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = event::read()?
                && view.key(key) == AfterKey::End
            {
                return Ok(());
            }
            continue;
        }
        due = Instant::now() + INTERVAL;
        match read(client) {
            Ok(sample) => view.update(sample),
            Err(Failure::Failed(error)) => view.problem = Some(format!("{error:#}")),
            Err(_) => {}
        }
    }
}

fn read(client: &AdminClient) -> Result<Sample, Failure> {
    let sample = async { Ok((client.status().await?, client.traffic().await?)) };
    match wait(async { Ok(timeout(ANSWER_MAX, sample).await) })? {
        Ok(sample) => Ok(sample.map_err(|error: AdminClientError| anyhow::Error::from(error))?),
        Err(_) => Err(Failure::because(format!(
            "the proxy has not answered within {} s; `journalctl -u proscenium` may show why",
            ANSWER_MAX.as_secs()
        ))),
    }
}
