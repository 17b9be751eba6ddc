//! CPU time of requests over persistent connections: small requests, large bodies, and a mix of both.

use anyhow::Result;

use super::{cores::Cores, cpu, load::Load, peers::Peer, pki::Pki, requests::Mix};

/// A workload over persistent mutual TLS connections. Their handshakes are not counted.
#[derive(Clone, Copy)]
pub(super) struct Work {
    /// The requests of the agent with this certname.
    pub(super) mix: fn(&str) -> Mix,
    pub(super) requests: u64,
    pub(super) connections: usize,
    /// Number of agents that share the connections.
    pub(super) agents: usize,
    /// Requests per second on a fixed schedule; `None` to send each request after the previous response.
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

/// Large reports. An agent may send only its own reports.
pub(super) const W3_UP: Work = Work {
    mix: Mix::upload,
    requests: 400,
    agents: 1,
    ..W3_DOWN
};

/// Catalogs and small requests. Each request comes from the agent that it concerns.
pub(super) const W5: Work = Work {
    mix: Mix::run,
    requests: 20_500,
    connections: 16,
    agents: 1,
    ..W1
};

impl Work {
    /// Microseconds of CPU per successful response.
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
