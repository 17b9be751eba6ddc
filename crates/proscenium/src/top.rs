//! The command `top`: a live view of the running proxy on the terminal.

mod draw;
mod view;

use std::{
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use admin::AdminClient;
use anyhow::Context;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event},
};

use self::{
    draw::draw,
    view::{AfterKey, Sample, View},
};
use crate::{
    arguments::{Arguments, Socket},
    ask::{client, wait},
    failure::Failure,
};

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
    wait(async { Ok((client.status().await?, client.traffic().await?)) })
}
