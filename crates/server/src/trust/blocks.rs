//! Whom the operator blocks: from the admin socket into the trust store in force, and kept for the next start.

use std::{path::PathBuf, sync::Arc, time::Duration};

use admin::{
    BlockError, BlockOutcome, BlockRequest, BlockStatus, BlockSubject, BlockedAgentStatus, Caller,
    Timestamp,
};
use identity::Certname;
use pki::{Block, DenyList, SerialNumber};
use rustls_pki_types::UnixTime;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::{
    app::App,
    state_directory::{StateDirectory, StateError},
};

/// Name of the deny list in the state directory.
pub(crate) const FILE: &str = "blocks.json";
/// Most bytes of it: the longest list with room to spare.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of a reason.
const WHY_BYTES_MAX: usize = 500;
/// How often the clock is asked whether a block has ended: it may be set.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// How long after a start a block is kept that was over by then: a clock that was ahead has been set until then.
const CLOCK_DOUBT: Duration = Duration::from_secs(3600);

/// What is kept.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredBlocks {
    version: u32,
    blocks: Vec<BlockStatus>,
}

/// Why the deny list that was kept cannot be had. Starting without it would let in whom it blocks.
#[derive(Debug, thiserror::Error)]
#[error(
    "the list of blocks {} {why}",
    path.display()
)]
pub(crate) struct StoredBlocksError {
    path: PathBuf,
    why: String,
}

/// The deny list that was kept; an empty one if none was.
///
/// # Errors
/// It is there and cannot be read, or makes no sense.
pub(crate) fn kept(directory: &StateDirectory) -> Result<DenyList, StoredBlocksError> {
    let path = directory.path().join(FILE);
    let failed = |why: String| StoredBlocksError {
        path: path.clone(),
        why: format!("is invalid: {why}; restore it, or remove it to start without blocks"),
    };
    // Blocks that this account may not read are not to be removed.
    let unreadable = |error: &StateError| StoredBlocksError {
        path: path.clone(),
        why: format!(
            "cannot be read: {error}; give {} read access, or run the command as root",
            crate::materials::files::user()
        ),
    };
    let bytes = match directory.read(FILE, FILE_BYTES_MAX) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(DenyList::default()),
        // What is wrong is the directory, which has an alarm of its own.
        Err(_) if directory.is_absent(FILE) => return Ok(DenyList::default()),
        Err(error @ StateError::System { .. }) => return Err(unreadable(&error)),
        Err(error) => return Err(failed(error.to_string())),
    };
    let kept: StoredBlocks =
        serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))?;
    if kept.version != 1 || kept.blocks.len() > DenyList::BLOCKS_MAX {
        return Err(failed("its format is that of another version".to_owned()));
    }
    let blocks: Result<Vec<_>, _> = kept.blocks.iter().map(block_of).collect();
    let blocks = blocks.map_err(|error| failed(error.to_string()))?;
    // Those whose time is over, too: the clock of a machine that starts may be ahead.
    Ok(DenyList::new(blocks))
}

impl App {
    /// Everybody who is blocked, the oldest block first.
    pub(crate) fn blocks(&self) -> Vec<BlockStatus> {
        let now = UnixTime::now();
        let generation = self.generation();
        let blocks = generation.trust.deny_list().blocks().iter();
        blocks
            .filter(|block| block.is_active(now))
            .map(status_of)
            .collect()
    }

    /// Blocks somebody: in force first, then kept.
    pub(crate) async fn block(
        self: Arc<Self>,
        request: BlockRequest,
        by: Caller,
    ) -> Result<BlockOutcome, BlockError> {
        let now = UnixTime::now();
        let block = asked(request, by, now)?;
        let agent = {
            let _one_at_a_time = self.one_change().await?;
            self.check_issuer(&block.blocked)?;
            let (mut blocks, _) = self.standing_and_over(now);
            blocks.retain(|known| known.blocked != block.blocked);
            if blocks.len() == DenyList::BLOCKS_MAX {
                let full = format!(
                    "there are already {} blocks, which is the maximum",
                    blocks.len()
                );
                return Err(BlockError::Senseless(full));
            }
            blocks.push(block.clone());
            // Before the block is active: the connections that it closes are still open.
            let agent = self.agent_of(&block.blocked);
            self.deny(blocks);
            agent
        };
        let not_persisted = self.keep_blocks().await;
        let status = status_of(&block);
        let until = status.until.as_ref().map(ToString::to_string);
        tracing::warn!(blocked = %block.blocked, %by, why = block.why, until, not_persisted, "blocked");
        let name = status.blocked.certname.as_deref();
        let refusal = name.and_then(|name| self.refusals_of(name).into_iter().next());
        Ok(BlockOutcome {
            block: status,
            not_persisted,
            agent,
            refusal,
        })
    }

