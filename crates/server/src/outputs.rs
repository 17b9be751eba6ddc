//! Where access records are written.

use std::{fs, io, io::Write, os::unix::fs::OpenOptionsExt};

use config::Output;

/// Opens the access log's output, anew on each reload so that a rotated file is let go.
///
/// # Errors
/// The path and what the system says.
pub(crate) fn open(output: &Output) -> io::Result<Box<dyn Write + Send>> {
    match output {
        Output::Stdout => Ok(Box::new(io::stdout())),
        Output::File(path) => fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o640)
            .open(path)
            .map(|file| Box::new(file) as Box<dyn Write + Send>)
            .map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("access log {}: {error}", path.display()),
                )
            }),
    }
}
