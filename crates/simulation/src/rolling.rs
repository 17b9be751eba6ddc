//! The operator's rolling restart: each compiler in turn is drained, restarted and made ready again.

use crate::{
    balancer::{Balancer, OperatorOrder},
    scenario::{START, STOP},
    time::{Micros, seconds},
};

/// The progress of a rolling restart.
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

/// The operator's next step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RollingStep {
    /// The compiler to restart now.
    pub stop: Option<usize>,
    /// Whether all compilers have been restarted.
    pub done: bool,
}

impl Rolling {
    /// Compares the state of the members with the progress, and takes the next step.
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
