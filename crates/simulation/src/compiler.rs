//! A compiler: Puppet Server with its JRubies, its queue, Jetty's threads, warm-up and environment caches.

use std::collections::VecDeque;

use crate::time::{Micros, SECOND, seconds};

/// What a compiler is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct CompilerSettings {
    /// `max-active-instances`.
    pub jrubies: u32,
    /// `max-queued-requests`: requests that wait for a JRuby before the next gets 503. 0: no limit.
    pub queue_max: u32,
    /// `max-retry-delay`: upper bound of `Retry-After` on that 503.
    pub retry_delay_max: f64,
    /// `borrow-timeout`: how long a request may wait for a JRuby.
    pub borrow_timeout: f64,
    /// Jetty's threads. Every request holds one, and so does a probe.
    pub threads: u32,
    /// How many times slower a JVM is at its first request.
    pub cold: f64,
    /// Requests for each JRuby until it is warm.
    pub warm_after: u32,
    /// Seconds that the first catalog of an environment takes longer in a JRuby.
    pub environment_load: f64,
    /// Environments whose code a JRuby keeps; beyond that the one that was used longest ago goes.
    pub environments_max: u16,
}

impl CompilerSettings {
    /// A compiler with so many JRubies, tuned as the support's advice has it: a queue of 12 for each JRuby, agents sent away
    /// for up to 10 minutes.
    pub fn new(jrubies: u32) -> Self {
        Self {
            jrubies,
            queue_max: 12 * jrubies,
            retry_delay_max: 600.0,
            borrow_timeout: 1200.0,
            threads: 190,
            cold: 4.0,
            warm_after: 300,
            environment_load: 6.0,
            environments_max: 64,
        }
    }
}

/// One request as a compiler sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// Which request, for the caller.
    pub ticket: u64,
    /// Seconds of a warm JRuby.
    pub work: f64,
    /// The environment whose code it needs; none: not a catalog.
    pub environment: Option<u16>,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JobAdmission {
    /// It runs in a JRuby until then; [`Compiler::finish`] is to be called at that time.
    Runs(Finish),
    /// It waits for a JRuby or a thread.
    Waits,
    /// 503 with `Retry-After`: the queue is full.
    QueueFull,
    /// 503 without `Retry-After`: the server is stopping.
    Stopping,
    /// The port is closed.
    Refused,
}

/// When a JRuby is done with a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finish {
    /// When.
    pub at: Micros,
    /// Which JRuby.
    pub jruby: u32,
    /// Which start of the server: what a stopped one would have finished is void.
    pub incarnation: u32,
}

/// Requests whose fate was decided by another's end.
#[derive(Debug, Default)]
pub struct Decided {
    /// Those that run now.
    pub started: Vec<Finish>,
    /// Those that get 503 because the queue is full.
    pub refused: Vec<u64>,
    /// Those whose wait for a JRuby was too long.
    pub timed_out: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Stopping,
    Down,
}

/// A simulated compiler.
#[derive(Debug)]
pub struct Compiler {
    settings: CompilerSettings,
    /// How many times slower it is than the others.
    pub slowness: f64,
    phase: Phase,
    incarnation: u32,
    served: u32,
    jrubies: Vec<JRuby>,
    /// Free JRubies; the one that was returned last is borrowed first, as Puppet Server does.
    free: Vec<u32>,
    borrowers: VecDeque<(Job, Micros)>,
    /// Requests that wait for a thread of Jetty.
    outside: VecDeque<Job>,
    /// Requests that hold a thread.
    inside: u32,
}

#[derive(Clone, Debug, Default)]
struct JRuby {
    job: Option<Job>,
    /// Environments whose code is loaded, the last one that was used last.
    environments: Vec<u16>,
}

impl Compiler {
    /// A compiler that has been at work for long: warm, with the first environments loaded.
    pub fn warm(settings: CompilerSettings) -> Self {
        let mut compiler = Self {
            slowness: 1.0,
            phase: Phase::Down,
            incarnation: 0,
            served: 0,
            jrubies: Vec::new(),
            free: Vec::new(),
            borrowers: VecDeque::new(),
            outside: VecDeque::new(),
            inside: 0,
            settings,
        };
        compiler.start();
        compiler.served = compiler.settings.warm_after * compiler.settings.jrubies;
        compiler.jrubies.iter_mut().for_each(|jruby| {
            jruby.environments = (0..compiler.settings.environments_max).collect()
        });
        compiler
    }

