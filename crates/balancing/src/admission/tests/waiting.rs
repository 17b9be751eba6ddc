//! When a request waits, runs or is refused, and which slots it keeps for another attempt.

use super::super::*;
use super::support::*;
use crate::offer::EligibleMembers;

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
    // A request whose client is gone is passed over, and the slot that it was given goes to the next request.
    drop(second);
    drop(waiting.remove(1));
    let fourth = granted(&mut waiting[1]);
    drop((third, fourth));
    assert_eq!(site.admission.state(), QueueState::default());
    site.run(8);
}

#[test]
fn a_client_at_its_limit_waits_for_its_own_requests_and_delays_no_other_client() {
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
fn a_client_whose_limit_changes_while_it_waits_runs_by_the_new_one() {
    let limits = QueueLimits {
        client_max: 1,
        ..NO_LIMITS
    };
    let mut site = Site::new(&[8], 2, limits);
    let _running = site.run(0);
    let mut waiting = [(); 2].map(|()| site.wait(site.request(0, Work::File)));
    assert!(waiting.iter().all(Ticket::is_behind_its_client));
    assert!(!waiting.iter().any(Ticket::is_for_return));
    waiting[0].set_client_max(2);
    let _second = granted(&mut waiting[0]);
    assert!(poll(&mut waiting[1]).is_pending());
    waiting[1].set_client_max(2);
    assert!(waiting[1].is_behind_its_client());
    waiting[1].set_client_max(3);
    let _third = granted(&mut waiting[1]);
    assert_eq!(site.accounts[0].held(), 3);
}

#[test]
fn a_full_queue_refuses_only_agents_that_retry_and_the_newest_first() {
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
fn a_lowered_limit_refuses_one_waiting_request_for_each_new_one_that_needs_a_slot() {
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

#[test]
fn a_further_attempt_comes_first_and_keeps_the_slot_of_its_client() {
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
    // The waiting request gets the slot that the first one gave up.
    let third = granted(&mut waiting);
    let mut fourth = site.wait(site.request(3, Work::File));
    assert_eq!(site.accounts[0].held(), 1);
    drop(second);
    let first = granted(&mut again);
    assert!(poll(&mut fourth).is_pending());
    drop((first, third, fourth, again, waiting));
    assert!(site.accounts.iter().all(|account| account.held() == 0));
    // If the other member goes down while the request waits, no member is left to try.
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
fn without_an_available_member_new_requests_are_refused_and_waiting_ones_keep_waiting() {
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

#[test]
fn a_refused_request_unblocks_the_requests_that_waited_for_its_client() {
    let limits = QueueLimits {
        client_max: 1,
        ..NO_LIMITS
    };
    let site = Site::new(&[1], 1, limits);
    let (admission, picker) = (&site.admission, site.picker.clone());
    let limits = || limits;
    let second = Mutex::new(None);
    // While the first request is decided on, a second request of the same client arrives on another thread and finds the client
    // at its limit.
    let races = PickWith(|_: &Offer| {
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
fn a_write_for_one_member_only_does_not_delay_other_writes() {
    let mut site = Site::new(&[1, 1], 4, NO_LIMITS);
    let _busy = [site.run(0), site.run(1)];
    // While the first member is down, the second one serves writes, except for writes that only the first may get.
    let all = site.picker.clone();
    let picker = PickWith(move |request: &Offer| match request.eligible {
        EligibleMembers::WriterOnly => Err(PickError::NoneAvailable),
        _ => all.pick(request),
    });
    site.admission.adopt(Arc::new(picker));
    let write = |site: &Site, client, eligible| Offer {
        eligible,
        ..site.request(client, Work::Other)
    };
    let mut renewal = site.wait(write(&site, 2, EligibleMembers::WriterOnly));
    let mut enrolment = site.wait(write(&site, 3, EligibleMembers::WriterOrBackup));
    let [first, second] = _busy;
    drop(first);
    drop(granted(&mut enrolment));
    assert!(poll(&mut renewal).is_pending());
    drop(second);
}

#[test]
fn requests_of_one_kind_at_the_front_are_tried_once_together() {
    let mut site = Site::new(&[40, 1], 42, NO_LIMITS);
    let running: Vec<_> = (0..40).map(|client| site.run(client)).collect();
    let picks = Arc::new(AtomicU32::new(0));
    let (all, counted) = (site.picker.clone(), Arc::clone(&picks));
    let picker = PickWith(move |request: &Offer| {
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
    // If nothing has changed, many calls look for members only a few times.
    let now = site.now + Duration::from_secs(10);
    (0..100).for_each(|_| site.admission.look(now));
    assert!(picks.load(Ordering::Relaxed) - before <= 4);
    drop((waiting, held));
}

#[test]
fn requests_that_may_wait_for_a_member_to_return_wait_in_order_and_within_the_limits_of_the_queue()
{
    let limits = QueueLimits {
        queue_max: 3,
        ..NO_LIMITS
    };
    let mut site = Site::new(&[1], 9, limits);
    let all = site.picker.clone();
    let picker = PickWith(move |request: &Offer| match all.pick(request) {
        Err(PickError::NoneAvailable) if !request.unavailable_wait_max.is_zero() => {
            Err(PickError::NoneYet)
        }
        picked => picked,
    });
    let picker = Arc::new(picker);
    site.admission.adopt(Arc::<PickWith<_>>::clone(&picker));
    let admission = Arc::clone(&site.admission);
    let offer = |offer| admission.offer(offer, || limits, &*picker, Duration::ZERO);
    let waits = |site: &Site, client, work| Offer {
        unavailable_wait_max: Duration::from_secs(90),
        ..site.request(client, work)
    };
    // The request's member refused the connection, so it is recorded as down.
    let mut running = site.run(0);
    site.members.members()[0].up = false;
    let hold = {
        drop(running.lease);
        running.hold
    };
    let tried = Offer {
        tried: vec![0],
        ..waits(&site, 0, Work::Report)
    };
    let AdmissionDecision::Wait(mut again) = hold.again(tried, || limits, &*picker, Duration::ZERO)
    else {
        panic!("it waits");
    };
    let mut waiting = Vec::new();
    for (client, work) in [(1, Work::Catalog), (2, Work::File)] {
        let AdmissionDecision::Wait(ticket) = offer(waits(&site, client, work)) else {
            panic!("it waits");
        };
        waiting.push(ticket);
    }
    for (client, wait_max) in [(3, 90), (4, 0)] {
        let refused = offer(Offer {
            unavailable_wait_max: Duration::from_secs(wait_max),
            ..site.request(client, Work::File)
        });
        assert!(
            matches!(
                refused,
                AdmissionDecision::Refuse(AdmissionRefusal::NoneAvailable)
            ),
            "{refused:?}"
        );
    }
    site.admission.members_changed();
    assert!(again.is_for_return() && waiting.iter().all(Ticket::is_for_return));
    assert!(poll(&mut again).is_pending());
    assert!(waiting.iter_mut().all(|ticket| poll(ticket).is_pending()));
    site.members.members()[0].up = true;
    site.admission.members_changed();
    // The member has one slot, so the requests run one at a time: first the request that had a member, then the cheaper kind of
    // work.
    running = granted(&mut again);
    assert!(poll(&mut waiting[1]).is_pending());
    drop(running);
    let file = granted(&mut waiting[1]);
    assert!(poll(&mut waiting[0]).is_pending());
    drop(file);
    drop(granted(&mut waiting[0]));
    assert_eq!(site.admission.state(), QueueState::default());
    assert!(site.accounts.iter().all(|account| account.held() == 0));
}
