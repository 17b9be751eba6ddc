//! For tests: one access record as it is written, in each framing.

use crate::{
    line::{Form, Framing, LineWriter, datagrams},
    record::AccessRecord,
    settings::{Facility, Format},
    syslog::{self, Severity},
};

/// The destination of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogReceiver {
    /// A file.
    File,
    /// A syslog daemon.
    Syslog,
    /// The journal.
    Journal,
}

/// The bytes of one record: a line with its end, or the datagram for a daemon.
pub fn written(record: &AccessRecord, format: Format, receiver: LogReceiver) -> Vec<u8> {
    let framing = match receiver {
        LogReceiver::File => Framing::Line,
        LogReceiver::Syslog => {
            Framing::Syslog(syslog::head(Facility::default(), Severity::Info, 1).into())
        }
        LogReceiver::Journal => Framing::Journal,
    };
    let mut bytes = Vec::new();
    LineWriter::new(Form { format, framing }).push(&mut bytes, record);
    match receiver {
        LogReceiver::File => bytes,
        LogReceiver::Syslog | LogReceiver::Journal => {
            datagrams(&bytes).flatten().copied().collect()
        }
    }
}
