//! Copies bytes in both directions between the two sides of a tunnel, and forwards the end of each direction.
//!
//! An idle tunnel holds no buffer. All tunnels of a thread read into one shared buffer. A tunnel stores only bytes that the
//! other side did not accept at once, at most as many as fit into that buffer.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};
use upstream::is_unanswered;

/// Maximum bytes that are read at once, and therefore the maximum that wait for one side: two TLS records.
pub(crate) const PIECE_BYTES_MAX: usize = 32 << 10;

/// Time to close both sides of a tunnel in an orderly way.
pub(crate) const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Member,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Both sides have closed their direction, this side first.
    Closed(Side),
    /// This side's connection broke.
    Broken(Side),
    /// The member's host no longer answers TCP keep-alive.
    Unanswered,
}

/// Bytes that went through a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Accepted by the member.
    pub(crate) up: u64,
    /// Accepted by the client.
    pub(crate) down: u64,
}

/// How long no bytes have gone through a tunnel.
#[derive(Debug)]
pub(crate) struct Silence {
    limit: Duration,
    copied: Copied,
    /// When bytes last went through the tunnel.
    since: Instant,
}

impl Silence {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            copied: Copied::default(),
            since: Instant::now(),
        }
    }

    /// Notes all bytes copied so far. Returns how many of them are new.
    pub(crate) fn note(&mut self, copied: Copied) -> Copied {
        let before = self.copied;
        if copied != before {
            (self.copied, self.since) = (copied, Instant::now());
        }
        Copied {
            up: copied.up - before.up,
            down: copied.down - before.down,
        }
    }

    /// When the limit on silence is reached.
    pub(crate) fn ends(&self) -> Instant {
        self.since + self.limit
    }
}

#[derive(Debug)]
pub(crate) struct Copying<C, M> {
    pub(crate) client: C,
    pub(crate) member: M,
    up: Flow,
    down: Flow,
    first: Option<Side>,
}

impl<C, M> Copying<C, M>
where
    C: AsyncRead + AsyncWrite + Unpin,
    M: AsyncRead + AsyncWrite + Unpin,
{
    /// Starts with the bytes that each side has already sent.
    pub(crate) fn new(client: (C, Bytes), member: (M, Bytes)) -> Self {
        Self {
            client: client.0,
            member: member.0,
            up: Flow::new(client.1),
            down: Flow::new(member.1),
            first: None,
        }
    }

    pub(crate) fn copied(&self) -> Copied {
        Copied {
            up: self.up.bytes,
            down: self.down.bytes,
        }
    }

    /// Moves as many bytes as possible. Ready when both directions have ended or a connection is broken.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, piece: &mut [u8]) -> Poll<End> {
        let up = self.up.poll(cx, &mut self.client, &mut self.member, piece);
        if self.up.has_ended() {
            self.first.get_or_insert(Side::Client);
        }
        let down = self
            .down
            .poll(cx, &mut self.member, &mut self.client, piece);
        if self.down.has_ended() {
            self.first.get_or_insert(Side::Member);
        }
        let end = match (up, down) {
            (Poll::Ready(Err(Fault::Read)), _) => End::Broken(Side::Client),
            (_, Poll::Ready(Err(Fault::Read))) => End::Broken(Side::Member),
            (Poll::Ready(Err(Fault::Unanswered)), _) => End::Broken(Side::Client),
            (_, Poll::Ready(Err(Fault::Unanswered))) => End::Unanswered,
            (Poll::Pending, _) | (_, Poll::Pending) => return Poll::Pending,
            // A side that accepts no more bytes may have closed its own direction before. In that case the tunnel counts as
            // closed by that side.
            (up, _) => match self.first {
                Some(side) => End::Closed(side),
                None if matches!(up, Poll::Ready(Err(_))) => End::Broken(Side::Member),
                None => End::Broken(Side::Client),
            },
        };
        Poll::Ready(end)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The source's connection broke.
    Read,
    /// The source's host no longer answers TCP keep-alive.
    Unanswered,
    /// The destination accepts no more bytes.
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// The source has closed, and the proxy must close the destination.
    Ending,
    Ended,
    Failed(Fault),
}

#[derive(Debug)]
struct Flow {
    /// Bytes that were read and that the destination has not accepted yet.
    waiting: Bytes,
    bytes: u64,
    stage: Stage,
}

impl Flow {
    fn new(waiting: Bytes) -> Self {
        Self {
            waiting,
            bytes: 0,
            stage: Stage::Open,
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Ending | Stage::Ended)
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        piece: &mut [u8],
    ) -> Poll<Result<(), Fault>> {
        loop {
            match self.stage {
                Stage::Ended => return Poll::Ready(Ok(())),
                Stage::Failed(fault) => return Poll::Ready(Err(fault)),
                Stage::Open | Stage::Ending => {}
            }
            if let Err(fault) = ready!(self.advance(cx, from, to, piece)) {
                self.stage = Stage::Failed(fault);
                self.waiting = Bytes::new();
            }
        }
    }

    /// Makes one step: sends the waiting bytes, else forwards the end if there is one, else reads the next piece.
    fn advance(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        piece: &mut [u8],
    ) -> Poll<Result<(), Fault>> {
        let mut to = Pin::new(to);
        if !self.waiting.is_empty() {
            let taken = ready!(write(to, cx, &self.waiting))?;
            self.waiting.advance(taken);
            self.bytes += taken as u64;
            return Poll::Ready(Ok(()));
        }
        if self.stage == Stage::Ending {
            // A destination that is already gone need not be closed.
            let _ = ready!(to.poll_shutdown(cx));
            self.stage = Stage::Ended;
            return Poll::Ready(Ok(()));
        }
        let mut read = ReadBuf::new(piece);
        match Pin::new(from).poll_read(cx, &mut read) {
            Poll::Pending => {
                // There is nothing more to send for now. TLS may hold back a record until it is flushed.
                ready!(to.poll_flush(cx)).map_err(|_| Fault::Write)?;
                return Poll::Pending;
            }
            Poll::Ready(Err(error)) if is_unanswered(&error) => {
                return Poll::Ready(Err(Fault::Unanswered));
            }
            Poll::Ready(Err(_)) => return Poll::Ready(Err(Fault::Read)),
            Poll::Ready(Ok(())) => {}
        }
        let data = read.filled();
        if data.is_empty() {
            self.stage = Stage::Ending;
            return Poll::Ready(Ok(()));
        }
        let taken = match write(to.as_mut(), cx, data) {
            Poll::Ready(taken) => taken?,
            Poll::Pending => 0,
        };
        self.bytes += taken as u64;
        self.waiting = Bytes::copy_from_slice(&data[taken..]);
        Poll::Ready(Ok(()))
    }
}

/// Writes at least one byte, or fails if the destination accepts no more.
fn write(
    to: Pin<&mut impl AsyncWrite>,
    cx: &mut Context<'_>,
    data: &[u8],
) -> Poll<Result<usize, Fault>> {
    match ready!(to.poll_write(cx, data)) {
        Ok(taken) if taken > 0 => Poll::Ready(Ok(taken)),
        Ok(_) | Err(_) => Poll::Ready(Err(Fault::Write)),
    }
}
