//! The operator's blocks while the process runs: each change is applied to the trust store first and then stored.

use std::{collections::HashSet, sync::Arc, time::Duration};

use admin::{
    BlockCertnamesOutcome, BlockCertnamesRequest, BlockError, BlockOutcome, BlockRequest,
    BlockStatus, BlockSubject, BlockedAgentStatus, OperatorAccount,
};
use fleet::{RECORDS_MAX, Record, RecordKey};
use identity::{Certname, CertnameError, settings::SubjectRule};
use pki::{Block, DenyList};
use rustls_pki_types::UnixTime;
use state::{
    GenerationWriter,
    stored_blocks::{self, blocked_of, parse_time, status_of},
    supervise::{PANICKED, blocking},
};
use tokio::time::sleep;

use crate::{TrustKeeper, stored_crls};

/// Maximum length of a reason, in bytes.
const WHY_BYTES_MAX: usize = 500;
/// How often the clock is read to expire blocks, because an operator may set it.
const CLOCK_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// How long after a start a block stays active that had expired before the start. The clock may have been ahead at the start;
/// this leaves time to set it.
const CLOCK_DOUBT: Duration = Duration::from_secs(3600);

impl TrustKeeper {
    /// The active blocks, the oldest first.
    pub fn blocks(&self) -> Vec<BlockStatus> {
        let now = UnixTime::now();
        let generation = self.active.generation();
        let blocks = generation.trust.deny_list().blocks().iter();
        blocks
            .filter(|block| block.is_active(now))
            .map(status_of)
            .collect()
    }

    /// Blocks a client: applies the block, then stores it.
    ///
    /// # Errors
    /// Why the client is not blocked.
    pub async fn block(
        self: Arc<Self>,
        request: BlockRequest,
        by: OperatorAccount,
    ) -> Result<BlockOutcome, BlockError> {
        let now = UnixTime::now();
        self.check_name(&request.blocked)?;
        let block = requested_block(request, &by, now)?;
        let agent = {
            let writer = self.active.writer_of_owner().await;
            let writer = writer.ok_or(BlockError::Stopping)?;
            self.check_issuer(&block.blocked)?;
            self.record_blocks(std::slice::from_ref(&block), now)?;
            // Looked up before the block is active, because the block closes the agent's connections.
            let agent = self.agent_of(&block.blocked);
            self.apply_blocks(&writer, now);
            agent
        };
        self.records.act();
        let not_persisted = self.store_blocks().await;
        let status = status_of(&block);
        let until = status.until.as_ref().map(ToString::to_string);
        tracing::warn!(blocked = %block.blocked, %by, why = block.why, until, not_persisted, "blocked");
        let trust = &self.active.generation().trust;
        let separate = trust.separate_roots(now).into_iter().map(str::to_owned);
        let separate_cas = match status.blocked.certname {
            Some(_) => separate.collect(),
            None => Vec::new(),
        };
        Ok(BlockOutcome {
            block: status,
            not_persisted,
            agent,
            refusal: None,
            separate_cas,
            replaced: None,
            fleet: None,
        })
    }

    /// Blocks several certnames with one change: applies the blocks, then stores them.
    ///
    /// # Errors
    /// Why no certname is blocked.
    pub async fn block_certnames(
        self: Arc<Self>,
        request: BlockCertnamesRequest,
        by: OperatorAccount,
    ) -> Result<BlockCertnamesOutcome, BlockError> {
        let now = UnixTime::now();
        let mut new = Vec::<Block>::new();
        for name in request.certnames {
            let blocked = BlockSubject {
                certname: Some(name),
                ..BlockSubject::default()
            };
            self.check_name(&blocked)?;
            let (why, until) = (request.why.clone(), request.until.clone());
            let one = BlockRequest {
                blocked,
                why,
                until,
            };
            new.push(requested_block(one, &by, now)?);
        }
        new.sort_by_key(|block| block.blocked.to_string());
        new.dedup_by(|one, other| one.blocked == other.blocked);
        if new.is_empty() {
            let empty = "no certname is given, so nothing is blocked";
            return Err(BlockError::Invalid(empty.to_owned()));
        }
        {
            let writer = self.active.writer_of_owner().await;
            let writer = writer.ok_or(BlockError::Stopping)?;
            self.record_blocks(&new, now)?;
            self.apply_blocks(&writer, now);
        }
        self.records.act();
        let not_persisted = self.store_blocks().await;
        for block in &new {
            tracing::warn!(blocked = %block.blocked, %by, why = block.why, not_persisted, "blocked");
        }
        Ok(BlockCertnamesOutcome {
            blocks: new.iter().map(status_of).collect(),
            not_persisted,
            replaced: Vec::new(),
            fleet: None,
        })
    }

