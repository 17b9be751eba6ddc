//! A compiler: Puppet Server with its JRubies, its queue, Jetty's threads, warm-up and environment caches.

use std::collections::VecDeque;

use crate::time::{Micros, SECOND, seconds};

/// Settings of a simulated compiler.
#[derive(Clone, Debug, PartialEq)]
pub struct CompilerSettings {
    /// `max-active-instances`.
    pub jrubies: u32,
    /// `max-queued-requests`: how many requests may wait for a JRuby. Further requests get 503. 0 means no limit.
    pub queue_max: u32,
    /// `max-retry-delay`: maximum of the `Retry-After` on that 503, in seconds.
    pub retry_delay_max: f64,
    /// `borrow-timeout`: how long a request may wait for a JRuby, in seconds.
    pub borrow_timeout: f64,
    /// Number of Jetty's threads. Every request and every probe occupies one.
    pub threads: u32,
    /// Factor by which a JVM is slower at its first request.
    pub cold: f64,
    /// Requests per JRuby until the JVM is warm.
    pub warm_after: u32,
    /// Additional seconds for the first catalog of an environment in a JRuby.
    pub environment_load: f64,
    /// Maximum number of environments whose code a JRuby caches. It evicts the least recently used one.
    pub environments_max: u16,
}

impl CompilerSettings {
    /// A compiler with this many JRubies, tuned as Puppet's support recommends: a queue of 12 requests per JRuby, and a
    /// `Retry-After` of up to 10 minutes.
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
    /// Identifies the request to the caller.
    pub ticket: u64,
    /// Seconds that a warm JRuby needs.
    pub work: f64,
    /// The environment whose code the request needs. `None` unless it is for a catalog.
    pub environment: Option<u16>,
}

/// How a compiler handles a new request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JobAdmission {
    /// The request runs in a JRuby. The caller must call [`Compiler::finish`] at the time in [`Finish`].
    Runs(Finish),
    /// The request waits for a JRuby or a thread.
    Waits,
    /// 503 with `Retry-After`: the queue is full.
    QueueFull,
    /// 503 without `Retry-After`: the server is stopping.
    Stopping,
    /// The port is closed.
    Refused,
}

/// When and where a JRuby finishes a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finish {
    /// The time.
    pub at: Micros,
    /// The index of the JRuby.
    pub jruby: u32,
    /// Counts the starts of the server. A `Finish` from before a restart is ignored.
    pub incarnation: u32,
}

/// The effects on waiting requests when another request finishes.
#[derive(Debug, Default)]
pub struct Decided {
    /// Requests that start to run.
    pub started: Vec<Finish>,
    /// Requests that get 503 because the queue is full.
    pub refused: Vec<u64>,
    /// Requests that waited too long for a JRuby.
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
    /// Factor by which this compiler is slower than the other ones.
    pub slowness: f64,
    phase: Phase,
    incarnation: u32,
    served: u32,
    jrubies: Vec<JRuby>,
    /// Free JRubies. As in Puppet Server, the one that was returned last is borrowed first.
    free: Vec<u32>,
    borrowers: VecDeque<(Job, Micros)>,
    /// Requests that wait for a Jetty thread.
    outside: VecDeque<Job>,
    /// Number of requests that occupy a thread.
    inside: u32,
}

#[derive(Clone, Debug, Default)]
struct JRuby {
    job: Option<Job>,
    /// Environments whose code is loaded, in order of last use. The most recently used one is last.
    environments: Vec<u16>,
}

impl Compiler {
    /// A compiler that has run for a long time: it is warm, and the first environments are loaded.
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

    /// The number of JRubies.
    pub fn jrubies(&self) -> u32 {
        self.settings.jrubies
    }

    /// The settings.
    pub fn settings(&self) -> &CompilerSettings {
        &self.settings
    }

    /// Accepts or refuses a request.
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

    /// Finishes the request of a JRuby. Returns its ticket, and what happens to waiting requests. Returns `None` if the
    /// server was killed after the request started.
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

    /// Whether the server responds to a probe: it runs, and a thread is free.
    pub fn answers_probe(&self) -> bool {
        self.phase == Phase::Running && self.inside < self.settings.threads
    }

    /// Whether the server's port is open.
    pub fn is_open(&self) -> bool {
        self.phase != Phase::Down
    }

    /// Number of requests that wait for a JRuby or a thread.
    pub fn waiting(&self) -> usize {
        self.borrowers.len() + self.outside.len()
    }

    /// The server stops accepting requests. Running requests continue until [`kill`](Self::kill).
    pub fn stop(&mut self) {
        self.phase = Phase::Stopping;
    }

    /// The process ends. Returns the tickets of the requests that it loses.
    pub fn kill(&mut self) -> Vec<u64> {
        self.phase = Phase::Down;
        let running = self.jrubies.iter().filter_map(|jruby| jruby.job);
        let waiting = self.borrowers.iter().map(|(job, _)| *job);
        let lost = running.chain(waiting).chain(self.outside.iter().copied());
        lost.map(|job| job.ticket).collect()
    }

    /// The server starts: its port opens, the JVM is cold and the caches are empty.
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

    /// Simulates a code deployment: every JRuby loads an environment's code again when it next needs it.
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
    fn requests_wait_for_a_jruby_and_get_503_when_the_queue_is_full() {
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
    fn probes_get_no_response_while_all_threads_are_busy() {
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
    fn a_restarted_server_is_cold_and_each_jruby_loads_an_environment_once() {
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
    fn a_killed_server_loses_its_requests_and_never_finishes_them() {
        let mut compiler = Compiler::warm(CompilerSettings::new(1));
        let first = runs(compiler.accept(job(1, 1.0), 0));
        compiler.accept(job(2, 1.0), 0);
        assert_eq!(compiler.kill(), [1, 2]);
        compiler.start();
        assert!(compiler.finish(&first, first.at).is_none());
    }
}
