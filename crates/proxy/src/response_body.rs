//! The body of a response. It is streamed and counted, and silence is limited. The exchange ends when the body ends.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;
use upstream::{MemberBody, WireError, cause};

use crate::{
    idle_limit::IdleLimit,
    member_names::NameRewriter,
    pace::ReaderPace,
    record::{ActiveExchange, EndedBy},
    slow_readers::Download,
    tunnel_opening::TunnelOpening,
    upload::RequestBody,
};

/// A fault in a member's body.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResponseFault {
    /// The member sent nothing for too long.
    #[error("the member sent no data of the response body for {0:?}")]
    Idle(Duration),
    /// The member closed the connection or broke the framing.
    #[error("the response body is incomplete: {}", cause(.0))]
    Broken(#[source] WireError),
}

/// The body of a response. It holds the exchange until its end.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    source: Source,
    exchange: Option<Box<ActiveExchange>>,
}

/// The body of a member's response, read in part or completely.
pub(crate) enum AnswerBody {
    /// The body is passed on as it arrives.
    Streamed(MemberBody<RequestBody>),
    /// The body is passed on with names replaced.
    Rewritten(MemberBody<RequestBody>, Box<NameRewriter>),
    /// The body was read completely.
    Whole(Bytes),
}

#[derive(Debug)]
enum Source {
    /// A text of the proxy itself. `None` once it was taken.
    Local(Option<Bytes>),
    /// No body: a tunnel follows.
    Tunnel(Box<TunnelOpening>),
    /// A member's body.
    Member(MemberBody<RequestBody>, IdleLimit),
    /// A member's body with names replaced.
    Rewritten(MemberBody<RequestBody>, IdleLimit, Box<NameRewriter>),
}

impl Source {
    /// Takes the member's body, which has ended or is not read any further.
    fn take_member(&mut self) -> Option<MemberBody<RequestBody>> {
        match std::mem::replace(self, Self::Local(None)) {
            Self::Member(member, _) | Self::Rewritten(member, ..) => Some(member),
            local @ (Self::Local(_) | Self::Tunnel(_)) => {
                *self = local;
                None
            }
        }
    }
}

impl ResponseBody {
    pub(crate) fn local(text: Bytes, exchange: Box<ActiveExchange>) -> Self {
        Self::new(Source::Local((!text.is_empty()).then_some(text)), exchange)
    }

    /// No body, after a 101. The exchange continues as this tunnel.
    pub(crate) fn tunnel(opening: Box<TunnelOpening>) -> Self {
        Self {
            source: Source::Tunnel(opening),
            exchange: None,
        }
    }

    /// Takes the tunnel that follows, so that the connection's task can run it.
    pub(crate) fn take_tunnel(&mut self) -> Option<Box<TunnelOpening>> {
        match std::mem::replace(&mut self.source, Source::Local(None)) {
            Source::Tunnel(opening) => Some(opening),
            source => {
                self.source = source;
                None
            }
        }
    }

    pub(crate) fn member(
        answer: AnswerBody,
        idle: Duration,
        exchange: Box<ActiveExchange>,
    ) -> Self {
        match answer {
            AnswerBody::Streamed(incoming) => {
                exchange.begin_reading();
                Self::new(Source::Member(incoming, IdleLimit::new(idle)), exchange)
            }
            AnswerBody::Rewritten(incoming, rewriter) => {
                exchange.begin_reading();
                let idle = IdleLimit::new(idle);
                Self::new(Source::Rewritten(incoming, idle, rewriter), exchange)
            }
            AnswerBody::Whole(bytes) => Self::local(bytes, exchange),
        }
    }

    fn new(source: Source, exchange: Box<ActiveExchange>) -> Self {
        let mut body = Self {
            source,
            exchange: Some(exchange),
        };
        // A body that has ended is not polled.
        if body.is_end_stream() {
            body.end(EndedBy::Completion);
        }
        body
    }

    /// Called when the member's body has ended and the proxy waits only for the client. Releases the member.
    pub(crate) fn member_is_done(&mut self) {
        let Some(exchange) = &mut self.exchange else {
            return;
        };
        // A member that still reads the request is not released.
        if exchange.upload.finished().is_some() {
            exchange.member_is_done();
            if let Some(member) = self.source.take_member() {
                member.give_back(Instant::now());
            }
        }
    }