    /// Records new blocks, which replace earlier blocks of the same clients.
    fn record_blocks(&self, new: &[Block], now: UnixTime) -> Result<(), BlockError> {
        let added: HashSet<_> = new.iter().map(|block| &block.blocked).collect();
        let is_other =
            |block: &Block| !added.contains(&block.blocked) && self.is_in_effect(block, now);
        let others = self.records.count_in_effect(is_other);
        let too_many = || {
            BlockError::Invalid(format!(
                "there are already {others} blocks, and the maximum is {}",
                DenyList::BLOCKS_MAX
            ))
        };
        if others + new.len() > DenyList::BLOCKS_MAX {
            return Err(too_many());
        }
        self.records.block(new).map_err(|_| {
            BlockError::Invalid(format!(
                "there is no room: the maximum is {RECORDS_MAX} records, which are blocks, those that ended in the last 31 days, and states of members"
            ))
        })
    }

    /// Refuses a name that no certificate can have: the block would match no client, and no operator would notice.
    fn check_name(&self, blocked: &BlockSubject) -> Result<(), BlockError> {
        let Some(name) = &blocked.certname else {
            return Ok(());
        };
        let lower = name.to_ascii_lowercase();
        let rule = self.active.foundation().config.identity.subject;
        let problem = match rule {
            SubjectRule::Puppet => Certname::parse_puppet(&lower).err(),
            // Another CA may sign any of these names, except a name that looks like a pattern.
            SubjectRule::SingleCn => match lower.contains('*') {
                true => Some(CertnameError::Character('*')),
                false => Certname::parse(&lower).err(),
            },
        };
        match problem {
            None => Ok(()),
            Some(problem) => Err(BlockError::Invalid(format!(
                "\"{name}\" is not a certname, so the block would match no certificate: {problem}; a block is for one \
                 certname, and `proscenium block --file FILE --why TEXT` blocks all that a file names, one a line"
            ))),
        }
    }

    /// Removes a block.
    ///
    /// # Errors
    /// There is no such block, or it cannot be removed.
    pub async fn unblock(
        self: Arc<Self>,
        blocked: BlockSubject,
        by: OperatorAccount,
    ) -> Result<BlockOutcome, BlockError> {
        let wanted = blocked_of(&blocked)?;
        let removed = {
            let writer = self.active.writer_of_owner().await;
            let writer = writer.ok_or(BlockError::Stopping)?;
            let now = UnixTime::now();
            let is_meant = |block: &Block| block.blocked == wanted && self.is_in_effect(block, now);
            let removed = self.records.blocks_in_effect(is_meant).pop();
            let removed = removed.ok_or_else(|| BlockError::NotBlocked(wanted.to_string()))?;
            // This cannot fail: the record of a known block has its place already.
            let _ = self.records.lift(&wanted, &by.name, now);
            self.apply_blocks(&writer, now);
            removed
        };
        self.records.act();
        let not_persisted = self.store_blocks().await;
        tracing::warn!(blocked = %removed.blocked, %by, why = removed.why, not_persisted, "unblocked");
        Ok(BlockOutcome {
            block: status_of(&removed),
            not_persisted,
            agent: None,
            refusal: None,
            separate_cas: Vec::new(),
            replaced: None,
            fleet: None,
        })
    }

