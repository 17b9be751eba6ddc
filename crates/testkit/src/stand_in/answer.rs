//! Writing a response with its injected faults.

use std::{
    io::{self, Read, Write},
    thread,
    time::Duration,
};

use rustls::{ServerConnection, StreamOwned};

use super::Recorded;
use crate::{
    reply::{Content, End, Reply},
    socket::Socket,
};

/// Writes the response with its faults.
pub(super) fn give(
    io: &mut impl Transport,
    socket: &Socket,
    request: &Recorded,
    reply: &Reply,
) -> io::Result<After> {
    for interim in &reply.interim {
        io.write_all(interim)?;
        io.flush()?;
    }
    if !reply.delay.is_zero() {
        // The test requested this delay.
        thread::sleep(reply.delay);
    }
    if let Some(gate) = &reply.gate {
        gate.pass();
    }
    if reply.reset {
        socket.reset();
        return Ok(After::Close);
    }
    if let Content::Raw(bytes) = &reply.content {
        io.write_all(bytes)?;
        io.finish();
        return Ok(After::Close);
    }
    io.write_all(&head_bytes(reply))?;
    io.flush()?;
    let mut writer = BodyWriter {
        io,
        socket,
        reply,
        sent: 0,
    };
    if request.method != "HEAD" && !writer.content()? {
        return Ok(After::Close);
    }
    let close = reply.close || reply.leaves || matches!(reply.content, Content::ToClose(_));
    if close {
        io.finish();
    }
    Ok(if close {
        After::Close
    } else if reply.status == 101 {
        After::Tunnel
    } else {
        After::Keep
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Keep,
    Close,
    Tunnel,
}

fn head_bytes(reply: &Reply) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {} {}\r\n", reply.status, reason(reply.status));
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match &reply.content {
        Content::Length(_) if matches!(reply.status, 101 | 204 | 304) => {}
        Content::Length(bytes) => head.push_str(&format!("Content-Length: {}\r\n", bytes.len())),
        Content::Stream(length) => head.push_str(&format!("Content-Length: {length}\r\n")),
        Content::Chunks(..) => head.push_str("Transfer-Encoding: chunked\r\n"),
        Content::ToClose(_) | Content::Raw(_) => {}
    }
    if reply.close {
        head.push_str("Connection: close\r\n");
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// Sends the body, counts its content bytes, and cuts it off where the reply requires.
struct BodyWriter<'a, W> {
    io: &'a mut W,
    socket: &'a Socket,
    reply: &'a Reply,
    sent: u64,
}

impl<W: Write> BodyWriter<'_, W> {
    /// Sends the content; returns false if it was cut off.
    fn content(&mut self) -> io::Result<bool> {
        match &self.reply.content {
            Content::Length(bytes) | Content::ToClose(bytes) => self.pieces(bytes),
            Content::Stream(length) => self.stream(*length),
            Content::Chunks(chunks, trailers) => self.chunks(chunks, trailers),
            Content::Raw(_) => Ok(true),
        }
    }

    fn chunks(&mut self, chunks: &[Vec<u8>], trailers: &[(String, String)]) -> io::Result<bool> {
        for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
            self.io
                .write_all(format!("{:x}\r\n", chunk.len()).as_bytes())?;
            if !self.pieces(chunk)? {
                return Ok(false);
            }
            self.io.write_all(b"\r\n")?;
            self.io.flush()?;
        }
        let fields: String = trailers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        self.io.write_all(format!("0\r\n{fields}\r\n").as_bytes())?;
        self.io.flush()?;
        Ok(true)
    }

    fn stream(&mut self, length: u64) -> io::Result<bool> {
        let block = vec![b'x'; 64 << 10];
        let mut left = length;
        while left > 0 {
            let size = left.min(block.len() as u64) as usize;
            if !self.pieces(&block[..size])? {
                return Ok(false);
            }
            left -= size as u64;
        }
        Ok(true)
    }

    fn pieces(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let (size, interval) = self.reply.dribble.unwrap_or((usize::MAX, Duration::ZERO));
        let mut rest = bytes;
        loop {
            if let Some((_, end)) = self
                .reply
                .end_after
                .filter(|(after, _)| self.sent >= *after)
            {
                self.io.flush()?;
                match end {
                    End::Close => self.socket.close(),
                    End::Reset => self.socket.reset(),
                }
                return Ok(false);
            }
            if let Some((_, gate)) = self
                .reply
                .hold_after
                .as_ref()
                .filter(|(after, _)| self.sent >= *after)
            {
                self.io.flush()?;
                gate.pass();
            }
            if rest.is_empty() {
                return Ok(true);
            }
            let take = rest.len().min(size).min(self.until_stop());
            self.io.write_all(&rest[..take])?;
            self.io.flush()?;
            self.sent += take as u64;
            rest = &rest[take..];
            if !interval.is_zero() && !rest.is_empty() {
                // The test requested this delay.
                thread::sleep(interval);
            }
        }
    }

    /// The number of bytes up to the next position where the reply ends or waits.
    fn until_stop(&self) -> usize {
        let ends = self.reply.end_after.map(|(after, _)| after);
        let holds = self.reply.hold_after.as_ref().map(|(after, _)| *after);
        let ahead = ends
            .into_iter()
            .chain(holds)
            .filter(|after| *after > self.sent)
            .min();
        ahead.map_or(usize::MAX, |after| (after - self.sent) as usize)
    }
}

/// A stream that can be half-closed.
pub(super) trait Transport: Read + Write {
    fn finish(&mut self);
}

impl Transport for Socket {
    fn finish(&mut self) {
        Self::finish(self);
    }
}

impl Transport for StreamOwned<ServerConnection, Socket> {
    fn finish(&mut self) {
        self.conn.send_close_notify();
        let _ = self.flush();
        Socket::finish(&self.sock);
    }
}

fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|s| s.canonical_reason())
        .unwrap_or("Unknown")
}
