//! The simulation: agents send requests, a balancer (one column of the report) distributes them, and compilers serve
//! them. Virtual time advances from event to event.

use std::collections::VecDeque;

use balancing::{AttemptFailure, AttemptStage, Work};

use crate::{
    balancer::{Balancer, BalancerDecision, MemberReply, RequestId, SimulatedRequest},
    compiler::{Compiler, Decided, Finish, Job, JobAdmission},
    fleet::{CATALOG, RunRequest, SimulatedAgent},
    outcome::SimulationOutcome,
    random::Random,
    rolling::Rolling,
    scenario::{READ_TIMEOUT, START, STOP, Scenario, ScenarioEvent},
    time::{Agenda, Micros, SECOND, as_seconds, seconds},
};

/// Runs a scenario with one balancer.
pub fn simulate<B: Balancer>(scenario: &Scenario, balancer: B, seed: u64) -> SimulationOutcome {
    let mut world = World::new(scenario, balancer, seed);
    world.schedule();
    while world.step() {}
    world.outcome.length = as_seconds(world.now);
    world.outcome
}

/// A scheduled event.
#[derive(Debug)]
pub(crate) enum Happening {
    /// An agent starts its run.
    Begin(u32),
    /// An agent sends the next request of its run.
    Send(RequestId, u32),
    /// The queue timeout of a request expires.
    QueueTimeout(RequestId, u32),
    /// A JRuby finishes a request.
    Finish(usize, Finish),
    /// A probe is sent.
    Probe(usize),
    /// A probe times out.
    ProbeLate(usize),
    /// A compiler gets SIGTERM.
    Stop(usize),
    /// A compiler's process exits.
    Kill(usize),
    /// A compiler's port opens.
    Start(usize),
    /// The operator's script checks how far the rolling restart has come.
    Look,
    /// A code deployment empties all environment caches.
    Deploy,
    /// The first proxy dies.
    LoseProxy,
    /// The certname that requests catalogs in a loop opens its streams.
    Loop(u32),
    /// The lengths of the queues are sampled.
    Sample,
}

struct World<'a, B> {
    scenario: &'a Scenario,
    seed: u64,
    now: Micros,
    agenda: Agenda<Happening>,
    fleet: Vec<SimulatedAgent>,
    /// Agents sorted by phase. `next_phase` and `cycle` identify the next agent to start and the current interval.
    phases: Vec<(Micros, u32)>,
    next_phase: usize,
    cycle: u64,
    compilers: Vec<Compiler>,
    balancer: B,
    runs: Vec<Run>,
    free: Vec<RequestId>,
    /// Requests that wait for a response, and when each times out. They are sorted by time, because all have the same
    /// timeout.
    read_timeouts: VecDeque<(Micros, RequestId, u32)>,
    queue_timeouts: VecDeque<(Micros, RequestId, u32)>,
    rolling: Option<Rolling>,
    measured_open: u64,
    outcome: SimulationOutcome,
    random: Random,
    decided: Vec<(RequestId, BalancerDecision)>,
}

#[derive(Clone, Debug)]
struct Run {
    agent: u32,
    kind: RunKind,
    began: Micros,
    step: u16,
    /// Counts the requests of this slot, so that timers of earlier requests can be ignored.
    request: u32,
    /// Counts the attempts and waits of this slot, also so that timers of earlier ones can be ignored.
    token: u32,
    state: State,
    work: Work,
    has_catalog: bool,
    job: Job,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunKind {
    Measured,
    Background,
    Looping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No request is outstanding.
    Idle,
    /// The request is in the proxy's queue.
    Waiting,
    /// A pool member has the request.
    Sent,
}

/// The response to a request, as far as the agent distinguishes it.
enum Reply {
    Served,
    /// 503 or 429, with the value of `Retry-After` in seconds.
    Refused(Option<f64>),
    /// 502.
    Broken,
}

impl<'a, B: Balancer> World<'a, B> {
    fn new(scenario: &'a Scenario, balancer: B, seed: u64) -> Self {
        let fleet: Vec<_> = (0..scenario.fleet.agents)
            .map(|number| scenario.fleet.agent(seed, number))
            .collect();
        Self {
            scenario,
            seed,
            now: 0,
            agenda: Agenda::default(),
            phases: phases(scenario, &fleet),
            fleet,
            next_phase: 0,
            cycle: 0,
            compilers: scenario
                .compilers
                .iter()
                .cloned()
                .map(Compiler::warm)
                .collect(),
            balancer,
            runs: Vec::new(),
            free: Vec::new(),
            read_timeouts: VecDeque::new(),
            queue_timeouts: VecDeque::new(),
            rolling: None,
            measured_open: 0,
            outcome: SimulationOutcome::default(),
            random: Random::keyed(&[seed, WORLD]),
            decided: Vec::new(),
        }
    }

