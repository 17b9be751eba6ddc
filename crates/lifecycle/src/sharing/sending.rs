//! Writes the records that the store lacks: to one endpoint after the other, in batches, and with a longer timeout after each
//! failure.

use std::time::Duration;

use fleet::Record;
use fleet_store::{CHANGES_MAX, KeyChange, Put, StoreError};
use state::random_part_of;
use tokio::time::Instant;

use super::{Member, writer::Writer};

/// Maximum length of records that are written together. etcd's default for a request (`--max-request-bytes`) is 1.5 MiB.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Timeout of a call at the first attempt, in place of the limits of the store. A frozen member does not answer, but another
/// member may. Later attempts have longer timeouts.
const PATIENCE: Duration = Duration::from_millis(300);
/// Maximum time to write an operator's act to the store. After that, the operator sees that it was not sent.
pub(super) const SENT_WITHIN: Duration = Duration::from_secs(5);
/// How often one attempt to send lists the store again after a refused change. Other proxies may be faster a few times.
const LISTS_MAX: usize = 50;
/// First and maximum wait before another attempt to reach the store.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

impl Member<'_> {
    /// Writes the records that the store lacks. An act of an operator is tried at each endpoint before it fails.
    pub(super) async fn send(&mut self) {
        self.retry_at = None;
        let acts = self.app.records.acts();
        let is_new = self.app.sharing.status.borrow().sent.0 < acts;
        let sent = match is_new {
            true => self.send_acts(acts).await,
            false => self.try_send(acts, self.patience()).await,
        };
        if let Err(error) = sent {
            self.app.sharing.not_sent(acts, &error);
            self.failed(&error);
        }
    }

    /// Tries each endpoint, and all of them again if one was late: it may be frozen, or etcd may be electing a leader. A call
    /// that arrives before the end of the election is never answered, so the first calls have short timeouts. On a slow
    /// network, the last calls succeed.
    async fn send_acts(&mut self, acts: u64) -> Result<(), StoreError> {
        let began = Instant::now();
        loop {
            let patience = match began.elapsed() < SENT_WITHIN / 2 {
                true => PATIENCE,
                false => PATIENCE * 5,
            };
            match self.try_endpoints(acts, patience).await {
                Err(StoreError::Late { .. }) if began.elapsed() < SENT_WITHIN => {}
                sent => return sent,
            }
        }
    }

    /// Returns the last error, or that an endpoint was late.
    async fn try_endpoints(&mut self, acts: u64, patience: Duration) -> Result<(), StoreError> {
        // An open connection may be broken although its endpoint works, so it counts as one more attempt.
        let attempts = self.connection.store.endpoints().len() + usize::from(self.writer.is_some());
        let mut result = Ok(());
        for _ in 0..attempts {
            match self.try_send(acts, patience).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.drop_writer();
                    if !matches!(result, Err(StoreError::Late { .. })) {
                        result = Err(error);
                    }
                }
            }
        }
        result
    }

    /// The records that the store lacks, as far as is known.
    pub(super) fn missed(&self) -> Vec<(String, Record)> {
        self.app.records.missed(|key| self.view.record(key))
    }

    /// The next attempt is made at another endpoint.
    fn drop_writer(&mut self) {
        if self.writer.take().is_some() {
            self.next_endpoint += 1;
        }
    }

    /// Notes that the store was not reached, and tries the next endpoint after a while.
    pub(super) fn failed(&mut self, error: &StoreError) {
        self.app.sharing.write_failed(error);
        // There may be nothing else to write, so writing the entry shows when the store accepts changes again.
        self.registration.put_again();
        self.drop_writer();
        self.failures += 1;
        self.retry_at = Some(Instant::now() + back_off(self.failures));
    }

    /// Timeout of a call for which no operator waits. During the call, no record of another proxy is applied.
    fn patience(&self) -> Duration {
        PATIENCE.saturating_mul(1 << self.failures.min(10))
    }

    /// Opens a connection for calls for which no operator waits.
    pub(super) async fn connect(&mut self) -> Result<(), StoreError> {
        self.connect_within(self.patience()).await
    }

    async fn connect_within(&mut self, patience: Duration) -> Result<(), StoreError> {
        if self.writer.is_none() {
            let store = &*self.connection.store;
            let endpoint = self.next_endpoint % store.endpoints().len();
            let writer = Writer::connect(store, endpoint, patience).await;
            self.writer = Some(Box::new(writer.inspect_err(|_| self.next_endpoint += 1)?));
        }
        Ok(())
    }

    async fn try_send(&mut self, acts: u64, patience: Duration) -> Result<(), StoreError> {
        self.connect_within(patience).await?;
        let mut lists = 0;
        while !self.send_once().await? {
            lists += 1;
            if lists == LISTS_MAX {
                let names = self.connection.store.endpoints();
                return Err(StoreError::Failed {
                    endpoint: names[self.next_endpoint % names.len()].clone(),
                    text: format!(
                        "it has refused {LISTS_MAX} changes to what it had listed before"
                    ),
                });
            }
            if self.app.sharing.status.borrow().sent.0 == acts {
                // The missing record is put back later, if no other proxy has done so.
                return Ok(());
            }
        }
        self.app.sharing.publish(&mut self.view);
        self.app.sharing.sent(acts, self.view.written_at());
        Ok(())
    }

    /// Returns whether the store has all records now. Otherwise it was listed again.
    async fn send_once(&mut self) -> Result<bool, StoreError> {
        let Some(writer) = &self.writer else {
            return Ok(true);
        };
        let missed = self.missed();
        let mut rest = &missed[..];
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(batch_len(rest, self.batch_max));
            let sealed = batch
                .iter()
                .map(|(key, record)| self.view.sealed(key, record.bytes()));
            let sealed: Vec<_> = sealed.collect();
            let changes = batch.iter().zip(&sealed);
            let changes = changes.map(|((key, _), sealed)| KeyChange {
                key,
                expected: self.view.revision(key),
                put: Put::Value(sealed),
            });
            let changes: Vec<_> = changes.collect();
            let written = writer.put_all_if(&changes).await;
            self.batch_max = next_batch_max(self.batch_max, matches!(written, Ok(Some(_))));
            match written? {
                Some(revision) => {
                    for (key, record) in batch {
                        self.view.put(key, revision, record.clone());
                    }
                    self.failures = 0;
                    self.app.sharing.written();
                }
                // Another proxy was faster, or the store was restored: the list shows what it has now.
                None => {
                    let listing = writer.list().await?;
                    let records = self.view.replace(listing);
                    self.note_lost();
                    self.take_over(records).await;
                    return Ok(false);
                }
            }
            rest = later;
        }
        Ok(true)
    }
}

