//! The order in which kinds of work leave the queue.

use super::super::*;
use super::support::*;

/// Frees the only member this number of times. Returns which requests got it, one after the other.
fn serve<T: Copy + std::fmt::Debug>(
    running: Admitted<HeldSlot>,
    waiting: &mut Vec<(T, Ticket<HeldSlot>)>,
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
fn a_report_does_not_wait_for_later_catalogs() {
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
    // The first report has the cost of a report among catalogs. The catalog leaves the queue after it.
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

/// Picks among members that can compile only few catalogs in four minutes.
struct Slow(LeastBusy);

impl Picker<HeldSlot> for Slow {
    fn pick(&self, request: &Offer) -> Result<HeldSlot, PickError> {
        self.0.pick(request)
    }

    fn catalogs_in(&self, time: Duration) -> u32 {
        (time.as_secs() / 120) as u32
    }
}

#[test]
fn agents_wait_with_the_catalogs_while_more_catalogs_wait_than_can_be_compiled_soon() {
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
fn a_lane_that_was_empty_gains_no_turns() {
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