    fn schedule(&mut self) {
        for member in 0..self.compilers.len() {
            let offset =
                self.balancer.probe_interval() * member as f64 / self.compilers.len() as f64;
            self.agenda.at(seconds(offset), Happening::Probe(member));
        }
        self.agenda.at(0, Happening::Sample);
        match self.scenario.event {
            ScenarioEvent::Nothing => {}
            ScenarioEvent::Herd { at, within, agents } => {
                for agent in 0..agents {
                    let at = at + within * self.random.unit();
                    self.agenda.at(seconds(at), Happening::Begin(agent));
                }
            }
            ScenarioEvent::Slow { times } => self.compilers[0].slowness = times,
            ScenarioEvent::Death { at } => {
                self.agenda.at(seconds(at), Happening::Kill(0));
                self.agenda
                    .at(seconds(at + STOP + START), Happening::Start(0));
            }
            ScenarioEvent::RollingRestart { at } => {
                self.rolling = Some(Rolling::default());
                self.agenda.at(seconds(at), Happening::Look);
            }
            ScenarioEvent::Deploy { at } => self.agenda.at(seconds(at), Happening::Deploy),
            ScenarioEvent::ProxyDeath { at } => self.agenda.at(seconds(at), Happening::LoseProxy),
            ScenarioEvent::Loop { at, streams } => {
                self.agenda.at(seconds(at), Happening::Loop(streams));
            }
        }
    }

    /// Handles the next event. Returns false when all measured runs have finished.
    fn step(&mut self) -> bool {
        let until = seconds(self.scenario.until);
        if self.now >= until && self.measured_open == 0 {
            return false;
        }
        let phase = self.phases.get(self.next_phase);
        let interval = seconds(self.scenario.fleet.interval);
        let arrival = phase.map(|(phase, _)| phase + self.cycle * interval);
        let front = |queue: &VecDeque<(Micros, RequestId, u32)>| queue.front().map(|(at, ..)| *at);
        let sources = [
            self.agenda.peek(),
            arrival,
            front(&self.read_timeouts),
            front(&self.queue_timeouts),
        ];
        let next = sources
            .iter()
            .enumerate()
            .filter_map(|(source, at)| Some(((*at)?, source)));
        let Some((at, source)) = next.min() else {
            return false;
        };
        self.now = at;
        match source {
            0 => {
                let (_, happening) = self.agenda.pop().expect("it was looked at");
                self.happen(happening);
            }
            1 => {
                let (_, agent) = self.phases[self.next_phase];
                self.next_phase += 1;
                if self.next_phase == self.phases.len() {
                    self.next_phase = 0;
                    self.cycle += 1;
                }
                self.begin(agent);
            }
            2 => self.read_timeout(),
            _ => {
                let (_, id, token) = self.queue_timeouts.pop_front().expect("it was looked at");
                self.queue_timeout(id, token);
            }
        }
        self.settle();
        true
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Begin(agent) => self.begin(agent),
            Happening::Send(id, request) => {
                if self.runs[id as usize].request == request {
                    self.send(id);
                }
            }
            Happening::Finish(member, finish) => self.finish(member, &finish),
            Happening::Probe(member) => self.probe(member),
            Happening::ProbeLate(member) => self.balancer.probed(member, false, self.now),
            Happening::Stop(member) => {
                self.compilers[member].stop();
                self.agenda
                    .at(self.now + seconds(STOP), Happening::Kill(member));
                self.agenda
                    .at(self.now + seconds(STOP + START), Happening::Start(member));
            }
            Happening::Kill(member) => {
                for ticket in self.compilers[member].kill() {
                    self.lose(ticket);
                }
            }
            Happening::Start(member) => self.compilers[member].start(),
            Happening::QueueTimeout(id, token) => self.queue_timeout(id, token),
            Happening::Look => self.look(),
            Happening::Deploy => self.compilers.iter_mut().for_each(Compiler::empty_caches),
            Happening::LoseProxy => self.lose_proxy(),
            Happening::Loop(streams) => {
                for _ in 0..streams {
                    let id = self.open(self.scenario.fleet.agents, RunKind::Looping);
                    self.send(id);
                }
            }
            Happening::Sample => {
                let inside: usize = self.compilers.iter().map(Compiler::waiting).sum();
                let waiting = self.balancer.waiting() + inside;
                let in_one = self.compilers.iter().map(Compiler::waiting).max();
                let outcome = &mut self.outcome;
                outcome.longest_queue = outcome.longest_queue.max(waiting);
                outcome.longest_inside = outcome.longest_inside.max(in_one.unwrap_or_default());
                self.balancer.tick(self.now);
                self.agenda.at(self.now + SECOND, Happening::Sample);
            }
        }
    }

