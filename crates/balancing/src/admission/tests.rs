//! The admission by examples, by properties and by threads.

use std::{
    sync::{Weak, atomic::AtomicBool},
    task::{Wake, Waker},
    thread,
};

use proptest::prelude::*;

use super::*;
use crate::share::{ClientKey, Holdings};
use crate::work::Task;

/// Members as a picker sees them: how many requests each runs, how many it may, and whether it is up.
#[derive(Debug, Default)]
struct Members(Mutex<Vec<TestMember>>);

#[derive(Clone, Debug)]
struct TestMember {
    running: u32,
    max: u32,
    up: bool,
}

/// A place at a member.
#[derive(Debug)]
struct Slot(Arc<Members>, usize, Weak<Admission<Self>>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.members()[self.1].running -= 1;
        if let Some(admission) = self.2.upgrade() {
            admission.members_changed();
        }
    }
}

impl Members {
    fn new(maxima: &[u32]) -> Arc<Self> {
        let members = maxima.iter().map(|max| TestMember {
            running: 0,
            max: *max,
            up: true,
        });
        Arc::new(Self(Mutex::new(members.collect())))
    }

    fn members(&self) -> MutexGuard<'_, Vec<TestMember>> {
        self.0.lock().expect("no test panics with it")
    }

    fn has_room(&self) -> bool {
        self.members()
            .iter()
            .any(|member| member.up && member.running < member.max)
    }
}

/// The least busy member that is up and was not tried.
#[derive(Clone)]
struct LeastBusy(Arc<Members>, Weak<Admission<Slot>>);

impl Picker<Slot> for LeastBusy {
    fn pick(&self, request: &Offer) -> Result<Slot, PickError> {
        let mut members = self.0.members();
        let up: Vec<_> = (0..members.len())
            .filter(|index| members[*index].up)
            .collect();
        if up.is_empty() {
            return Err(PickError::NoneAvailable);
        }
        let tried = |index: &&usize| request.tried.contains(&(**index as u64));
        if up.iter().all(|index| tried(&index)) {
            return Err(PickError::AllTried);
        }
        let free = up
            .iter()
            .filter(|index| !tried(index) && members[**index].running < members[**index].max);
        let best = *free
            .min_by_key(|index| members[**index].running)
            .ok_or(PickError::Full)?;
        members[best].running += 1;
        Ok(Slot(Arc::clone(&self.0), best, Weak::clone(&self.1)))
    }
}

const LIMITS: QueueLimits = QueueLimits {
    queue_max: 6,
    client_max: 3,
    client_queue_max: Some(2),
};
const NO_LIMITS: QueueLimits = QueueLimits {
    queue_max: u32::MAX,
    client_max: u32::MAX,
    client_queue_max: None,
};

/// A pool with its clients, and time that only the test moves.
struct Site {
    admission: Arc<Admission<Slot>>,
    members: Arc<Members>,
    picker: LeastBusy,
    clients: Arc<Holdings>,
    accounts: Vec<Arc<Holding>>,
    limits: QueueLimits,
    now: Duration,
}

impl Site {
    fn new(maxima: &[u32], clients: usize, limits: QueueLimits) -> Self {
        let members = Members::new(maxima);
        let holdings = Arc::new(Holdings::default());
        let pool = Arc::from("compilers");
        let account = |client| {
            let name: Arc<str> = format!("agent{client}").into();
            holdings.of(&pool, ClientKey::Agent(name))
        };
        let admission = Arc::new(Admission::default());
        let picker = LeastBusy(Arc::clone(&members), Arc::downgrade(&admission));
        admission.adopt(Arc::new(picker.clone()));
        Self {
            admission,
            picker,
            members,
            accounts: (0..clients).map(account).collect(),
            clients: holdings,
            limits,
            now: Duration::ZERO,
        }
    }