/// How many of these records are written together: at most `count_max`, and not more than etcd accepts in a request.
fn batch_len(records: &[(String, Record)], count_max: usize) -> usize {
    let mut bytes = 0;
    let fits = records.iter().take(count_max).take_while(|(_, record)| {
        bytes += record.bytes().len();
        bytes <= BATCH_BYTES_MAX
    });
    fits.count().max(1)
}

/// The maximum for the next batch. One record that another proxy changes must not keep out the others for long, and etcd may
/// be configured for less.
fn next_batch_max(before: usize, is_written: bool) -> usize {
    match is_written {
        true => (before * 2).min(CHANGES_MAX),
        false => (before / 2).max(1),
    }
}

/// The wait before another attempt, with full jitter.
pub(super) fn back_off(failures: u32) -> Duration {
    let (first, max) = RETRY;
    random_part_of(first.saturating_mul(1 << failures.min(10)).min(max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet::{BlockRecord, RECORD_BYTES_MAX};

    fn record(why: usize) -> (String, Record) {
        let block = BlockRecord {
            id: "p1-1".to_owned(),
            blocked: serde_json::json!({ "certname": "web01" }),
            by: "uid 0".to_owned(),
            proxy: "p1".to_owned(),
            why: "x".repeat(why),
            since: 1000,
            until: None,
            lifted: None,
        };
        ("blocks/p1-1".to_owned(), Record::of_block(block))
    }

    #[test]
    fn a_batch_has_as_many_records_as_etcd_accepts_and_at_least_one() {
        for (count, why, count_max, expected) in [
            (1, 9, 100, 1),
            (1000, 9, 100, 100),
            (7, 9, 100, 7),
            (7, 9, 1, 1),
            (1000, RECORD_BYTES_MAX, 100, 63),
            (3, BATCH_BYTES_MAX, 100, 1),
        ] {
            let records = vec![record(why); count];
            let found = batch_len(&records, count_max);
            assert_eq!(found, expected, "{count} {why} {count_max}");
        }
    }

    #[test]
    fn a_batch_that_is_refused_is_followed_by_shorter_ones_down_to_one_record() {
        let mut batch_max = CHANGES_MAX;
        for expected in [50, 25, 12, 6, 3, 1, 1] {
            batch_max = next_batch_max(batch_max, false);
            assert_eq!(batch_max, expected);
        }
        for expected in [2, 4, 8, 16, 32, 64, CHANGES_MAX, CHANGES_MAX] {
            batch_max = next_batch_max(batch_max, true);
            assert_eq!(batch_max, expected);
        }
    }
}
