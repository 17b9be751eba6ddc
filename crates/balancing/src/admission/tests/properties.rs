//! Properties that always hold, and threads that must not lose a wake-up.

use super::super::*;
use super::support::*;
use proptest::prelude::*;
use std::sync::atomic::AtomicBool;
use std::task::Wake;
use std::thread;

#[derive(Clone, Debug)]
enum QueueEvent {
    Offer {
        client: usize,
        work: usize,
        comes_back: bool,
    },
    Finish(usize),
    Again(usize),
    Leave(usize),
    Collect(usize),
    Switch(usize),
}

fn step() -> impl Strategy<Value = QueueEvent> {
    prop_oneof![
        6 => (0..4usize, 0..4usize, any::<bool>()).prop_map(|(client, work, comes_back)| {
            QueueEvent::Offer { client, work, comes_back }
        }),
        3 => any::<usize>().prop_map(QueueEvent::Finish),
        1 => any::<usize>().prop_map(QueueEvent::Again),
        1 => any::<usize>().prop_map(QueueEvent::Leave),
        3 => any::<usize>().prop_map(QueueEvent::Collect),
        1 => (0..3usize).prop_map(QueueEvent::Switch),
    ]
}

/// Removes the element that a number selects, which is drawn over all of `usize`.
fn drawn<T>(from: &mut Vec<T>, number: usize) -> Option<T> {
    (!from.is_empty()).then(|| from.swap_remove(number % from.len()))
}

type Waiting = (usize, Ticket<HeldSlot>);
type Busy = (usize, Admitted<HeldSlot>);

