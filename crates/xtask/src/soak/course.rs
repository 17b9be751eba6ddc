//! The course of the run: when all agents work, pause or stop.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The current command to the agents, and how many agents are at work.
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
    /// Counts an agent as working until the result is dropped.
    pub(super) fn working(&self) -> Working<'_> {
        self.state().working += 1;
        Working(self)
    }

    /// Called between two runs, without a connection. Waits while agents must hold still. Returns false at the end.
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

    /// Whether agents must work. Otherwise they finish their run.
    pub(super) fn is_working(&self) -> bool {
        self.state().command == AgentCommand::Work
    }

    /// Waits for `time`, or until agents must stop working. Returns false if they must stop.
    pub(super) fn works_for(&self, time: Duration) -> bool {
        let state = self.state();
        let waited = self
            .changed
            .wait_timeout_while(state, time, |state| state.command == AgentCommand::Work);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.command == AgentCommand::Work
    }

    /// Whether the run is over.
    pub(super) fn is_over(&self) -> bool {
        self.state().command == AgentCommand::End
    }

    /// Makes agents hold still. Returns whether all do so within `limit`.
    pub(super) fn hold_still(&self, limit: Duration) -> bool {
        let mut state = self.state();
        state.command = AgentCommand::HoldStill;
        self.changed.notify_all();
        let waited = self
            .changed
            .wait_timeout_while(state, limit, |state| state.working > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.working == 0
    }

    /// Makes agents work again.
    pub(super) fn go(&self) {
        self.set_command(AgentCommand::Work);
    }

    /// Makes agents stop when the result is dropped, also after an error or a panic.
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