    /// Its JRubies.
    pub fn jrubies(&self) -> u32 {
        self.settings.jrubies
    }

    /// Its settings.
    pub fn settings(&self) -> &CompilerSettings {
        &self.settings
    }

    /// Takes a request.
    pub fn accept(&mut self, job: Job, now: Micros) -> JobAdmission {
        match self.phase {
            Phase::Down => return JobAdmission::Refused,
            Phase::Stopping => return JobAdmission::Stopping,
            Phase::Running => {}
        }
        if self.inside >= self.settings.threads {
            self.outside.push_back(job);
            return JobAdmission::Waits;
        }
        self.borrow(job, now)
    }

    /// Ends the request of a JRuby. Returns it, and what that decided for others; none: that server was stopped.
    pub fn finish(&mut self, finish: &Finish, now: Micros) -> Option<(u64, Decided)> {
        if finish.incarnation != self.incarnation || self.phase == Phase::Down {
            return None;
        }
        let job = self.jrubies[finish.jruby as usize].job.take()?;
        self.served = self.served.saturating_add(1);
        self.inside -= 1;
        self.free.push(finish.jruby);
        let mut decided = Decided::default();
        while let Some((waiting, since)) = self.borrowers.pop_front() {
            if now > since + seconds(self.settings.borrow_timeout) {
                self.inside -= 1;
                decided.timed_out.push(waiting.ticket);
                continue;
            }
            let jruby = self.free.pop().expect("one was just returned");
            decided.started.push(self.run(waiting, jruby, now));
            break;
        }
        while self.inside < self.settings.threads
            && let Some(job) = self.outside.pop_front()
        {
            match self.borrow(job, now) {
                JobAdmission::Runs(finish) => decided.started.push(finish),
                JobAdmission::QueueFull => decided.refused.push(job.ticket),
                _ => {}
            }
        }
        Some((job.ticket, decided))
    }

    /// Whether a probe is answered: the server runs, and a thread is free for it.
    pub fn answers_probe(&self) -> bool {
        self.phase == Phase::Running && self.inside < self.settings.threads
    }

    /// Whether its port is open.
    pub fn is_open(&self) -> bool {
        self.phase != Phase::Down
    }

    /// Requests that wait for a JRuby or a thread.
    pub fn waiting(&self) -> usize {
        self.borrowers.len() + self.outside.len()
    }

    /// The whole server stops taking requests; what runs may end until [`kill`](Self::kill).
    pub fn stop(&mut self) {
        self.phase = Phase::Stopping;
    }

    /// The process is gone. Returns the requests that it had.
    pub fn kill(&mut self) -> Vec<u64> {
        self.phase = Phase::Down;
        let running = self.jrubies.iter().filter_map(|jruby| jruby.job);
        let waiting = self.borrowers.iter().map(|(job, _)| *job);
        let lost = running.chain(waiting).chain(self.outside.iter().copied());
        lost.map(|job| job.ticket).collect()
    }

    /// The port opens again, cold and with empty caches.
    pub fn start(&mut self) {
        self.phase = Phase::Running;
        self.incarnation += 1;
        self.served = 0;
        self.inside = 0;
        self.jrubies = vec![JRuby::default(); self.settings.jrubies as usize];
        self.free = (0..self.settings.jrubies).rev().collect();
        self.borrowers.clear();
        self.outside.clear();
    }

    /// A deploy: every JRuby loads the environments' code again when it next needs it.
    pub fn empty_caches(&mut self) {
        self.jrubies
            .iter_mut()
            .for_each(|jruby| jruby.environments.clear());
    }

    fn borrow(&mut self, job: Job, now: Micros) -> JobAdmission {
        if let Some(jruby) = self.free.pop() {
            self.inside += 1;
            return JobAdmission::Runs(self.run(job, jruby, now));
        }
        let queue_max = self.settings.queue_max as usize;
        if queue_max > 0 && self.borrowers.len() >= queue_max {
            return JobAdmission::QueueFull;
        }
        self.inside += 1;
        self.borrowers.push_back((job, now));
        JobAdmission::Waits
    }

