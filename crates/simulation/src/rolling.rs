//! The operator who restarts one compiler after the other: drain, wait, restart, ready.

use crate::{
    balancer::{Balancer, OperatorOrder},
    scenario::{START, STOP},
    time::{Micros, seconds},
};

/// How far a rolling restart has come.
#[derive(Debug, Default)]
pub struct Rolling {
    member: usize,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    #[default]
    Begin,
    Draining,
    Restarting {
        until: Micros,
    },
}

/// What the operator does next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RollingStep {
    /// The compiler that is to be restarted now.
    pub stop: Option<usize>,
    /// Whether all have been.
    pub done: bool,
}

impl Rolling {
    /// Looks how things stand, and does what is next.
    pub fn look<B: Balancer>(
        &mut self,
        balancer: &mut B,
        members: usize,
        now: Micros,
    ) -> RollingStep {
        let mut step = RollingStep::default();
        match self.phase {
            Phase::Begin => {
                balancer.order(self.member, OperatorOrder::Drain, now);
                self.phase = Phase::Draining;
            }
            Phase::Draining if balancer.in_flight(self.member) == 0 => {
                step.stop = Some(self.member);
                self.phase = Phase::Restarting {
                    until: now + seconds(STOP + START),
                };
            }
            Phase::Restarting { until } if now >= until && balancer.is_up(self.member) => {
                balancer.order(self.member, OperatorOrder::Ready, now);
                self.member += 1;
                self.phase = Phase::Begin;
            }
            Phase::Draining | Phase::Restarting { .. } => {}
        }
        step.done = self.member == members;
        step
    }
}