    fn begin(&mut self, agent: u32) {
        let (from, until) = (seconds(self.scenario.from), seconds(self.scenario.until));
        let kind = if (from..until).contains(&self.now) {
            RunKind::Measured
        } else {
            RunKind::Background
        };
        if kind == RunKind::Measured {
            self.outcome.runs += 1;
            self.measured_open += 1;
        }
        let id = self.open(agent, kind);
        self.send(id);
    }

    fn open(&mut self, agent: u32, kind: RunKind) -> RequestId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.runs.push(Run::unused());
            RequestId::try_from(self.runs.len() - 1).expect("fewer runs than 2^32")
        });
        let run = &mut self.runs[id as usize];
        *run = Run {
            agent,
            kind,
            began: self.now,
            request: run.request + 1,
            token: run.token + 1,
            ..Run::unused()
        };
        id
    }

    /// The next request of a run, and the environment if it is for a catalog.
    fn step_of(&self, run: &Run) -> (RunRequest, Option<u16>) {
        if run.kind == RunKind::Looping {
            let step = RunRequest {
                work: Work::Catalog,
                safe: false,
                jruby: LOOP_CATALOG,
                before: 0.0,
            };
            return (step, Some(0));
        }
        let agent = &self.fleet[run.agent as usize];
        let cycle = run.began / seconds(self.scenario.fleet.interval);
        let key = [self.seed, run.agent.into(), cycle, run.step.into()];
        let environment = (run.step == CATALOG).then_some(agent.environment);
        (agent.step(run.step, &key), environment)
    }

    /// The agent sends its request.
    fn send(&mut self, id: RequestId) {
        let (step, environment) = self.step_of(&self.runs[id as usize]);
        let run = &mut self.runs[id as usize];
        run.request += 1;
        run.work = step.work;
        run.job = Job {
            ticket: 0,
            work: step.jruby,
            environment,
        };
        let comes_back =
            run.kind != RunKind::Looping && self.fleet[run.agent as usize].honours_retry_after;
        let ask = SimulatedRequest {
            certname: run.agent,
            work: step.work,
            safe: step.safe,
            comes_back,
        };
        let late = self.now + seconds(READ_TIMEOUT);
        self.read_timeouts.push_back((late, id, run.request));
        self.outcome.requests += 1;
        let answer = self.balancer.offer(id, ask, self.now);
        self.follow(id, answer);
    }

    /// Carries out the balancer's decision, and any decision that follows from it.
    fn follow(&mut self, id: RequestId, mut answer: BalancerDecision) {
        loop {
            let run = &mut self.runs[id as usize];
            run.token += 1;
            let decided = match answer {
                BalancerDecision::Wait => {
                    run.state = State::Waiting;
                    let timeout = (self.now + self.balancer.patience(id), id, run.token);
                    // A request that has waited before times out earlier than the last entry, which would break the
                    // order of the queue.
                    match self.queue_timeouts.back() {
                        Some(last) if timeout.0 < last.0 => {
                            let over = Happening::QueueTimeout(id, run.token);
                            self.agenda.at(timeout.0, over);
                        }
                        _ => self.queue_timeouts.push_back(timeout),
                    }
                    return;
                }
                BalancerDecision::Refuse(retry_after) => {
                    return self.reply(id, Reply::Refused(retry_after));
                }
                BalancerDecision::Send(member) => {
                    run.state = State::Sent;
                    run.job.ticket = ticket(id, run.token);
                    match self.compilers[member].accept(run.job, self.now) {
                        JobAdmission::Runs(finish) => {
                            return self.agenda.at(finish.at, Happening::Finish(member, finish));
                        }
                        JobAdmission::Waits => return,
                        JobAdmission::QueueFull => self.queue_full(id, member),
                        JobAdmission::Stopping => self.unavailable(id),
                        JobAdmission::Refused => self.fail(id, AttemptStage::Connect),
                    }
                }
            };
            match decided {
                Some(next) => answer = next,
                None => return,
            }
        }
    }

    fn queue_full(&mut self, id: RequestId, member: usize) -> Option<BalancerDecision> {
        let most = self.compilers[member].settings().retry_delay_max;
        let retry_after = self.random.between(1.0, most);
        let reply = MemberReply::QueueFull(retry_after);
        let again = self.balancer.replied(id, reply, self.now);
        if again.is_none() {
            self.reply(id, Reply::Refused(Some(retry_after)));
        }
        again
    }

    fn unavailable(&mut self, id: RequestId) -> Option<BalancerDecision> {
        let again = self
            .balancer
            .replied(id, MemberReply::Unavailable, self.now);
        if again.is_none() {
            self.reply(id, Reply::Refused(None));
        }
        again
    }

    fn fail(&mut self, id: RequestId, stage: AttemptStage) -> Option<BalancerDecision> {
        let failure = AttemptFailure {
            stage,
            reused: false,
            unsent: stage == AttemptStage::Connect,
            broken_off: stage == AttemptStage::ReceiveHead,
        };
        let again = self.balancer.failed(id, &failure, self.now);
        if again.is_none() {
            self.reply(id, Reply::Broken);
        }
        again
    }

    /// Handles a request that was lost because its compiler was killed.
    fn lose(&mut self, ticket: u64) {
        if let Some(id) = self.current(ticket)
            && let Some(answer) = self.fail(id, AttemptStage::ReceiveHead)
        {
            self.follow(id, answer);
        }
    }

    /// The proxy that has died loses its requests, and the runs of their agents fail. A compiler that has a request
    /// continues to process it.
    fn lose_proxy(&mut self) {
        self.balancer.lose_proxy();
        for id in 0..self.runs.len() as RequestId {
            if self.runs[id as usize].state != State::Idle && self.balancer.is_lost(id) {
                self.reply(id, Reply::Broken);
            }
        }
    }

    fn finish(&mut self, member: usize, finish: &Finish) {
        let Some((ended, decided)) = self.compilers[member].finish(finish, self.now) else {
            return;
        };
        let Decided {
            started,
            refused,
            timed_out,
        } = decided;
        for finish in started {
            self.agenda.at(finish.at, Happening::Finish(member, finish));
        }
        if let Some(id) = self.current(ended) {
            match self.balancer.replied(id, MemberReply::Served, self.now) {
                None => self.reply(id, Reply::Served),
                Some(answer) => self.follow(id, answer),
            }
        }
        for ticket in refused {
            if let Some(id) = self.current(ticket)
                && let Some(answer) = self.queue_full(id, member)
            {
                self.follow(id, answer);
            }
        }
        for ticket in timed_out {
            if let Some(id) = self.current(ticket)
                && let Some(answer) = self.unavailable(id)
            {
                self.follow(id, answer);
            }
        }
    }

    /// The request that this ticket belongs to, if the agent is still waiting for that attempt.
    fn current(&self, ticket: u64) -> Option<RequestId> {
        let id = (ticket >> 32) as RequestId;
        let run = &self.runs[id as usize];
        (run.state == State::Sent && run.token == ticket as u32).then_some(id)
    }

    /// The agent receives its response.
    fn reply(&mut self, id: RequestId, reply: Reply) {
        let run = &mut self.runs[id as usize];
        run.state = State::Idle;
        run.request += 1;
        run.token += 1;
        if matches!(reply, Reply::Refused(_)) && run.kind != RunKind::Looping {
            self.outcome.refusals += 1;
        }
        if run.kind == RunKind::Looping {
            let pause = match reply {
                Reply::Served => 0.05,
                Reply::Refused(_) | Reply::Broken => 1.0,
            };
            let at = self.now + seconds(pause);
            return self.agenda.at(at, Happening::Send(id, run.request));
        }
        let agent = self.fleet[run.agent as usize];
        match reply {
            Reply::Served => {
                if run.work == Work::Catalog {
                    run.has_catalog = true;
                    if run.kind == RunKind::Measured {
                        let took = as_seconds(self.now - run.began);
                        self.outcome.to_catalog.push(took as f32);
                    }
                }
                run.step += 1;
                if run.step == agent.steps() {
                    return self.end(id, None);
                }
                let request = run.request;
                let (step, _) = self.step_of(&self.runs[id as usize]);
                let at = self.now + seconds(step.before);
                self.agenda.at(at, Happening::Send(id, request));
            }
            Reply::Refused(Some(retry_after))
                if agent.honours_retry_after
                    && as_seconds(self.now - run.began) + retry_after < RUN_TIMEOUT =>
            {
                let at = self.now + seconds(retry_after);
                self.agenda.at(at, Happening::Send(id, run.request));
            }
            Reply::Refused(_) => self.end(id, Some(Failed::Refused)),
            Reply::Broken => self.end(id, Some(Failed::Broken)),
        }
    }

    fn end(&mut self, id: RequestId, failed: Option<Failed>) {
        self.balancer.closed(id);
        let run = &mut self.runs[id as usize];
        run.request += 1;
        run.token += 1;
        run.state = State::Idle;
        if run.kind == RunKind::Measured {
            self.measured_open -= 1;
            let outcome = &mut self.outcome;
            match failed {
                None => {
                    outcome.succeeded += 1;
                    let took = as_seconds(self.now - run.began);
                    outcome.to_end.push(took as f32);
                }
                Some(Failed::TimedOut) => outcome.timed_out += 1,
                Some(Failed::Refused) => outcome.refused += 1,
                Some(Failed::Broken) => outcome.broken += 1,
            }
            if failed.is_some() {
                outcome.to_end.push(f32::INFINITY);
            }
            if !run.has_catalog {
                outcome.to_catalog.push(f32::INFINITY);
            }
        }
        self.free.push(id);
    }

    /// The agent stops waiting for its response. A compiler that has the request continues to process it.
    fn read_timeout(&mut self) {
        let (_, id, request) = self.read_timeouts.pop_front().expect("it was looked at");
        let run = &self.runs[id as usize];
        if run.request != request || run.state == State::Idle {
            return;
        }
        self.balancer.gone(id, self.now);
        match run.kind {
            RunKind::Looping => self.reply(id, Reply::Broken),
            _ => self.end(id, Some(Failed::TimedOut)),
        }
    }

    fn queue_timeout(&mut self, id: RequestId, token: u32) {
        let run = &self.runs[id as usize];
        if run.token != token || run.state != State::Waiting {
            return;
        }
        let retry_after = self.balancer.after_wait(id);
        self.balancer.gone(id, self.now);
        self.reply(id, Reply::Refused(retry_after));
    }

    fn probe(&mut self, member: usize) {
        match (
            self.compilers[member].answers_probe(),
            self.compilers[member].is_open(),
        ) {
            (true, _) => self.balancer.probed(member, true, self.now),
            (false, false) => self.balancer.probed(member, false, self.now),
            (false, true) => {
                let at = self.now + seconds(PROBE_TIMEOUT);
                self.agenda.at(at, Happening::ProbeLate(member));
            }
        }
        let at = self.now + seconds(self.balancer.probe_interval());
        self.agenda.at(at, Happening::Probe(member));
    }

    /// Runs one step of the operator's script for a rolling restart.
    fn look(&mut self) {
        let Some(rolling) = &mut self.rolling else {
            return;
        };
        let next = rolling.look(&mut self.balancer, self.compilers.len(), self.now);
        if let Some(member) = next.stop {
            self.happen(Happening::Stop(member));
        }
        if !next.done {
            self.agenda.at(self.now + SECOND, Happening::Look);
        }
    }

    /// Carries out the balancer's decisions on queued requests.
    fn settle(&mut self) {
        loop {
            let mut decided = std::mem::take(&mut self.decided);
            self.balancer.decided(self.now, &mut decided);
            if decided.is_empty() {
                self.decided = decided;
                return;
            }
            for (id, answer) in decided.drain(..) {
                self.follow(id, answer);
            }
            self.decided = decided;
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Failed {
    TimedOut,
    Refused,
    Broken,
}

impl Run {
    fn unused() -> Self {
        Self {
            agent: 0,
            kind: RunKind::Background,
            began: 0,
            step: 0,
            request: 0,
            token: 0,
            state: State::Idle,
            work: Work::Other,
            has_catalog: false,
            job: Job {
                ticket: 0,
                work: 0.0,
                environment: None,
            },
        }
    }
}

/// The agents that run on their own schedule, sorted by phase. Agents of a herd are not included.
fn phases(scenario: &Scenario, fleet: &[SimulatedAgent]) -> Vec<(Micros, u32)> {
    let herd = match scenario.event {
        ScenarioEvent::Herd { agents, .. } => agents,
        _ => 0,
    };
    let alone = fleet.iter().zip(0u32..).skip(herd as usize);
    let mut phases: Vec<_> = alone
        .map(|(agent, number)| (seconds(agent.phase.into()), number))
        .collect();
    phases.sort_unstable();
    phases
}

fn ticket(id: RequestId, token: u32) -> u64 {
    u64::from(id) << 32 | u64::from(token)
}

const WORLD: u64 = 4;
const PROBE_TIMEOUT: f64 = 3.0;
/// Puppet's `runtimeout`, in seconds.
const RUN_TIMEOUT: f64 = 3600.0;
/// Compile time of the catalogs that are requested in a loop, in seconds.
const LOOP_CATALOG: f64 = 3.0;

#[cfg(test)]
mod tests;
