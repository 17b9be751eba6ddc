//! CPU time of requests over kept connections: small ones, large bodies, and a mix of both.

use anyhow::Result;

use super::{cores::Cores, cpu, load::Load, peers::Peer, pki::Pki, requests::Mix};

/// A workload over kept mutual TLS connections, whose handshakes are not counted.
#[derive(Clone, Copy)]
pub(super) struct Work {
    /// What the agent of this certname sends.
    pub(super) mix: fn(&str) -> Mix,
    pub(super) requests: u64,
    pub(super) connections: usize,
    /// How many agents share the connections.
    pub(super) agents: usize,
    /// Requests a second on a fixed schedule; as fast as they are answered where there is none.
    pub(super) rate: Option<u32>,
}

/// Small requests.
pub(super) const W1: Work = Work {
    mix: |_| Mix::small(),
    requests: 50_000,
    connections: 32,
    agents: 4,
    rate: None,
};

/// Small requests on a fixed schedule.
pub(super) const W1_RATE: Work = Work {
    requests: 30_000,
    rate: Some(5_000),
    ..W1
};

/// Large files.
pub(super) const W3_DOWN: Work = Work {
    mix: |_| Mix::download(),
    requests: 200,
    connections: 4,
    ..W1
};

/// Large reports, which only their own agent may send.
pub(super) const W3_UP: Work = Work {
    mix: Mix::upload,
    requests: 400,
    agents: 1,
    ..W3_DOWN
};

/// Catalogs among small requests, for the agent that they belong to.
pub(super) const W5: Work = Work {
    mix: Mix::run,
    requests: 20_500,
    connections: 16,
    agents: 1,
    ..W1
};

impl Work {
    /// Microseconds of CPU for each good answer.
    pub(super) fn measure(&self, peer: &Peer, pki: &Pki, cores: &Cores) -> Result<f64> {
        let proxy = peer.start(cores)?;
        let agents = &pki.agents[..self.agents];
        let mix = (self.mix)(&agents[0].certname);
        let mut load = Load::connect(proxy.address(), pki, agents, self.connections)?;
        let warm_up = (self.requests / 20).max(self.connections as u64);
        load.run(&mix, warm_up)?;
        let before = cpu::run_time(proxy.id());
        let answers = match self.rate {
            Some(rate) => load.run_at(rate, &mix, self.requests)?,
            None => load.run(&mix, self.requests)?,
        };
        let spent = cpu::run_time(proxy.id()).saturating_sub(before);
        answers.ensure_good(peer.name())?;
        Ok(spent.as_secs_f64() * 1e6 / answers.good as f64)
    }
}