    /// The agent with the blocked certname, if it has connected since the start.
    fn agent_of(&self, blocked: &pki::BlockTarget) -> Option<BlockedAgentStatus> {
        let pki::BlockTarget::Certname(certname) = blocked else {
            return None;
        };
        let seen = self.active.shared().agents.of(certname.as_str())?;
        Some(BlockedAgentStatus {
            last_seen: seen.at.into(),
            client: seen.client.to_string(),
            connections: seen.connections,
            issuer: seen.certificate.issuer.to_string(),
        })
    }

    /// Refuses an issuer that is not a CA of the bundle: the block would match no client, and no operator would notice.
    fn check_issuer(&self, blocked: &pki::BlockTarget) -> Result<(), BlockError> {
        let pki::BlockTarget::Serial { issuer, .. } = blocked else {
            return Ok(());
        };
        let trust = &self.active.generation().trust;
        if trust.knows_issuer(issuer) {
            return Ok(());
        }
        let known = trust.status(UnixTime::now()).cas.into_iter();
        let known: Vec<_> = known.map(|ca| ca.subject).collect();
        Err(BlockError::Invalid(format!(
            "\"{issuer}\" is not a CA of the bundle; its CAs are: {}",
            known.join("; ")
        )))
    }

    /// Whether a block is active. For the first hour ([`CLOCK_DOUBT`]), a block that had expired before the start counts as
    /// active too, because the clock at the start may have been ahead.
    fn is_in_effect(&self, block: &Block, now: UnixTime) -> bool {
        let (started_at, clock) = self.active.started();
        let is_doubted =
            started_at.elapsed() < CLOCK_DOUBT && block.until.is_some_and(|until| until < clock);
        block.is_active(now) || is_doubted
    }

    /// Takes over records from other proxies, and enforces their blocks. Returns the records that have changed something.
    pub fn take_over(&self, writer: &GenerationWriter<'_>, records: Vec<Record>) -> Vec<Record> {
        let now = UnixTime::now();
        // The clock may be ahead after the start, and valid blocks would then look expired. For the first hour, no block
        // therefore counts as expired here.
        let is_doubted = self.active.uptime() < CLOCK_DOUBT;
        let clock = if is_doubted {
            UnixTime::since_unix_epoch(Duration::ZERO)
        } else {
            now
        };
        let changed = self.records.take_over(records, clock);
        let keys = changed.iter().map(Record::key);
        let blocks: Vec<_> = keys
            .filter(|key| matches!(key, RecordKey::Block(_)))
            .collect();
        if !blocks.is_empty() {
            for key in &blocks {
                tracing::warn!(%key, "another proxy has set or lifted a block");
            }
            self.apply_blocks(writer, now);
        }
        changed
    }

    /// Applies the blocks and CRLs that the process that has taken over has stored. False if they cannot be read.
    pub async fn apply_stored(&self) -> bool {
        let writer = self.active.writer().await;
        let (active, directory) = (Arc::clone(&self.active), Arc::clone(&self.directory));
        let read = blocking("read-stored-trust", move || {
            let foundation = active.foundation();
            let (name, fetch) = (
                foundation.config.proxy_name(),
                foundation.config.trust.fetch,
            );
            let restored = stored_crls::restore(&active.trust(), &directory, fetch).trust;
            (stored_blocks::read(&directory, &name), restored)
        });
        let Some((blocks, restored)) = read.await else {
            return false;
        };
        if let Some(trust) = restored {
            writer.replace_trust(trust);
            tracing::info!("applied stored CRLs");
        }
        match blocks {
            Ok(records) if self.records.replace_blocks(&records) => {
                self.apply_blocks(&writer, UnixTime::now());
                let blocks = self.active.trust().deny_list().blocks().len();
                tracing::info!(blocks, "applied stored blocks");
            }
            Ok(_) => {}
            // The known blocks stay active.
            Err(error) => {
                tracing::error!("{error}");
                return false;
            }
        }
        true
    }

