//! Messages between two processes over a Unix socket, with descriptors. A message is its length in four bytes and JSON.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    time::Duration,
};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg, sockopt,
};
use serde::{Serialize, de::DeserializeOwned};

use super::{ANSWER_MAX, DESCRIPTORS_MAX, MESSAGE_BYTES_MAX};

/// One side of a hand-over. Its functions block.
#[derive(Debug)]
pub(super) struct Channel(UnixStream);

impl Channel {
    /// Connects to the process that accepts hand-overs.
    ///
    /// # Errors
    /// No process accepts connections there, or the system refuses.
    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        Self::new(UnixStream::connect(path)?)
    }

    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        Ok(Self(stream))
    }

    /// The same connection, for another thread.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Whether the other side has sent something that is not received yet. It does not wait.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn has_message(&self) -> io::Result<bool> {
        match recv(&self.0, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, length)) => Ok(length > 0),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the connection in both directions.
    pub(super) fn close(&self) {
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }

    /// The process on the other side, as the kernel names it.
    ///
    /// # Errors
    /// It belongs to another account, or the system refuses.
    pub(super) fn peer(&self) -> io::Result<u32> {
        let peer = sockopt::socket_peercred(&self.0)?;
        if peer.uid == rustix::process::geteuid() {
            return Ok(peer.pid.as_raw_nonzero().get().cast_unsigned());
        }
        let why = format!("the peer runs as uid {}", peer.uid.as_raw());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The other side is gone, or reads nothing for [`ANSWER_MAX`].
    pub(super) fn send(&self, message: &impl Serialize) -> io::Result<()> {
        self.send_with(message, &[])
    }

    /// Sends a message with at most [`DESCRIPTORS_MAX`] descriptors.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub(super) fn send_with(
        &self,
        message: &impl Serialize,
        descriptors: &[OwnedFd],
    ) -> io::Result<()> {
        let body = serde_json::to_vec(message)?;
        let length = u32::try_from(body.len()).ok();
        let length = length.filter(|length| *length <= MESSAGE_BYTES_MAX);
        let length = length.ok_or(io::ErrorKind::FileTooLarge)?.to_be_bytes();
        let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); SPACE];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !borrowed.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let sent = sendmsg(
            &self.0,
            &[IoSlice::new(&length)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )?;
        (&self.0).write_all(&length[sent..])?;
        (&self.0).write_all(&body)
    }

    /// The next message, and its descriptors.
    ///
    /// # Errors
    /// The other side is gone, sends nothing for this long, or sends something else.
    pub(super) fn receive<T: DeserializeOwned>(
        &self,
        within: impl Into<Option<Duration>>,
    ) -> io::Result<(T, Vec<OwnedFd>)> {
        self.0.set_read_timeout(within.into())?;
        let mut length = [0; 4];
        let mut space = [MaybeUninit::uninit(); SPACE];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = retry_on_intr(|| {
            recvmsg(
                &self.0,
                &mut [IoSliceMut::new(&mut length)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            )
        })?;
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                descriptors.extend(passed);
            }
        }
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::other("descriptors were lost: too many are open"));
        }
        (&self.0).read_exact(&mut length[received.bytes..])?;
        let length = u32::from_be_bytes(length);
        if length > MESSAGE_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = vec![0; length as usize];
        (&self.0).read_exact(&mut body)?;
        Ok((serde_json::from_slice(&body)?, descriptors))
    }
}

/// Bytes of the descriptors of one message.
const SPACE: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX));

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::fs::MetadataExt};

    use super::*;

    fn pair() -> (Channel, Channel) {
        let (one, two) = UnixStream::pair().unwrap();
        (Channel::new(one).unwrap(), Channel::new(two).unwrap())
    }

    #[test]
    fn messages_arrive_with_their_descriptors_in_order() {
        let (one, two) = pair();
        let file = tempfile::tempfile().unwrap();
        let other = tempfile::tempfile().unwrap();
        let inodes = [&file, &other].map(|file| file.metadata().unwrap().ino());
        one.send_with(&"sockets", &[file.into(), other.into()])
            .unwrap();
        one.send(&"last").unwrap();
        let (text, passed): (String, _) = two.receive(ANSWER_MAX).unwrap();
        let passed: Vec<_> = passed.into_iter().map(File::from).collect();
        assert_eq!(text, "sockets");
        let arrived: Vec<_> = passed.iter().map(|f| f.metadata().unwrap().ino()).collect();
        assert_eq!(arrived, inodes);
        let (text, passed): (String, _) = two.receive(ANSWER_MAX).unwrap();
        assert_eq!((text.as_str(), passed.len()), ("last", 0));
        assert!(!two.has_message().unwrap());
        one.try_clone().unwrap().send(&"more").unwrap();
        assert!(two.has_message().unwrap());
        assert_eq!(two.receive::<String>(ANSWER_MAX).unwrap().0, "more");
        drop(one);
        assert!(!two.has_message().unwrap(), "it has ended");
    }

    #[test]
    fn a_message_that_is_too_long_invalid_or_missing_is_an_error() {
        let (one, two) = pair();
        let long = "x".repeat(MESSAGE_BYTES_MAX as usize);
        assert!(one.send(&long).is_err());
        (&one.0).write_all(&[0xff; 4]).unwrap();
        assert!(two.receive::<String>(ANSWER_MAX).is_err());
        (&one.0).write_all(b"\0\0\0\x02{]").unwrap();
        assert!(two.receive::<String>(ANSWER_MAX).is_err());
        assert!(two.receive::<String>(Duration::from_millis(1)).is_err());
        drop(one);
        let gone = two.receive::<String>(ANSWER_MAX).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn the_peer_is_named_by_the_kernel() {
        let (one, _two) = pair();
        assert_eq!(one.peer().unwrap(), std::process::id());
    }
}
