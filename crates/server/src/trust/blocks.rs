//! The operator's blocks while the process runs: each change is applied to the trust store first, then stored.

use std::{collections::HashSet, sync::Arc, time::Duration};

use admin::{
    AuditEntry, BlockCertnamesOutcome, BlockCertnamesRequest, BlockError, BlockOutcome,
    BlockRequest, BlockStatus, BlockSubject, BlockedAgentStatus, Caller,
};
use fleet::{RECORDS_MAX, Record, RecordKey, Records};
use identity::{Certname, CertnameError, settings::SubjectRule};
use pki::{Block, DenyList};
use rustls_pki_types::UnixTime;
use state::{
    GenerationWriter,
    foreign_changes::of_block,
    stored_blocks::{self, StoredBlocksError, blocked_of, parse_time, status_of},
};
use tokio::time::sleep;

use crate::shared_state::App;

/// Maximum length of a reason, in bytes.
const WHY_BYTES_MAX: usize = 500;
/// How often the clock is read to expire blocks, because an operator may set it.
const CLOCK_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// How long after a start a block stays that had expired before the start: the clock may have been ahead and be set by then.
const CLOCK_DOUBT: Duration = Duration::from_secs(3600);

impl App {
    /// The active blocks, the oldest first.
    pub(crate) fn blocks(&self) -> Vec<BlockStatus> {
        let now = UnixTime::now();
        let generation = self.generation();
        let blocks = generation.trust.deny_list().blocks().iter();
        blocks
            .filter(|block| block.is_active(now))
            .map(status_of)
            .collect()
    }

    /// Blocks a client: applies the block, then stores it.
    pub(crate) async fn block(
        self: Arc<Self>,
        request: BlockRequest,
        by: Caller,
    ) -> Result<BlockOutcome, BlockError> {
        let now = UnixTime::now();
        self.check_name(&request.blocked)?;
        let block = requested_block(request, by, now)?;
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
        let name = status.blocked.certname.as_deref();
        let refusal = name.and_then(|name| self.refusals_of(name).into_iter().next());
        let trust = &self.generation().trust;
        let separate = trust.separate_roots(now).into_iter().map(str::to_owned);
        let separate_cas = match status.blocked.certname {
            Some(_) => separate.collect(),
            None => Vec::new(),
        };
        Ok(BlockOutcome {
            block: status,
            not_persisted,
            agent,
            refusal,
            separate_cas,
            replaced: None,
            fleet: None,
        })
    }

