//! One worker of the proxy with its pools. The test is the other end of its connections.
#![expect(unreachable_pub, reason = "for the modules of this binary")]

mod estate;
mod holding_stream;
mod member;
mod trusted;
mod wire;

use std::time::Duration;

use tokio::{
    task::LocalSet,
    time::{Instant, timeout},
};

pub use estate::{InMemoryEstate, Setup};
pub use member::TestMember;
pub use trusted::trusted;
pub use wire::{Wire, field};

/// A document that any agent may get, and that may be requested twice.
pub const FILE: &str = "/puppet/v3/file_metadata/modules/m/f?environment=production";
/// The path to which an agent sends its report, which may not be sent twice.
pub const REPORT: &str = "/puppet/v3/report/web01?environment=production";
/// The path from which a client without a certificate gets the CA's certificate.
pub const ENROLMENT: &str = "/puppet-ca/v1/certificate/ca";

/// Maximum virtual time of a test. A test that waits without end reaches it at once.
const TEST_TIME_MAX: Duration = Duration::from_secs(7200);

/// Runs a test with time that advances only when no task can run.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let ended = timeout(TEST_TIME_MAX, test).await;
        ended.expect("the test waits for something that never comes")
    })
}

/// Returns when every task waits for a peer or for a later time, because the clock advances only then.
pub async fn settle() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

/// Lets time pass for all tasks.
pub async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Asserts that `limit` seconds have passed since `began`, or at most one second more, which an orderly close may take.
pub fn assert_took(began: Instant, limit: u64) {
    let took = began.elapsed().as_secs_f64();
    let limit = limit as f64;
    assert!(
        took >= limit && took < limit + 1.1,
        "{took} s and not {limit} s"
    );
}