    fn request(&self, client: usize, work: Work) -> Offer {
        Offer {
            account: Arc::clone(&self.accounts[client]),
            target: EligibleMembers::Any,
            lead: PickCriteria {
                task: Task::of(work),
                ..PickCriteria::default()
            },
            tried: Vec::new(),
            after_reuse: false,
            comes_back: false,
        }
    }

    fn offer(&mut self, offer: Offer) -> AdmissionDecision<Slot> {
        self.now += Duration::from_millis(1);
        self.admission
            .offer(offer, || self.limits, &self.picker, self.now)
    }

    fn again(&self, admitted: Admitted<Slot>, offer: Offer) -> AdmissionDecision<Slot> {
        drop(admitted.lease);
        admitted
            .hold
            .again(offer, || self.limits, &self.picker, self.now)
    }

    #[track_caller]
    fn run(&mut self, client: usize) -> Admitted<Slot> {
        let request = self.request(client, Work::Catalog);
        match self.offer(request) {
            AdmissionDecision::Run(running) => running,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn wait(&mut self, offer: Offer) -> Ticket<Slot> {
        match self.offer(offer) {
            AdmissionDecision::Wait(ticket) => ticket,
            other => panic!("{other:?}"),
        }
    }
}

fn poll(ticket: &mut Ticket<Slot>) -> Poll<Result<Admitted<Slot>, AdmissionRefusal>> {
    Pin::new(ticket).poll(&mut Context::from_waker(Waker::noop()))
}

#[track_caller]
fn granted(ticket: &mut Ticket<Slot>) -> Admitted<Slot> {
    match poll(ticket) {
        Poll::Ready(Ok(running)) => running,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_runs_at_once_while_a_member_has_room_and_waits_in_order_then() {
    let mut site = Site::new(&[1, 1], 9, NO_LIMITS);
    let [first, second] = [0, 1].map(|client| site.run(client));
    assert_ne!(first.lease.1, second.lease.1);
    let mut waiting: Vec<_> = (2..5)
        .map(|client| site.wait(site.request(client, Work::Catalog)))
        .collect();
    assert!(waiting.iter_mut().all(|ticket| poll(ticket).is_pending()));
    let state = site.admission.state();
    assert_eq!(state.waiting, [3, 0, 0, 0]);
    assert_eq!(state.oldest, Some(Duration::from_millis(3)));
    drop(first);
    let third = granted(&mut waiting[0]);
    assert!(poll(&mut waiting[1]).is_pending());
    // One whose client is gone is passed over, and what it was given goes to the next.
    drop(second);
    drop(waiting.remove(1));
    let fourth = granted(&mut waiting[1]);
    drop((third, fourth));
    assert_eq!(site.admission.state(), QueueState::default());
    site.run(8);
}

#[test]
fn a_client_at_its_limit_waits_behind_itself_and_holds_up_no_other() {
    let mut site = Site::new(&[8], 9, LIMITS);
    let mut running: Vec<_> = (0..3).map(|_| site.run(0)).collect();
    let mut own: Vec<_> = (0..2)
        .map(|_| site.wait(site.request(0, Work::Catalog)))
        .collect();
    let request = site.request(0, Work::Catalog);
    let AdmissionDecision::Refuse(refusal) = site.offer(request) else {
        panic!("more may not wait");
    };
    assert_eq!(refusal, AdmissionRefusal::ClientQueueFull);
    running.push(site.run(1));
    drop(running.remove(0));
    running.push(granted(&mut own[0]));
    assert!(poll(&mut own[1]).is_pending());
    assert_eq!(site.accounts[0].held(), 3);
}

#[test]
fn agents_that_come_back_make_room_the_newest_first_and_none_else_is_sent_away() {
    let limits = QueueLimits {
        queue_max: 3,
        ..NO_LIMITS
    };
    let mut site = Site::new(&[1], 9, limits);
    let running = site.run(0);
    let returning = |site: &Site, client| Offer {
        comes_back: true,
        ..site.request(client, Work::Catalog)
    };
    let mut staying = site.wait(site.request(1, Work::Catalog));
    let mut first = site.wait(returning(&site, 2));
    let mut second = site.wait(returning(&site, 3));
    let refused = |decision| {
        matches!(
            decision,
            AdmissionDecision::Refuse(AdmissionRefusal::QueueFull)
        )
    };
    let request = returning(&site, 4);
    assert!(refused(site.offer(request)), "it comes back itself");
    let fifth = site.wait(site.request(5, Work::Catalog));
    assert!(matches!(
        poll(&mut second),
        Poll::Ready(Err(AdmissionRefusal::MadeRoom))
    ));
    assert!(poll(&mut first).is_pending());
    let sixth = site.wait(site.request(6, Work::Catalog));
    assert!(matches!(
        poll(&mut first),
        Poll::Ready(Err(AdmissionRefusal::MadeRoom))
    ));
    let request = site.request(7, Work::Catalog);
    assert!(refused(site.offer(request)), "all that wait would fail");
    drop(running);
    drop((granted(&mut staying), fifth, sixth));
    assert_eq!(site.admission.state(), QueueState::default());
    assert!(site.accounts.iter().all(|account| account.held() == 0));
}

#[test]
fn a_lowered_limit_sends_nobody_away_but_one_for_each_request_that_needs_a_place() {
    let mut site = Site::new(&[1], 9, NO_LIMITS);
    let _running = site.run(0);
    let mut waiting: Vec<_> = (1..7)
        .map(|client| {
            site.wait(Offer {
                comes_back: true,
                ..site.request(client, Work::Catalog)
            })
        })
        .collect();
    site.limits.queue_max = 2;
    let _newcomer = site.wait(site.request(7, Work::Catalog));
    let refused = waiting.iter_mut().map(|ticket| poll(ticket).is_ready());
    assert_eq!(
        refused.collect::<Vec<_>>(),
        [false, false, false, false, false, true]
    );
}

/// Frees the only member so many times. Yields which requests it got, one after the other.
fn serve<T: Copy + std::fmt::Debug>(
    running: Admitted<Slot>,
    waiting: &mut Vec<(T, Ticket<Slot>)>,
    times: usize,
) -> Vec<T> {
    let mut running = Some(running);
    let serve_one = |_| {
        drop(running.take());
        let [(served, next)] = ready(waiting).try_into().expect("one for the free member");
        running = Some(next);
        served
    };
    (0..times).map(serve_one).collect()
}

#[test]
fn kinds_of_work_leave_the_queue_by_their_cost() {
    let mut site = Site::new(&[1], 1, NO_LIMITS);
    let running = site.run(0);
    let kinds = [10, 200, 10, 50];
    let kinds = Work::ALL.into_iter().zip(kinds);
    let works = kinds.flat_map(|(work, count)| vec![work; count]);
    let mut waiting: Vec<_> = works
        .map(|work| (work, site.wait(site.request(0, work))))
        .collect();
    let served = serve(running, &mut waiting, 165);
    let count = |work| served.iter().filter(|served| **served == work).count();
    assert_eq!(Work::ALL.map(count), [4, 128, 1, 32]);
}

#[test]
fn a_report_waits_for_no_catalog_that_came_after_it() {
    let mut site = Site::new(&[1], 4, NO_LIMITS);
    let running = site.run(0);
    let mut waiting = Vec::new();
    for (name, client, work) in [
        ("first report", 1, Work::Report),
        ("second report", 2, Work::Report),
        ("catalog", 3, Work::Catalog),
        ("third report", 1, Work::Report),
    ] {
        waiting.push((name, site.wait(site.request(client, work))));
    }
    assert_eq!(
        serve(running, &mut waiting, 4),
        ["first report", "second report", "catalog", "third report"]
    );
}

#[test]
fn reports_go_first_while_more_than_half_of_the_queue_is_taken() {
    let served = |queue_max| {
        let limits = QueueLimits {
            queue_max,
            ..NO_LIMITS
        };
        let mut site = Site::new(&[1], 1, limits);
        let running = site.run(0);
        let works = [vec![Work::Catalog; 10], vec![Work::Report; 30]].concat();
        let mut waiting: Vec<_> = works
            .into_iter()
            .map(|work| (work, site.wait(site.request(0, work))))
            .collect();
        let served = serve(running, &mut waiting, 10).into_iter();
        served.filter(|work| *work == Work::Report).count()
    };
    assert_eq!([served(60), served(100)], [9, 1]);
}

#[test]
fn reports_wait_for_few_files_where_no_catalog_waits() {
    // The first report has the cost of one among catalogs. The catalog leaves the queue after it.
    for catalogs in [0, 1] {
        let mut site = Site::new(&[1], 1, NO_LIMITS);
        let running = site.run(0);
        let kinds = Work::ALL.into_iter().zip([catalogs, 200, 20, 0]);
        let works = kinds.flat_map(|(work, count)| vec![work; count]);
        let mut waiting: Vec<_> = works
            .map(|work| (work, site.wait(site.request(0, work))))
            .collect();
        let served = serve(running, &mut waiting, 80);
        let reports = |served: &[Work]| served.iter().filter(|work| **work == Work::Report).count();
        assert_eq!(reports(&served[30..80]), 10, "{catalogs}: {served:?}");
    }
}

/// Members that compile few catalogs in four minutes.
struct Slow(LeastBusy);

impl Picker<Slot> for Slow {
    fn pick(&self, request: &Offer) -> Result<Slot, PickError> {
        self.0.pick(request)
    }

    fn catalogs_in(&self, time: Duration) -> u32 {
        (time.as_secs() / 120) as u32
    }
}

#[test]
fn agents_wait_their_turn_with_the_catalogs_while_more_of_these_wait_than_can_soon_be_compiled() {
    let mut site = Site::new(&[1], 6, NO_LIMITS);
    let slow = Slow(site.picker.clone());
    let running = site.run(0);
    let mut waiting = Vec::new();
    for (name, client, work) in [
        ("first catalog", 1, Work::Catalog),
        ("second catalog", 2, Work::Catalog),
        ("file before two", 3, Work::File),
        ("third catalog", 4, Work::Catalog),
        ("file of a new run", 5, Work::File),
        ("file of a catalog", 1, Work::File),
    ] {
        site.now += Duration::from_millis(1);
        let offer = site.request(client, work);
        let decision = site.admission.offer(offer, || site.limits, &slow, site.now);
        let AdmissionDecision::Wait(ticket) = decision else {
            panic!("{decision:?}");
        };
        waiting.push((name, ticket));
    }
    assert_eq!(
        serve(running, &mut waiting, 6),
        [
            "file before two",
            "first catalog",
            "file of a catalog",
            "second catalog",
            "third catalog",
            "file of a new run",
        ]
    );
}

#[test]
fn catalogs_go_in_the_order_in_which_runs_began_but_at_most_15_seconds_earlier() {
    let mut site = Site::new(&[1], 4, NO_LIMITS);
    let began = |site: &mut Site, client: usize, seconds: u64| {
        site.now = Duration::from_secs(seconds);
        drop(site.offer(site.request(client, Work::File)));
    };
    began(&mut site, 1, 1);
    began(&mut site, 2, 80);
    began(&mut site, 3, 84);
    let running = site.run(0);
    let mut waiting = Vec::new();
    for (client, seconds) in [(3, 86), (2, 90), (1, 100)] {
        site.now = Duration::from_secs(seconds);
        waiting.push((client, site.wait(site.request(client, Work::Catalog))));
    }
    assert_eq!(serve(running, &mut waiting, 3), [2, 3, 1]);
}

#[test]
fn a_lane_that_was_empty_has_no_turns_to_make_up_for() {
    let mut site = Site::new(&[1], 1, NO_LIMITS);
    let mut running = site.run(0);
    for _ in 0..100 {
        let mut next = site.wait(site.request(0, Work::Catalog));
        drop(running);
        running = granted(&mut next);
    }
    let mut files: Vec<_> = (0..50)
        .map(|_| site.wait(site.request(0, Work::File)))
        .collect();
    let mut catalog = site.wait(site.request(0, Work::Catalog));
    for file in &mut files[..40] {
        drop(running);
        if let Poll::Ready(outcome) = poll(&mut catalog) {
            drop(outcome.expect("a member"));
            return;
        }
        running = granted(file);
    }
    panic!("the catalog waits behind more files than its cost says");
}

#[test]
fn a_further_attempt_goes_before_all_others_and_keeps_its_clients_place() {
    let mut site = Site::new(&[1, 1], 9, NO_LIMITS);
    let (first, second) = (site.run(0), site.run(1));
    let mut waiting = site.wait(site.request(2, Work::File));
    let offer = Offer {
        tried: vec![first.lease.1 as u64],
        ..site.request(0, Work::Catalog)
    };
    let AdmissionDecision::Wait(mut again) = site.again(first, offer) else {
        panic!("the other member is full");
    };
    // The place that it gave up is the waiting request's.
    let third = granted(&mut waiting);
    let mut fourth = site.wait(site.request(3, Work::File));
    assert_eq!(site.accounts[0].held(), 1);
    drop(second);
    let first = granted(&mut again);
    assert!(poll(&mut fourth).is_pending());
    drop((first, third, fourth, again, waiting));
    assert!(site.accounts.iter().all(|account| account.held() == 0));
    // A member that goes down while it waits leaves none to try.
    let (first, _second) = (site.run(0), site.run(1));
    let at = first.lease.1;
    let offer = Offer {
        tried: vec![at as u64],
        ..site.request(0, Work::Catalog)
    };
    let AdmissionDecision::Wait(mut again) = site.again(first, offer) else {
        panic!("the other member is full");
    };
    site.members.members()[1 - at].up = false;
    site.admission.members_changed();
    assert!(matches!(
        poll(&mut again),
        Poll::Ready(Err(AdmissionRefusal::AllTried))
    ));
    assert_eq!(site.accounts[0].held(), 0);
}

#[test]
fn without_an_available_member_nothing_new_waits_and_what_waits_stays() {
    let mut site = Site::new(&[1], 3, NO_LIMITS);
    let running = site.run(0);
    let mut waiting = site.wait(site.request(1, Work::Catalog));
    site.members.members()[0].up = false;
    site.admission.members_changed();
    drop(running);
    assert!(poll(&mut waiting).is_pending());
    let request = site.request(2, Work::Catalog);
    assert!(matches!(
        site.offer(request),
        AdmissionDecision::Refuse(AdmissionRefusal::NoneAvailable)
    ));
    site.members.members()[0].up = true;
    site.admission.members_changed();
    drop(granted(&mut waiting));
}

#[derive(Clone, Debug)]
enum Step {
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

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4usize, 0..4usize, any::<bool>()).prop_map(|(client, work, comes_back)| {
            Step::Offer { client, work, comes_back }
        }),
        3 => any::<usize>().prop_map(Step::Finish),
        1 => any::<usize>().prop_map(Step::Again),
        1 => any::<usize>().prop_map(Step::Leave),
        3 => any::<usize>().prop_map(Step::Collect),
        1 => (0..3usize).prop_map(Step::Switch),
    ]
}

/// One of several by a number drawn over all of `usize`.
fn drawn<T>(from: &mut Vec<T>, number: usize) -> Option<T> {
    (!from.is_empty()).then(|| from.swap_remove(number % from.len()))
}

type Waiting = (usize, Ticket<Slot>);
type Busy = (usize, Admitted<Slot>);

/// What holds after every step.
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
    fn whatever_happens_limits_hold_no_request_waits_for_nothing_and_all_is_given_back(
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
                Step::Offer { client, work, comes_back } => {
                    let offer = Offer { comes_back, ..site.request(client, Work::ALL[work]) };
                    let decision = site.offer(offer);
                    decided(client, decision);
                }
                Step::Finish(n) => drop(drawn(&mut running, n)),
                Step::Again(n) => {
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
                Step::Leave(n) => drop(drawn(&mut waiting, n)),
                Step::Collect(n) => {
                    if let Some((client, mut ticket)) = drawn(&mut waiting, n) {
                        match poll(&mut ticket) {
                            Poll::Ready(Ok(busy)) => running.push((client, busy)),
                            Poll::Ready(Err(_)) => {}
                            Poll::Pending => waiting.push((client, ticket)),
                        }
                    }
                }
                Step::Switch(member) => {
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

/// The tickets that are ready, with the client or kind of each; the rest stays.
fn ready<T: Copy>(waiting: &mut Vec<(T, Ticket<Slot>)>) -> Vec<(T, Admitted<Slot>)> {
    let mut found = Vec::new();
    let mut index = 0;
    while index < waiting.len() {
        match poll(&mut waiting[index].1) {
            Poll::Ready(outcome) => {
                let (of, _) = waiting.remove(index);
                found.push((of, outcome.expect("it may run")));
            }
            Poll::Pending => index += 1,
        }
    }
    found
}

proptest! {
    #[test]
    fn an_agent_in_a_loop_delays_no_other_by_more_than_what_it_had_before_and_has_none_refused(
        steps in proptest::collection::vec((1..8usize, 0..3usize), 1..60)
    ) {
        let limits = QueueLimits { queue_max: 20, client_max: 2, client_queue_max: Some(4) };
        let mut site = Site::new(&[1, 1], 8, limits);
        let (mut running, mut waiting) = (Vec::<Busy>::new(), Vec::<Waiting>::new());
        let mut overtaken = [0; 8];
        for (client, finished) in steps {
            let is_idle = running.iter().all(|(of, _)| *of != client)
                && waiting.iter().all(|(of, _)| *of != client);
            // The looping agent sends ten requests at each step, every other one a request at a time.
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
                    // Two of its requests that ran or were in the lane, and four that waited behind them.
                    prop_assert!(overtaken[*other] <= 6, "{overtaken:?}");
                }
            }
        }
    }

    #[test]
    fn no_kind_of_work_waits_for_more_turns_than_its_cost_gives_the_others(
        steps in proptest::collection::vec((0..4usize, 0..6usize), 1..120)
    ) {
        let cost = |kind: usize| Work::ALL[kind].queue_cost(false);
        let mut site = Site::new(&[1], 1, NO_LIMITS);
        let mut running = Some(site.run(0));
        let mut waiting = Vec::<((usize, Duration), Ticket<Slot>)>::new();
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
                    passed_over[other] = match waits && other != served {
                        true => passed_over[other] + 1,
                        false => 0,
                    };
                    let turns = |of: usize| cost(other).div_ceil(cost(of)) + 1;
                    let max: u64 = (0..4).filter(|of| *of != other).map(turns).sum();
                    // Reports that came before all catalogs, and what goes first because of their cost.
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
                        // A wake-up that is lost is a test that does not end: no time is long enough to tell.
                        // A wake-up that is lost is a test that does not end.
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

/// A picker made of a function.
struct By<F>(F);

impl<F: Fn(&Offer) -> Result<Slot, PickError> + Send + Sync> Picker<Slot> for By<F> {
    fn pick(&self, request: &Offer) -> Result<Slot, PickError> {
        (self.0)(request)
    }
}

#[test]
fn a_request_that_is_refused_leaves_none_behind_that_waits_for_its_client() {
    let limits = QueueLimits {
        client_max: 1,
        ..NO_LIMITS
    };
    let site = Site::new(&[1], 1, limits);
    let (admission, picker) = (&site.admission, site.picker.clone());
    let limits = || limits;
    let second = Mutex::new(None);
    // While the first request is decided on, a second one of its client comes on another thread and finds the client at its limit.
    let races = By(|_: &Offer| {
        let request = site.request(0, Work::Catalog);
        let decision = admission.offer(request, limits, &picker, Duration::ZERO);
        *second.lock().expect("no test panics with it") = Some(decision);
        Err(PickError::NoneAvailable)
    });
    let request = site.request(0, Work::Catalog);
    let first = admission.offer(request, limits, &races, Duration::ZERO);
    assert!(matches!(
        first,
        AdmissionDecision::Refuse(AdmissionRefusal::NoneAvailable)
    ));
    let second = second.lock().expect("no test panics with it").take();
    let Some(AdmissionDecision::Wait(mut second)) = second else {
        panic!("{second:?}");
    };
    drop(granted(&mut second));
}

#[test]
fn a_write_that_only_one_member_may_serve_holds_up_no_other_write() {
    let mut site = Site::new(&[1, 1], 4, NO_LIMITS);
    let _busy = [site.run(0), site.run(1)];
    // While the first member is down, the second one serves writes, except those that are for the first alone.
    let all = site.picker.clone();
    let picker = By(move |request: &Offer| match request.target {
        EligibleMembers::WriterAlone => Err(PickError::NoneAvailable),
        _ => all.pick(request),
    });
    site.admission.adopt(Arc::new(picker));
    let write = |site: &Site, client, target| Offer {
        target,
        ..site.request(client, Work::Other)
    };
    let mut renewal = site.wait(write(&site, 2, EligibleMembers::WriterAlone));
    let mut enrolment = site.wait(write(&site, 3, EligibleMembers::Write));
    let [first, second] = _busy;
    drop(first);
    drop(granted(&mut enrolment));
    assert!(poll(&mut renewal).is_pending());
    drop(second);
}

#[test]
fn requests_of_one_kind_at_the_front_are_tried_once_and_not_each() {
    let mut site = Site::new(&[40, 1], 42, NO_LIMITS);
    let running: Vec<_> = (0..40).map(|client| site.run(client)).collect();
    let picks = Arc::new(AtomicU32::new(0));
    let (all, counted) = (site.picker.clone(), Arc::clone(&picks));
    let picker = By(move |request: &Offer| {
        counted.fetch_add(1, Ordering::Relaxed);
        all.pick(request)
    });
    site.admission.adopt(Arc::new(picker));
    let (on_first, mut held): (Vec<_>, Vec<_>) = running
        .into_iter()
        .partition(|admitted| admitted.lease.1 == 0);
    while let AdmissionDecision::Run(one) = site.offer(site.request(41, Work::Catalog)) {
        held.push(one);
    }
    let count = on_first.len();
    let waiting: Vec<_> = on_first
        .into_iter()
        .map(|admitted| {
            let offer = Offer {
                tried: vec![0],
                ..site.request(0, Work::Catalog)
            };
            match site.again(admitted, offer) {
                AdmissionDecision::Wait(ticket) => ticket,
                other => panic!("{other:?}"),
            }
        })
        .collect();
    assert!(count > 30);
    let before = picks.load(Ordering::Relaxed);
    site.admission.members_changed();
    assert!(picks.load(Ordering::Relaxed) - before <= 2);
    // Looks without a change are as few, however many requests ask for them.
    let now = site.now + Duration::from_secs(10);
    (0..100).for_each(|_| site.admission.look(now));
    assert!(picks.load(Ordering::Relaxed) - before <= 4);
    drop((waiting, held));
}