    /// Blocks several certnames with one change: applies the blocks, then stores them.
    pub(crate) async fn block_certnames(
        self: Arc<Self>,
        request: BlockCertnamesRequest,
        by: Caller,
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
            new.push(requested_block(one, by, now)?);
        }
        new.sort_by_key(|block| block.blocked.to_string());
        new.dedup_by(|one, other| one.blocked == other.blocked);
        if new.is_empty() {
            let empty = "no certname is given, so nothing is blocked";
            return Err(BlockError::Senseless(empty.to_owned()));
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

    /// Records blocks, which replace blocks of the same clients.
    fn record_blocks(&self, new: &[Block], now: UnixTime) -> Result<(), BlockError> {
        let added: HashSet<_> = new.iter().map(|block| &block.blocked).collect();
        let is_other =
            |block: &Block| !added.contains(&block.blocked) && self.is_in_effect(block, now);
        let others = self.records.count_in_effect(is_other);
        let too_many = || {
            BlockError::Senseless(format!(
                "there are already {others} blocks, and the maximum is {}",
                DenyList::BLOCKS_MAX
            ))
        };
        if others + new.len() > DenyList::BLOCKS_MAX {
            return Err(too_many());
        }
        self.records.block(new).map_err(|_| {
            BlockError::Senseless(format!(
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
        let rule = self.foundation().config.identity.subject;
        let problem = match rule {
            SubjectRule::Puppet => Certname::parse_puppet(&lower).err(),
            // Another CA may sign any of these, except a name that reads like a pattern.
            SubjectRule::SingleCn => match lower.contains('*') {
                true => Some(CertnameError::Character('*')),
                false => Certname::parse(&lower).err(),
            },
        };
        match problem {
            None => Ok(()),
            Some(problem) => Err(BlockError::Senseless(format!(
                "\"{name}\" is not a certname, so the block would match no certificate: {problem}; a block is for one \
                 certname, and `proscenium block --file FILE --why TEXT` blocks all that a file names, one a line"
            ))),
        }
    }

    /// Removes a block.
    pub(crate) async fn unblock(
        self: Arc<Self>,
        blocked: BlockSubject,
        by: Caller,
    ) -> Result<BlockOutcome, BlockError> {
        let wanted = blocked_of(&blocked)?;
        let removed = {
            let writer = self.active.writer_of_owner().await;
            let writer = writer.ok_or(BlockError::Stopping)?;
            let now = UnixTime::now();
            let is_meant = |block: &Block| block.blocked == wanted && self.is_in_effect(block, now);
            let removed = self.records.blocks_in_effect(is_meant).pop();
            let removed = removed.ok_or_else(|| BlockError::NotBlocked(wanted.to_string()))?;
            // It has a place already.
            let _ = self.records.lift(&wanted, &by.to_string(), now);
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

    /// The agent that a block by certname is about, if it has connected since the start.
    fn agent_of(&self, blocked: &pki::BlockTarget) -> Option<BlockedAgentStatus> {
        let pki::BlockTarget::Certname(certname) = blocked else {
            return None;
        };
        let seen = self.shared.agents.of(certname.as_str())?;
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
        let trust = &self.generation().trust;
        if trust.knows_issuer(issuer) {
            return Ok(());
        }
        let known = trust.status(UnixTime::now()).cas.into_iter();
        let known: Vec<_> = known.map(|ca| ca.subject).collect();
        Err(BlockError::Senseless(format!(
            "\"{issuer}\" is not a CA of the bundle; its CAs are: {}",
            known.join("; ")
        )))
    }

    /// Whether a block has not ended. One that had ended before the start counts as active for a while.
    fn is_in_effect(&self, block: &Block, now: UnixTime) -> bool {
        let (started_at, clock) = self.active.started();
        let is_doubted =
            started_at.elapsed() < CLOCK_DOUBT && block.until.is_some_and(|until| until < clock);
        block.is_active(now) || is_doubted
    }

    /// Takes over records of other proxies, and enforces and stores them.
    pub(crate) async fn take_over(self: &Arc<Self>, records: Vec<Record>) {
        if records.is_empty() {
            return;
        }
        let now = UnixTime::now();
        let mut audit: Vec<AuditEntry>;
        let is_of_members;
        {
            // An operator's change that is compared with what it replaces comes first.
            let _blocks = self.locks.blocks.lock().await;
            let _members = self.locks.members.lock().await;
            let Some(writer) = self.active.writer_of_owner().await else {
                return;
            };
            // A clock that is ahead after the start must not let blocks be taken for those that ended long ago.
            let is_doubted = self.active.uptime() < CLOCK_DOUBT;
            let clock = if is_doubted {
                UnixTime::since_unix_epoch(Duration::ZERO)
            } else {
                now
            };
            let changed = self.records.take_over(records, clock);
            if changed.is_empty() {
                return;
            }
            audit = changed.iter().filter_map(of_block).collect();
            let (members, blocks): (Vec<_>, Vec<_>) = changed
                .iter()
                .map(Record::key)
                .partition(|key| matches!(key, RecordKey::Member { .. }));
            if !blocks.is_empty() {
                for key in &blocks {
                    tracing::warn!(%key, "another proxy has set or lifted a block");
                }
                self.apply_blocks(&writer, now);
            }
            is_of_members = !members.is_empty();
            let members = members.into_iter().filter_map(|key| match key {
                RecordKey::Member { pool, member } => Some((pool, member)),
                RecordKey::Block(_) => None,
            });
            audit.extend(self.membership.apply_records(members));
        }
        // This one is written only if there is a change for it.
        self.store_blocks().await;
        if is_of_members {
            self.membership.store_states().await;
        }
        if !audit.is_empty() {
            self.audit(audit).await;
        }
        // This proxy says that the records apply only after its former process has them.
        self.hand_over
            .former
            .follow(self.state_directory.path())
            .await;
    }

    /// The records of blocks in the state directory.
    pub(crate) fn stored_blocks(&self) -> Result<Records, StoredBlocksError> {
        let name = self.foundation().config.proxy_name();
        stored_blocks::read(&self.state_directory, &name)
    }

    /// Stores the records of blocks. Returns why they are not stored, if so. It waits for the disk without the writer's lock, so
    /// that a slow disk delays no reload.
    pub(crate) async fn store_blocks(&self) -> Option<String> {
        let wanted = self.records.version();
        let mut stored = self.trust.storing_blocks.lock().await;
        // Another change was stored while this one waited, and this one with it.
        if *stored >= wanted {
            return None;
        }
        // Read under this lock: of two concurrent changes, the second write contains both.
        let (version, records) = (self.records.version(), self.records.all());
        let directory = Arc::clone(&self.state_directory);
        let written =
            tokio::task::spawn_blocking(move || stored_blocks::write(&directory, &records));
        let written = written.await;
        let written = written.unwrap_or_else(|error| Err(error.to_string()));
        if written.is_ok() {
            *stored = version;
        }
        written.err()
    }

    async fn expire_blocks(self: &Arc<Self>) {
        let Some(writer) = self.active.writer_of_owner().await else {
            return;
        };
        let now = UnixTime::now();
        self.forget_blocks(now).await;
        let generation = self.generation();
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

    /// Forgets the blocks that ended long ago. A clock that is ahead at the start may have been set by the time that this is
    /// done.
    async fn forget_blocks(&self, now: UnixTime) {
        if self.active.uptime() >= CLOCK_DOUBT && self.records.forget_ended(now) {
            self.store_blocks().await;
        }
    }

    /// Enforces the blocks that the records have.
    pub(crate) fn apply_blocks(&self, writer: &GenerationWriter<'_>, now: UnixTime) {
        let deny_list = DenyList::new(
            self.records
                .blocks_in_effect(|block| self.is_in_effect(block, now)),
        );
        writer.replace_trust(self.generation().trust.with_deny_list(deny_list));
        self.trust.blocks_changed.notify_one();
    }
}

/// Expires blocks when they are due, until this future is dropped.
pub(crate) async fn expire_when_due(app: Arc<App>) {
    loop {
        let now = UnixTime::now();
        let next = app.generation().trust.deny_list().next_end(now);
        let wait = next.map_or(CLOCK_INTERVAL_MAX, |end| {
            // A block is active until the end of its last second.
            Duration::from_secs(end.as_secs() - now.as_secs() + 1).min(CLOCK_INTERVAL_MAX)
        });
        tokio::select! {
            () = sleep(wait) => {}
            () = app.trust.blocks_changed.notified() => {}
        }
        app.expire_blocks().await;
    }
}

/// The requested block as the trust store has it.
fn requested_block(request: BlockRequest, by: Caller, now: UnixTime) -> Result<Block, BlockError> {
    let why = request.why.trim();
    if why.is_empty() || why.len() > WHY_BYTES_MAX || why.chars().any(char::is_control) {
        return Err(BlockError::Senseless(format!(
            "the reason must be one line of 1 to {WHY_BYTES_MAX} bytes"
        )));
    }
    let until = request.until.as_ref().map(parse_time).transpose()?;
    if let (Some(end), Some(text)) = (until, &request.until)
        && end <= now
    {
        return Err(BlockError::Senseless(format!("{text} is in the past")));
    }
    Ok(Block {
        blocked: blocked_of(&request.blocked)?,
        why: why.to_owned(),
        by: by.to_string(),
        since: now,
        until,
    })
}
