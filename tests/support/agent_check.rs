//! A stand-in for the program that answers agent checks.

use std::{
    io::Write,
    net::TcpListener,
    sync::{Arc, Mutex},
    thread,
};

/// A program that sends its present line on each connection and closes.
#[derive(Clone)]
pub(crate) struct CheckAgent {
    pub(crate) port: u16,
    line: Arc<Mutex<&'static [u8]>>,
}

impl CheckAgent {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let line: Arc<Mutex<&'static [u8]>> = Arc::new(Mutex::new(b"up 100%\n"));
        let said = Arc::clone(&line);
        thread::spawn(move || {
            for mut socket in listener.incoming().flatten() {
                let line = *said.lock().expect("no panic");
                let _ = socket.write_all(line);
            }
        });
        Self { port, line }
    }

    pub(crate) fn say(&self, line: &'static [u8]) {
        *self.line.lock().expect("no panic") = line;
    }
}