/// Checks the properties that hold after every step.
fn holds(site: &Site, running: &[Busy], waiting: &mut [Waiting]) -> Result<(), TestCaseError> {
    let state = site.admission.state();
    let queued: u32 = state.waiting.iter().sum();
    prop_assert!(queued <= site.limits.queue_max);
    for member in &*site.members.members() {
        prop_assert!(member.running <= member.max);
    }
    for (client, account) in site.accounts.iter().enumerate() {
        prop_assert!(account.held() <= u64::from(site.limits.client_max));
        let busy = running.iter().filter(|(of, _)| *of == client).count();
        prop_assert!(busy as u64 <= account.held());
    }
    let queue = site.admission.queue();
    for rest in queue.blocked.values() {
        prop_assert!(rest.len() <= 2);
    }
    let idle = site.members.has_room();
    for (client, ticket) in waiting {
        let waiter = &queue.waiters[&ticket.id];
        let waits = waiter.outcome.is_none() && waiter.place != QueuePosition::Front;
        let may_run = waiter.place != QueuePosition::Blocked
            || site.accounts[*client].held() < u64::from(site.limits.client_max);
        prop_assert!(
            !(waits && may_run && idle),
            "it waits though a member has room"
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn limits_hold_no_request_waits_without_need_and_every_slot_is_given_back(
        steps in proptest::collection::vec(step(), 1..120)
    ) {
        let mut site = Site::new(&[1, 2, 1], 4, LIMITS);
        let (mut running, mut waiting) = (Vec::<Busy>::new(), Vec::<Waiting>::new());
        for step in steps {
            let mut decided = |client, decision| match decision {
                AdmissionDecision::Run(busy) => running.push((client, busy)),
                AdmissionDecision::Wait(ticket) => waiting.push((client, ticket)),
                AdmissionDecision::Refuse(_) => {}
            };
            match step {
                QueueEvent::Offer { client, work, comes_back } => {
                    let offer = Offer { comes_back, ..site.request(client, Work::ALL[work]) };
                    let decision = site.offer(offer);
                    decided(client, decision);
                }
                QueueEvent::Finish(n) => drop(drawn(&mut running, n)),
                QueueEvent::Again(n) => {
                    if let Some((client, busy)) = drawn(&mut running, n) {
                        let tried = vec![busy.lease.1 as u64];
                        let offer = Offer { tried, ..site.request(client, Work::Other) };
                        let decision = site.again(busy, offer);
                        match decision {
                            AdmissionDecision::Run(busy) => running.push((client, busy)),
                            AdmissionDecision::Wait(ticket) => waiting.push((client, ticket)),
                            AdmissionDecision::Refuse(_) => {}
                        }
                    }
                }
                QueueEvent::Leave(n) => drop(drawn(&mut waiting, n)),
                QueueEvent::Collect(n) => {
                    if let Some((client, mut ticket)) = drawn(&mut waiting, n) {
                        match poll(&mut ticket) {
                            Poll::Ready(Ok(busy)) => running.push((client, busy)),
                            Poll::Ready(Err(_)) => {}
                            Poll::Pending => waiting.push((client, ticket)),
                        }
                    }
                }
                QueueEvent::Switch(member) => {
                    let mut members = site.members.members();
                    members[member].up = !members[member].up;
                    drop(members);
                    site.admission.members_changed();
                }
            }
            holds(&site, &running, &mut waiting)?;
        }
        running.clear();
        waiting.clear();
        prop_assert_eq!(site.admission.state(), QueueState::default());
        prop_assert!(site.accounts.iter().all(|account| account.held() == 0));
        prop_assert!(site.members.members().iter().all(|member| member.running == 0));
        prop_assert!(site.admission.queue().waiters.is_empty());
        prop_assert!(site.admission.queue().blocked.is_empty());
        prop_assert_eq!(site.clients.len(), 4);
    }
}

proptest! {
    #[test]
    fn an_agent_in_a_loop_delays_others_only_by_its_earlier_requests_and_causes_no_refusal(
        steps in proptest::collection::vec((1..8usize, 0..3usize), 1..60)
    ) {
        let limits = QueueLimits { queue_max: 20, client_max: 2, client_queue_max: Some(4) };
        let mut site = Site::new(&[1, 1], 8, limits);
        let (mut running, mut waiting) = (Vec::<Busy>::new(), Vec::<Waiting>::new());
        let mut overtaken = [0; 8];
        for (client, finished) in steps {
            let is_idle = running.iter().all(|(of, _)| *of != client)
                && waiting.iter().all(|(of, _)| *of != client);
            // The looping agent sends ten requests at each step. Every other agent sends one request at a time.
            for of in [0; 10].into_iter().chain(is_idle.then_some(client)) {
                let request = site.request(of, Work::Catalog);
                match site.offer(request) {
                    AdmissionDecision::Run(busy) => running.push((of, busy)),
                    AdmissionDecision::Wait(ticket) => {
                        overtaken[of] = 0;
                        waiting.push((of, ticket));
                    }
                    AdmissionDecision::Refuse(refusal) => {
                        prop_assert_eq!((of, refusal), (0, AdmissionRefusal::ClientQueueFull));
                    }
                }
            }
            for _ in 0..finished.min(running.len()) {
                drop(running.remove(0));
                for (of, busy) in ready(&mut waiting) {
                    running.push((of, busy));
                    if of == 0 {
                        waiting.iter().for_each(|(other, _)| overtaken[*other] += 1);
                    }
                }
                for (other, _) in waiting.iter().filter(|(other, _)| *other != 0) {
                    // At most two of the looping agent's requests ran or were in the lane, and at most four waited behind them.
                    prop_assert!(overtaken[*other] <= 6, "{overtaken:?}");
                }
            }
        }
    }

    #[test]
    fn no_kind_of_work_waits_longer_than_its_cost_implies(
        steps in proptest::collection::vec((0..4usize, 0..6usize), 1..120)
    ) {
        let cost = |kind: usize| Work::ALL[kind].queue_cost(false);
        let mut site = Site::new(&[1], 1, NO_LIMITS);
        let mut running = Some(site.run(0));
        let mut waiting = Vec::<((usize, Duration), Ticket<HeldSlot>)>::new();
        let mut passed_over = [0_u64; 4];
        let mut older_reports = 0;
        for (kind, requests) in steps {
            for _ in 0..requests {
                let request = site.request(0, Work::ALL[kind]);
                let ticket = site.wait(request);
                waiting.push(((kind, site.now), ticket));
            }
            if waiting.is_empty() {
                continue;
            }
            drop(running.take());
            for ((served, came), busy) in ready(&mut waiting) {
                running = Some(busy);
                let first_catalog = waiting.iter().find(|((of, _), _)| *of == 0);
                older_reports = match first_catalog {
                    Some(((_, catalog), _)) if served == 2 && came < *catalog => older_reports + 1,
                    Some(_) => older_reports,
                    None => 0,
                };
                for other in 0..4 {
                    let waits = waiting.iter().any(|((of, _), _)| *of == other);
                    passed_over[other] = if waits && other != served {
                        passed_over[other] + 1
                    } else {
                        0
                    };
                    let turns = |of: usize| cost(other).div_ceil(cost(of)) + 1;
                    let max: u64 = (0..4).filter(|of| *of != other).map(turns).sum();
                    // The maximum includes reports that arrived before all catalogs, and the work that they let pass because of
                    // its cost.
                    let max = max + if other == 0 { 3 * older_reports } else { 0 };
                    prop_assert!(passed_over[other] <= max, "{other}: {passed_over:?}");
                }
            }
            prop_assert!(running.is_some(), "one waits and the member is free");
        }
    }
}

/// Wakes a thread that waits for its ticket.
struct Unpark(thread::Thread, AtomicBool);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.store(true, Ordering::Release);
        self.0.unpark();
    }
}

#[test]
fn no_wake_up_is_lost_between_threads() {
    let limits = QueueLimits {
        client_max: 2,
        ..NO_LIMITS
    };
    let site = &Site::new(&[1, 1], 3, limits);
    thread::scope(|scope| {
        for worker in 0..4usize {
            scope.spawn(move || {
                for turn in 0..2_000usize {
                    let request = site.request((worker + turn) % 3, Work::ALL[turn % 4]);
                    let decision =
                        site.admission
                            .offer(request, || site.limits, &site.picker, site.now);
                    let mut ticket = match decision {
                        AdmissionDecision::Run(_) => continue,
                        AdmissionDecision::Wait(ticket) => ticket,
                        AdmissionDecision::Refuse(refusal) => panic!("{refusal}"),
                    };
                    if turn % 7 == 0 {
                        continue;
                    }
                    let unpark = Arc::new(Unpark(thread::current(), AtomicBool::new(false)));
                    let waker = Waker::from(Arc::clone(&unpark));
                    while Pin::new(&mut ticket)
                        .poll(&mut Context::from_waker(&waker))
                        .is_pending()
                    {
                        // If a wake-up is lost, the test does not end. No timeout would be long enough to prove that it was
                        // lost.
                        while !unpark.1.swap(false, Ordering::Acquire) {
                            thread::park();
                        }
                    }
                }
            });
        }
    });
    assert_eq!(site.admission.state(), QueueState::default());
    assert!(site.accounts.iter().all(|account| account.held() == 0));
}
