//! For tests: one access record as it is written, in each framing.

use crate::{
    line::{Form, Framing, LineWriter, datagrams},
    record::AccessRecord,
    settings::{Facility, Format},
    syslog::{self, Severity},
};

/// Where a record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// A file.
    File,
    /// A syslog daemon.
    Syslog,
    /// The journal.
    Journal,
}

/// The bytes of one record: a line with its end, or the datagram that a daemon gets.
pub fn written(record: &AccessRecord, format: Format, receiver: Receiver) -> Vec<u8> {
    let framing = match receiver {
        Receiver::File => Framing::Line,
        Receiver::Syslog => {
            Framing::Syslog(syslog::head(Facility::default(), Severity::Info, 1).into())
        }
        Receiver::Journal => Framing::Journal,
    };
    let mut bytes = Vec::new();
    LineWriter::new(Form { format, framing }).push(&mut bytes, record);
    match receiver {
        Receiver::File => bytes,
        Receiver::Syslog | Receiver::Journal => datagrams(&bytes).flatten().copied().collect(),
    }
}