    /// Ends the exchange, unless it has already ended.
    pub(crate) fn end(&mut self, by: EndedBy) {
        if let Some(exchange) = self.exchange.take() {
            exchange.end(by, self.source.take_member());
        }
    }

    /// The download, if the response is a member's and the proxy may end it.
    pub(crate) fn download(&self) -> Option<Download> {
        match self.source {
            Source::Local(_) | Source::Tunnel(_) => None,
            Source::Member(..) | Source::Rewritten(..) => self.exchange.as_ref()?.download(),
        }
    }

    /// The pace at which the client reads a member's body, if its connection carries one response at a time.
    fn reader(&self) -> Option<&ReaderPace> {
        match self.source {
            Source::Local(_) | Source::Tunnel(_) => None,
            Source::Member(..) | Source::Rewritten(..) => self.exchange.as_ref()?.reader(),
        }
    }

    /// Returns the next data. The last data does not end the exchange: the sender must call `end` after it has sent that data.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, ResponseFault>>> {
        if let Some(reader) = self.reader() {
            reader.requested();
        }
        let polled = match &mut self.source {
            Source::Local(text) => Poll::Ready(Ok(text.take())),
            Source::Tunnel(_) => Poll::Ready(Ok(None)),
            Source::Member(incoming, idle) => poll_member(incoming, idle, cx),
            Source::Rewritten(incoming, idle, rewriter) => {
                poll_rewritten(incoming, idle, rewriter, cx)
            }
        };
        let Poll::Ready(data) = polled else {
            return Poll::Pending;
        };
        if let (Ok(Some(data)), Some(exchange)) = (&data, &mut self.exchange) {
            exchange.sent(data.len());
        }
        match &data {
            Ok(Some(_)) => {
                if !self.is_end_stream()
                    && let Some(reader) = self.reader()
                {
                    reader.handed();
                }
            }
            Ok(None) => self.end(EndedBy::Completion),
            Err(ResponseFault::Idle(_)) => self.end(EndedBy::MemberIdle),
            Err(ResponseFault::Broken(error)) if error.is_malformed() => {
                let cause = cause(error);
                if let Some(exchange) = &mut self.exchange {
                    exchange.set_cause(cause);
                }
                self.end(EndedBy::Malformed);
            }
            Err(ResponseFault::Broken(error)) if error.is_unanswered() => {
                self.end(EndedBy::MemberUnanswered);
            }
            Err(ResponseFault::Broken(_)) => self.end(EndedBy::Member),
        }
        Poll::Ready(data.transpose())
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseFault>>> {
        let polled = self.poll_data(cx);
        // The exchange ends here, because the connection does not poll again after a body reports its end.
        if polled.is_ready() && self.is_end_stream() {
            self.end(EndedBy::Completion);
        }
        polled.map(|data| data.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Local(text) => text.is_none(),
            Source::Tunnel(_) => true,
            Source::Member(incoming, _) => incoming.is_end_stream(),
            Source::Rewritten(incoming, _, rewriter) => {
                incoming.is_end_stream() && rewriter.is_empty()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Local(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
            Source::Tunnel(_) => SizeHint::with_exact(0),
            Source::Member(incoming, _) => incoming.size_hint(),
            Source::Rewritten(..) => SizeHint::default(),
        }
    }
}

/// Returns the next data of a member's text, with names replaced.
fn poll_rewritten(
    incoming: &mut MemberBody<RequestBody>,
    idle: &mut IdleLimit,
    rewriter: &mut NameRewriter,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Bytes>, ResponseFault>> {
    loop {
        if let Some(part) = rewriter.next() {
            return Poll::Ready(Ok(Some(part)));
        }
        match ready!(poll_member(incoming, idle, cx))? {
            Some(piece) => rewriter.push(piece),
            None => return Poll::Ready(Ok(rewriter.finish())),
        }
    }
}

fn poll_member(
    incoming: &mut MemberBody<RequestBody>,
    idle: &mut IdleLimit,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Bytes>, ResponseFault>> {
    match incoming.poll_data(cx) {
        Poll::Pending => idle
            .poll_exceeded(cx)
            .map(|limit| Err(ResponseFault::Idle(limit))),
        Poll::Ready(next) => {
            idle.touch();
            Poll::Ready(next.transpose().map_err(ResponseFault::Broken))
        }
    }
}