    /// Lifts a block.
    pub(crate) async fn unblock(
        self: Arc<Self>,
        blocked: BlockSubject,
        by: Caller,
    ) -> Result<BlockOutcome, BlockError> {
        let wanted = blocked_of(&blocked)?;
        let lifted = {
            let _one_at_a_time = self.one_change().await?;
            let (mut blocks, _) = self.standing_and_over(UnixTime::now());
            let place = blocks.iter().position(|block| block.blocked == wanted);
            let place = place.ok_or_else(|| BlockError::NotBlocked(wanted.to_string()))?;
            let lifted = blocks.remove(place);
            self.deny(blocks);
            lifted
        };
        let not_persisted = self.keep_blocks().await;
        tracing::warn!(blocked = %lifted.blocked, %by, why = lifted.why, not_persisted, "unblocked");
        Ok(BlockOutcome {
            block: status_of(&lifted),
            not_persisted,
            agent: None,
            refusal: None,
        })
    }

    /// The agent that a block by name is about, if it connected since the start.
    fn agent_of(&self, blocked: &pki::BlockTarget) -> Option<BlockedAgentStatus> {
        let pki::BlockTarget::Certname(certname) = blocked else {
            return None;
        };
        let seen = self.shared.agents.of(certname.as_str())?;
        Some(BlockedAgentStatus {
            last_seen: seen.at.into(),
            client: seen.client.to_string(),
            connections: seen.connections,
        })
    }

    /// A place in the line of reloads: a preparation under way would undo the change.
    async fn one_change(&self) -> Result<tokio::sync::MutexGuard<'_, ()>, BlockError> {
        let place = self.reloading.lock().await;
        match self.is_serving() {
            true => Ok(place),
            false => Err(BlockError::Stopping),
        }
    }

    /// A name that no CA here has would block nobody, and nobody would notice.
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

    /// The blocks that stay, and those whose time is over.
    fn standing_and_over(&self, now: UnixTime) -> (Vec<Block>, Vec<Block>) {
        let (began, clock) = self.started;
        let is_doubted = |block: &Block| {
            began.elapsed() < CLOCK_DOUBT && block.until.is_some_and(|until| until < clock)
        };
        let generation = self.generation();
        let blocks = generation.trust.deny_list().blocks().iter().cloned();
        blocks.partition(|block| block.is_active(now) || is_doubted(block))
    }

    /// Puts a list in force. The caller holds `reloading`.
    fn deny(&self, blocks: Vec<Block>) {
        let list = DenyList::new(blocks);
        self.swap_trust(self.generation().trust.with_deny_list(list));
        self.blocks_changed.notify_one();
    }

    /// Keeps the list that is in force; why it is not kept, if so. A slow disk holds up no reload.
    pub(crate) async fn keep_blocks(&self) -> Option<String> {
        let _one_at_a_time = self.keeping_blocks.lock().await;
        // Read now: of two changes the one that is written last writes both.
        let generation = self.generation();
        let directory = Arc::clone(&self.state_directory);
        let written = tokio::task::spawn_blocking(move || {
            let blocks = generation.trust.deny_list().blocks().iter();
            let kept = StoredBlocks {
                version: 1,
                blocks: blocks.map(status_of).collect(),
            };
            let text = serde_json::to_vec_pretty(&kept).map_err(|error| error.to_string())?;
            let written = directory.write(FILE, &text);
            written.map_err(|error| error.to_string())
        });
        written
            .await
            .unwrap_or_else(|error| Err(error.to_string()))
            .err()
    }
}

