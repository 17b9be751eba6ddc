//! When agents work, hold still or are done: all of them at once.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// What agents are to do, and how many do it.
#[derive(Default)]
pub(super) struct Course {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    command: AgentCommand,
    working: usize,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum AgentCommand {
    #[default]
    Work,
    HoldStill,
    End,
}

impl Course {
    /// An agent that works until this is dropped.
    pub(super) fn working(&self) -> Working<'_> {
        self.state().working += 1;
        Working(self)
    }

    /// Between two runs, without a connection: waits while agents are to hold still; false at the end.
    pub(super) fn goes_on(&self) -> bool {
        let mut state = self.state();
        if state.command == AgentCommand::HoldStill {
            state.working -= 1;
            self.changed.notify_all();
            let waited = self
                .changed
                .wait_while(state, |state| state.command == AgentCommand::HoldStill);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            state.working += 1;
        }
        state.command != AgentCommand::End
    }

    /// Whether agents are to work, rather than to come to an end of what they do.
    pub(super) fn is_working(&self) -> bool {
        self.state().command == AgentCommand::Work
    }

    /// Waits while agents are to work, for so long at most; false if they are not to work any more.
    pub(super) fn works_for(&self, time: Duration) -> bool {
        let state = self.state();
        let waited = self
            .changed
            .wait_timeout_while(state, time, |state| state.command == AgentCommand::Work);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.command == AgentCommand::Work
    }

    /// Whether all is to end.
    pub(super) fn is_over(&self) -> bool {
        self.state().command == AgentCommand::End
    }

    /// Has agents hold still; whether all do within `limit`.
    pub(super) fn hold_still(&self, limit: Duration) -> bool {
        let mut state = self.state();
        state.command = AgentCommand::HoldStill;
        self.changed.notify_all();
        let waited = self
            .changed
            .wait_timeout_while(state, limit, |state| state.working > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.working == 0
    }

    /// Has agents work again.
    pub(super) fn go(&self) {
        self.set_command(AgentCommand::Work);
    }

    /// Has agents end when this is dropped, however that comes about.
    pub(super) fn end_on_drop(&self) -> EndOnDrop<'_> {
        EndOnDrop(self)
    }

    fn set_command(&self, command: AgentCommand) {
        self.state().command = command;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See `Course::working`.
pub(super) struct Working<'a>(&'a Course);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.state().working -= 1;
        self.0.changed.notify_all();
    }
}

/// See `Course::end_on_drop`.
pub(super) struct EndOnDrop<'a>(&'a Course);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set_command(AgentCommand::End);
    }
}