    /// Stores the records of blocks. Returns the reason if they cannot be stored. It does not hold the writer's lock while it
    /// waits for the disk, so that a slow disk delays no reload.
    pub async fn store_blocks(&self) -> Option<String> {
        let wanted = self.records.version();
        let mut stored = self.storing_blocks.lock().await;
        // While this change waited, a concurrent one was stored, and this change with it.
        if *stored >= wanted {
            return None;
        }
        // Read under this lock: of two concurrent changes, the second write contains both.
        let (version, records) = (self.records.version(), self.records.all());
        let directory = Arc::clone(&self.directory);
        let write = move || stored_blocks::write(&directory, &records);
        let written = blocking("store-blocks", write).await;
        let written = written.unwrap_or_else(|| Err(PANICKED.to_owned()));
        if written.is_ok() {
            *stored = version;
        }
        written.err()
    }

    /// Expires blocks when they are due, until this future is dropped.
    pub async fn expire_when_due(&self) {
        loop {
            let now = UnixTime::now();
            let next = self.active.trust().deny_list().next_end(now);
            let wait = next.map_or(CLOCK_INTERVAL_MAX, |end| {
                // A block is active until the end of its last second.
                Duration::from_secs(end.as_secs() - now.as_secs() + 1).min(CLOCK_INTERVAL_MAX)
            });
            tokio::select! {
                () = sleep(wait) => {}
                () = self.blocks_changed.notified() => {}
            }
            self.expire_blocks().await;
        }
    }

    async fn expire_blocks(&self) {
        let Some(writer) = self.active.writer_of_owner().await else {
            return;
        };
        let now = UnixTime::now();
        self.forget_blocks(now).await;
        let generation = self.active.generation();
        let active = generation.trust.deny_list().blocks().iter();
        let mut expired = active
            .filter(|block| !self.is_in_effect(block, now))
            .peekable();
        if expired.peek().is_none() {
            return;
        }
        for block in expired {
            tracing::warn!(blocked = %block.blocked, why = block.why, "a block has expired");
        }
        self.apply_blocks(&writer, now);
    }

    /// Forgets the blocks that ended long ago. It does nothing until an operator has had time to set a clock that was ahead at
    /// the start.
    async fn forget_blocks(&self, now: UnixTime) {
        if self.active.uptime() >= CLOCK_DOUBT && self.records.forget_ended(now) {
            self.store_blocks().await;
        }
    }

    /// Enforces the blocks in the records.
    pub(crate) fn apply_blocks(&self, writer: &GenerationWriter<'_>, now: UnixTime) {
        let deny_list = DenyList::new(
            self.records
                .blocks_in_effect(|block| self.is_in_effect(block, now)),
        );
        writer.replace_trust(self.active.generation().trust.with_deny_list(deny_list));
        self.blocks_changed.notify_one();
    }
}

/// Converts a requested block to the form that the trust store uses.
fn requested_block(
    request: BlockRequest,
    by: &OperatorAccount,
    now: UnixTime,
) -> Result<Block, BlockError> {
    let why = request.why.trim();
    if why.is_empty() || why.len() > WHY_BYTES_MAX || why.chars().any(char::is_control) {
        return Err(BlockError::Invalid(format!(
            "the reason must be one line of 1 to {WHY_BYTES_MAX} bytes"
        )));
    }
    let until = request.until.as_ref().map(parse_time).transpose()?;
    if let (Some(end), Some(text)) = (until, &request.until)
        && end <= now
    {
        return Err(BlockError::Invalid(format!("{text} is in the past")));
    }
    Ok(Block {
        blocked: blocked_of(&request.blocked)?,
        why: why.to_owned(),
        by: by.name.clone(),
        since: now,
        until,
    })
}
