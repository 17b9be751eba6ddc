//! Conversions between the times of the admin API, of certificates and of the operating system.

use std::time::{Duration, SystemTime};

use admin::Timestamp;
use rustls_pki_types::UnixTime;

/// A time of a certificate or a CRL as the API writes it.
pub fn timestamp(time: UnixTime) -> Timestamp {
    Timestamp::from_unix_seconds(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

/// A time of the API as certificates have it. `None` if it is not a time after 1970.
pub(crate) fn unix_time(time: &Timestamp) -> Option<UnixTime> {
    let seconds = u64::try_from(time.unix_seconds()?).ok()?;
    Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
}

/// A time of the API as the operating system has it. `None` if it is not a time after 1970.
pub fn system_time(time: &Timestamp) -> Option<SystemTime> {
    let since = Duration::from_secs(unix_time(time)?.as_secs());
    SystemTime::UNIX_EPOCH.checked_add(since)
}

/// A time of the operating system in the whole seconds of certificates. A time before 1970 becomes 1970.
pub fn whole_seconds(time: SystemTime) -> UnixTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    UnixTime::since_unix_epoch(Duration::from_secs(since.unwrap_or_default().as_secs()))
}