    fn run(&mut self, job: Job, index: u32, now: Micros) -> Finish {
        let jruby = &mut self.jrubies[index as usize];
        let mut work = job.work;
        if let Some(environment) = job.environment {
            match jruby
                .environments
                .iter()
                .rposition(|kept| *kept == environment)
            {
                Some(kept) => _ = jruby.environments.remove(kept),
                None => work += self.settings.environment_load,
            }
            if jruby.environments.len() >= self.settings.environments_max.into() {
                jruby.environments.remove(0);
            }
            jruby.environments.push(environment);
        }
        jruby.job = Some(job);
        let warm = f64::from(self.settings.warm_after * self.settings.jrubies).max(1.0);
        let coldness = (1.0 - f64::from(self.served) / warm).max(0.0);
        let slower = self.slowness * (1.0 + (self.settings.cold - 1.0) * coldness);
        Finish {
            at: now + (work * slower * SECOND as f64) as Micros,
            jruby: index,
            incarnation: self.incarnation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(ticket: u64, work: f64) -> Job {
        Job {
            ticket,
            work,
            environment: None,
        }
    }

    fn runs(accepted: JobAdmission) -> Finish {
        match accepted {
            JobAdmission::Runs(finish) => finish,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn requests_beyond_the_jrubies_wait_and_those_beyond_the_queue_get_503() {
        let settings = CompilerSettings {
            queue_max: 1,
            ..CompilerSettings::new(1)
        };
        let mut compiler = Compiler::warm(settings);
        let first = runs(compiler.accept(job(1, 2.0), 0));
        assert_eq!(first.at, seconds(2.0));
        assert_eq!(compiler.accept(job(2, 1.0), 0), JobAdmission::Waits);
        assert_eq!(compiler.accept(job(3, 1.0), 0), JobAdmission::QueueFull);
        let (ended, decided) = compiler.finish(&first, first.at).expect("it ran");
        assert_eq!(ended, 1);
        assert_eq!(decided.started[0].at, seconds(3.0));
    }

    #[test]
    fn probes_go_unanswered_while_all_threads_are_taken() {
        let settings = CompilerSettings {
            threads: 2,
            queue_max: 0,
            ..CompilerSettings::new(1)
        };
        let mut compiler = Compiler::warm(settings);
        let first = runs(compiler.accept(job(1, 1.0), 0));
        assert!(compiler.answers_probe());
        compiler.accept(job(2, 1.0), 0);
        compiler.accept(job(3, 1.0), 0);
        assert!(!compiler.answers_probe());
        compiler.finish(&first, first.at);
        assert!(
            !compiler.answers_probe(),
            "the third has the thread of the first"
        );
    }

    #[test]
    fn a_server_that_has_started_is_cold_and_loads_each_environment_once_a_jruby() {
        let mut compiler = Compiler::warm(CompilerSettings {
            warm_after: 2,
            ..CompilerSettings::new(1)
        });
        compiler.stop();
        assert_eq!(compiler.accept(job(1, 1.0), 0), JobAdmission::Stopping);
        compiler.kill();
        assert_eq!(compiler.accept(job(1, 1.0), 0), JobAdmission::Refused);
        compiler.start();
        let catalog = |ticket| Job {
            environment: Some(3),
            ..job(ticket, 1.0)
        };
        let first = runs(compiler.accept(catalog(1), 0));
        assert_eq!(first.at, seconds(4.0 * 7.0));
        compiler.finish(&first, first.at);
        let second = runs(compiler.accept(catalog(2), 0));
        assert_eq!(second.at, seconds(2.5));
        compiler.finish(&second, second.at);
        assert_eq!(runs(compiler.accept(catalog(3), 0)).at, seconds(1.0));
    }

    #[test]
    fn what_a_killed_server_had_is_lost_and_never_ends() {
        let mut compiler = Compiler::warm(CompilerSettings::new(1));
        let first = runs(compiler.accept(job(1, 1.0), 0));
        compiler.accept(job(2, 1.0), 0);
        assert_eq!(compiler.kill(), [1, 2]);
        compiler.start();
        assert!(compiler.finish(&first, first.at).is_none());
    }
}
