//! A site for tests: members with room for some requests, and clients.

use super::super::*;
use crate::offer::EligibleMembers;
use crate::pick_criteria::PickCriteria;
use crate::share::ClientKey;
use crate::share::Holdings;
use crate::work::Task;
use std::sync::Weak;

/// The members that a picker uses: how many requests each runs, how many it may run, and whether it is up.
#[derive(Debug, Default)]
pub(super) struct Members(pub(super) Mutex<Vec<TestMember>>);

#[derive(Clone, Debug)]
pub(super) struct TestMember {
    pub(super) running: u32,
    pub(super) max: u32,
    pub(super) up: bool,
}

/// A slot on a member.
#[derive(Debug)]
pub(super) struct HeldSlot(
    pub(super) Arc<Members>,
    pub(super) usize,
    pub(super) Weak<Admission<Self>>,
);

impl Drop for HeldSlot {
    fn drop(&mut self) {
        self.0.members()[self.1].running -= 1;
        if let Some(admission) = self.2.upgrade() {
            admission.members_changed();
        }
    }
}

impl Members {
    pub(super) fn new(maxima: &[u32]) -> Arc<Self> {
        let members = maxima.iter().map(|max| TestMember {
            running: 0,
            max: *max,
            up: true,
        });
        Arc::new(Self(Mutex::new(members.collect())))
    }

    pub(super) fn members(&self) -> MutexGuard<'_, Vec<TestMember>> {
        self.0.lock().expect("no test panics with it")
    }

    pub(super) fn has_room(&self) -> bool {
        self.members()
            .iter()
            .any(|member| member.up && member.running < member.max)
    }
}

/// Picks the least busy member that is up and was not tried.
#[derive(Clone)]
pub(super) struct LeastBusy(
    pub(super) Arc<Members>,
    pub(super) Weak<Admission<HeldSlot>>,
);

impl Picker<HeldSlot> for LeastBusy {
    fn pick(&self, request: &Offer) -> Result<HeldSlot, PickError> {
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
        Ok(HeldSlot(Arc::clone(&self.0), best, Weak::clone(&self.1)))
    }
}

pub(super) const LIMITS: QueueLimits = QueueLimits {
    queue_max: 6,
    client_max: 3,
    client_queue_max: Some(2),
};
pub(super) const NO_LIMITS: QueueLimits = QueueLimits {
    queue_max: u32::MAX,
    client_max: u32::MAX,
    client_queue_max: None,
};

/// A pool with its clients, and a clock that only the test moves.
pub(super) struct Site {
    pub(super) admission: Arc<Admission<HeldSlot>>,
    pub(super) members: Arc<Members>,
    pub(super) picker: LeastBusy,
    pub(super) clients: Arc<Holdings>,
    pub(super) accounts: Vec<Arc<Holding>>,
    pub(super) limits: QueueLimits,
    pub(super) now: Duration,
}

impl Site {
    pub(super) fn new(maxima: &[u32], clients: usize, limits: QueueLimits) -> Self {
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

    pub(super) fn request(&self, client: usize, work: Work) -> Offer {
        Offer {
            account: Arc::clone(&self.accounts[client]),
            eligible: EligibleMembers::Any,
            criteria: PickCriteria {
                task: Task::of(work),
                ..PickCriteria::default()
            },
            tried: Vec::new(),
            after_reuse: false,
            comes_back: false,
            unavailable_wait_max: Duration::ZERO,
        }
    }

    pub(super) fn offer(&mut self, offer: Offer) -> AdmissionDecision<HeldSlot> {
        self.now += Duration::from_millis(1);
        self.admission
            .offer(offer, || self.limits, &self.picker, self.now)
    }

    pub(super) fn again(
        &self,
        admitted: Admitted<HeldSlot>,
        offer: Offer,
    ) -> AdmissionDecision<HeldSlot> {
        drop(admitted.lease);
        admitted
            .hold
            .again(offer, || self.limits, &self.picker, self.now)
    }

    #[track_caller]
    pub(super) fn run(&mut self, client: usize) -> Admitted<HeldSlot> {
        let request = self.request(client, Work::Catalog);
        match self.offer(request) {
            AdmissionDecision::Run(running) => running,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(super) fn wait(&mut self, offer: Offer) -> Ticket<HeldSlot> {
        match self.offer(offer) {
            AdmissionDecision::Wait(ticket) => ticket,
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn poll(
    ticket: &mut Ticket<HeldSlot>,
) -> Poll<Result<Admitted<HeldSlot>, AdmissionRefusal>> {
    Pin::new(ticket).poll(&mut Context::from_waker(Waker::noop()))
}

#[track_caller]
pub(super) fn granted(ticket: &mut Ticket<HeldSlot>) -> Admitted<HeldSlot> {
    match poll(ticket) {
        Poll::Ready(Ok(running)) => running,
        other => panic!("{other:?}"),
    }
}

/// Removes the tickets that are ready and returns them, with the client or kind of each.
pub(super) fn ready<T: Copy>(
    waiting: &mut Vec<(T, Ticket<HeldSlot>)>,
) -> Vec<(T, Admitted<HeldSlot>)> {
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

/// A picker made of a function.
pub(super) struct PickWith<F>(pub(super) F);

impl<F: Fn(&Offer) -> Result<HeldSlot, PickError> + Send + Sync> Picker<HeldSlot> for PickWith<F> {
    fn pick(&self, request: &Offer) -> Result<HeldSlot, PickError> {
        (self.0)(request)
    }
}