/// Ends blocks when their time is over, until it is dropped: connections are judged anew then.
pub(crate) async fn end_in_time(app: Arc<App>) {
    loop {
        let now = UnixTime::now();
        let next = app.generation().trust.deny_list().next_end(now);
        let wait = next.map_or(LOOK_INTERVAL_MAX, |end| {
            // Its last second is the operator's.
            Duration::from_secs(end.as_secs() - now.as_secs() + 1).min(LOOK_INTERVAL_MAX)
        });
        tokio::select! {
            () = sleep(wait) => {}
            () = app.blocks_changed.notified() => {}
        }
        app.end_blocks().await;
    }
}

impl App {
    async fn end_blocks(self: &Arc<Self>) {
        {
            let Ok(_one_at_a_time) = self.one_change().await else {
                return;
            };
            let (stays, ended) = self.standing_and_over(UnixTime::now());
            if ended.is_empty() {
                return;
            }
            for block in &ended {
                tracing::warn!(blocked = %block.blocked, why = block.why, "a block has expired");
            }
            self.deny(stays);
        }
        self.keep_blocks().await;
    }
}

/// What is asked for, as the trust store wants it.
fn asked(request: BlockRequest, by: Caller, now: UnixTime) -> Result<Block, BlockError> {
    let why = request.why.trim();
    if why.is_empty() || why.len() > WHY_BYTES_MAX || why.chars().any(char::is_control) {
        return Err(BlockError::Senseless(format!(
            "the reason must be one line of 1 to {WHY_BYTES_MAX} bytes"
        )));
    }
    let until = request.until.as_ref().map(instant).transpose()?;
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

fn block_of(status: &BlockStatus) -> Result<Block, BlockError> {
    Ok(Block {
        blocked: blocked_of(&status.blocked)?,
        why: status.why.clone(),
        by: status.by.clone(),
        since: instant(&status.since)?,
        until: status.until.as_ref().map(instant).transpose()?,
    })
}

fn blocked_of(blocked: &BlockSubject) -> Result<pki::BlockTarget, BlockError> {
    let senseless = |error: String| BlockError::Senseless(error);
    match blocked {
        BlockSubject {
            certname: Some(name),
            serial: None,
            issuer: None,
            fingerprint: None,
        } => Certname::parse(&name.to_ascii_lowercase()) // As names are compared.
            .map(pki::BlockTarget::Certname)
            .map_err(|error| senseless(format!("\"{name}\" is not a certname: {error}"))),
        BlockSubject {
            certname: None,
            serial: Some(serial),
            issuer: Some(issuer),
            fingerprint: None,
        } => Ok(pki::BlockTarget::Serial {
            issuer: issuer.clone(),
            serial: SerialNumber::parse(serial).map_err(|error| senseless(error.to_string()))?,
        }),
        BlockSubject {
            certname: None,
            serial: None,
            issuer: None,
            fingerprint: Some(fingerprint),
        } => {
            pki::BlockTarget::fingerprint(fingerprint).map_err(|error| senseless(error.to_string()))
        }
        _ => Err(senseless(
            "specify exactly one of a certname, a fingerprint, or a serial number with its issuer"
                .to_owned(),
        )),
    }
}

pub(crate) fn status_of(block: &Block) -> BlockStatus {
    let blocked = match &block.blocked {
        pki::BlockTarget::Certname(name) => BlockSubject {
            certname: Some(name.to_string()),
            ..BlockSubject::default()
        },
        pki::BlockTarget::Serial { issuer, serial } => BlockSubject {
            serial: Some(serial.to_string()),
            issuer: Some(issuer.clone()),
            ..BlockSubject::default()
        },
        pki::BlockTarget::Fingerprint(bytes) => BlockSubject {
            fingerprint: Some(bytes.iter().map(|byte| format!("{byte:02X}")).collect()),
            ..BlockSubject::default()
        },
    };
    BlockStatus {
        blocked,
        why: block.why.clone(),
        by: block.by.clone(),
        since: stamp(block.since),
        until: block.until.map(stamp),
    }
}

fn instant(stamp: &Timestamp) -> Result<UnixTime, BlockError> {
    let seconds = stamp.unix_seconds().and_then(|s| u64::try_from(s).ok());
    let seconds =
        seconds.ok_or_else(|| BlockError::Senseless(format!("\"{stamp}\" is not a time")))?;
    Ok(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
}

/// A time as the API spells it.
pub(crate) fn stamp(time: UnixTime) -> Timestamp {
    Timestamp::from_unix_seconds(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}
