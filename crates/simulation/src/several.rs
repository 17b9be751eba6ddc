//! Several proxies in front of the same compilers. Each knows only the requests of its own agents.

use balancing::AttemptFailure;

use crate::{
    balancer::{
        Balancer, BalancerDecision, MemberReply, OperatorOrder, RequestId, SimulatedRequest,
    },
    random::Random,
    time::Micros,
};

/// Proxies of one kind, each with a share of the agents.
pub struct SeveralProxies<B> {
    /// `None` for a proxy that has died.
    proxies: Vec<Option<B>>,
    /// For each proxy, the upper bound of its part of the agents, where all agents are the range from 0 to 1.
    bounds: Vec<f64>,
    /// The proxy of each request.
    owners: Vec<usize>,
    seed: u64,
}

impl<B: Balancer> SeveralProxies<B> {
    /// Proxies that serve these parts of the agents. The parts add up to 1.
    pub fn new(shares: &[f64], seed: u64, proxy: impl FnMut(usize) -> B) -> Self {
        let bounds = shares.iter().scan(0.0, |sum, share| {
            *sum += share;
            Some(*sum)
        });
        Self {
            bounds: bounds.collect(),
            proxies: (0..shares.len()).map(proxy).map(Some).collect(),
            owners: Vec::new(),
            seed,
        }
    }

    /// The proxy of an agent. The agents of a proxy that has died use the next one.
    fn proxy_of(&self, certname: u32) -> usize {
        let part = Random::keyed(&[self.seed, SPLIT, certname.into()]).unit();
        let own = self
            .bounds
            .iter()
            .take_while(|bound| **bound < part)
            .count();
        let next = (own..self.proxies.len()).chain(0..own);
        let mut alive = next.filter(|index| self.proxies[*index].is_some());
        alive.next().expect("only one proxy dies")
    }

    fn alive(&self) -> impl Iterator<Item = &B> {
        self.proxies.iter().flatten()
    }

    fn alive_mut(&mut self) -> impl Iterator<Item = &mut B> {
        self.proxies.iter_mut().flatten()
    }

    fn owner(&mut self, id: RequestId) -> Option<&mut B> {
        let owner = *self.owners.get(id as usize)?;
        self.proxies[owner].as_mut()
    }
}

impl<B: Balancer> Balancer for SeveralProxies<B> {
    fn offer(&mut self, id: RequestId, ask: SimulatedRequest, now: Micros) -> BalancerDecision {
        let (index, owner) = (id as usize, self.proxy_of(ask.certname));
        if self.owners.len() <= index {
            self.owners.resize(index + 1, owner);
        }
        self.owners[index] = owner;
        let proxy = self.proxies[owner].as_mut().expect("it is alive");
        proxy.offer(id, ask, now)
    }

    fn replied(
        &mut self,
        id: RequestId,
        reply: MemberReply,
        now: Micros,
    ) -> Option<BalancerDecision> {
        self.owner(id)?.replied(id, reply, now)
    }

    fn failed(
        &mut self,
        id: RequestId,
        failure: &AttemptFailure,
        now: Micros,
    ) -> Option<BalancerDecision> {
        self.owner(id)?.failed(id, failure, now)
    }

    fn gone(&mut self, id: RequestId, now: Micros) {
        if let Some(proxy) = self.owner(id) {
            proxy.gone(id, now);
        }
    }

    fn probed(&mut self, member: usize, good: bool, now: Micros) {
        self.alive_mut()
            .for_each(|proxy| proxy.probed(member, good, now));
    }

    fn order(&mut self, member: usize, order: OperatorOrder, now: Micros) {
        self.alive_mut()
            .for_each(|proxy| proxy.order(member, order, now));
    }

    fn decided(&mut self, now: Micros, decided: &mut Vec<(RequestId, BalancerDecision)>) {
        self.alive_mut()
            .for_each(|proxy| proxy.decided(now, decided));
    }

    fn is_up(&self, member: usize) -> bool {
        self.alive().all(|proxy| proxy.is_up(member))
    }

    fn in_flight(&self, member: usize) -> u32 {
        self.alive().map(|proxy| proxy.in_flight(member)).sum()
    }

    fn waiting(&self) -> usize {
        self.alive().map(Balancer::waiting).sum()
    }

    fn patience(&self, id: RequestId) -> Micros {
        let proxy = self.proxies[self.owners[id as usize]].as_ref();
        proxy.map_or(0, |proxy| proxy.patience(id))
    }

    fn tick(&mut self, now: Micros) {
        self.alive_mut().for_each(|proxy| proxy.tick(now));
    }

    fn after_wait(&mut self, id: RequestId) -> Option<f64> {
        self.owner(id)?.after_wait(id)
    }

    fn closed(&mut self, id: RequestId) {
        if let Some(proxy) = self.owner(id) {
            proxy.closed(id);
        }
    }

    fn probe_interval(&self) -> f64 {
        self.alive()
            .map(Balancer::probe_interval)
            .fold(f64::INFINITY, f64::min)
    }

    fn lose_proxy(&mut self) {
        self.proxies[0] = None;
    }

    fn is_lost(&self, id: RequestId) -> bool {
        self.proxies[self.owners[id as usize]].is_none()
    }
}

const SPLIT: u64 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proscenium::{Proscenium, ProsceniumSettings};

    #[test]
    fn each_proxy_has_its_share_of_the_agents_and_the_next_one_takes_over_those_of_a_dead_one() {
        let proxy = |_| Proscenium::new(ProsceniumSettings::default(), &[4], 1);
        let mut proxies = SeveralProxies::new(&[0.5, 0.3, 0.2], 1, proxy);
        let counts = |proxies: &SeveralProxies<Proscenium>| {
            let mut counts = [0; 3];
            (0..10_000).for_each(|certname| counts[proxies.proxy_of(certname)] += 1);
            counts
        };
        let before = counts(&proxies);
        for (count, expected) in before.into_iter().zip([5_000, 3_000, 2_000]) {
            assert!(
                (expected - 200..expected + 200).contains(&count),
                "{before:?}"
            );
        }
        proxies.lose_proxy();
        let [first, second, third] = before;
        assert_eq!(counts(&proxies), [0, first + second, third]);
    }
}
