//! The far end of a client's or a member's connection. The test reads and writes it as a peer would.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, split};

/// One end of a connection.
pub struct Wire {
    reader: ReadHalf<DuplexStream>,
    /// `None` if a task writes the last text of this side.
    writer: Option<WriteHalf<DuplexStream>>,
    /// Bytes that were read and not consumed yet.
    read: Vec<u8>,
}

/// A response with its body.
#[derive(Debug)]
pub struct WireResponse {
    /// The status code.
    pub status: u16,
    /// The status line and the fields, in lower case.
    pub head: String,
    /// The body.
    pub body: String,
}

impl Wire {
    pub fn new(io: DuplexStream) -> Self {
        let (reader, writer) = split(io);
        Self {
            reader,
            writer: Some(writer),
            read: Vec::new(),
        }
    }

    /// Writes a text that the other side must read.
    pub async fn send(&mut self, text: &str) {
        let sent = self.writer().write_all(text.as_bytes()).await;
        sent.expect("the proxy reads");
    }

    /// Writes bytes that the other side must read.
    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        let sent = self.writer().write_all(bytes).await;
        sent.expect("the proxy reads");
    }

    /// Writes a text. Fails if the other side has gone.
    pub async fn try_send(&mut self, text: &str) -> io::Result<()> {
        self.writer().write_all(text.as_bytes()).await
    }

    /// Writes a last text in the background, as fast as the other side reads it.
    pub fn send_beside(&mut self, text: String) {
        let mut writer = self.take_writer();
        tokio::task::spawn_local(async move {
            // The write may fail, because some tests close the connection meanwhile.
            let _ = writer.write_all(text.as_bytes()).await;
            std::future::pending::<()>().await;
        });
    }

    /// Takes the side that writes, for a task of the test.
    pub fn take_writer(&mut self) -> WriteHalf<DuplexStream> {
        self.writer.take().expect("nothing was last before")
    }

    fn writer(&mut self) -> &mut WriteHalf<DuplexStream> {
        self.writer.as_mut().expect("something was last before")
    }

    /// Sends a GET for this path as an agent does.
    pub async fn get(&mut self, path: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: puppet\r\n\r\n"))
            .await;
    }

    /// Sends a PUT that declares a body of this length, without the body.
    pub async fn put(&mut self, path: &str, length: usize) {
        self.send(&format!(
            "PUT {path} HTTP/1.1\r\nHost: puppet\r\nContent-Length: {length}\r\n\r\n"
        ))
        .await;
    }

    /// Whether the other side has closed without sending a byte.
    pub async fn is_ended(&mut self) -> bool {
        self.rest().await.is_empty()
    }

    /// Sends a response with this status and a Content-Length.
    pub async fn answer(&mut self, status: u16, body: &str) {
        self.send(&format!(
            "HTTP/1.1 {status} X\r\nX-Puppet-Version: 8.0\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
    }

    /// Reads a head with its empty line. `None`: the other side closed before.
    pub async fn head(&mut self) -> Option<String> {
        loop {
            let end = self.read.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                let head: Vec<_> = self.read.drain(..end + 4).collect();
                return Some(String::from_utf8_lossy(&head).to_lowercase());
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// Reads the head of a request. Fails the test if none arrives.
    pub async fn request(&mut self) -> String {
        self.head().await.expect("a request")
    }

    /// Reads a response with a Content-Length, or without a body.
    pub async fn response(&mut self) -> WireResponse {
        let head = self.head().await.expect("a response");
        let status = head[9..12].parse().expect("a status code");
        let length = field(&head, "content-length")
            .map_or(0, |length| length.parse().expect("a length of digits"));
        WireResponse {
            status,
            body: self.text(length).await,
            head,
        }
    }

    /// Reads this many bytes.
    pub async fn text(&mut self, length: usize) -> String {
        let text = self.try_text(length).await;
        text.unwrap_or_else(|| panic!("ended before {length} bytes"))
    }

    /// Reads this many bytes. `None`: the other side closed before.
    pub async fn try_text(&mut self, length: usize) -> Option<String> {
        while self.read.len() < length {
            if !self.fill().await {
                return None;
            }
        }
        let text: Vec<_> = self.read.drain(..length).collect();
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// Reads the body of a message with this head. `None`: the other side closed before the end of the body.
    pub async fn try_body(&mut self, head: &str) -> Option<String> {
        if field(head, "transfer-encoding") == Some("chunked") {
            return self.try_chunks().await;
        }
        let length = field(head, "content-length");
        self.try_text(length.map_or(0, |length| length.parse().expect("a length of digits")))
            .await
    }

    async fn try_chunks(&mut self) -> Option<String> {
        let mut body = String::new();
        loop {
            let mut line = String::new();
            while !line.ends_with("\r\n") {
                line += &self.try_text(1).await?;
            }
            let size = usize::from_str_radix(line.trim_end(), 16).expect("the size of a chunk");
            let chunk = self.try_text(size + 2).await?;
            if size == 0 {
                return Some(body);
            }
            body += &chunk[..size];
        }
    }

    /// Reads until the connection closes.
    pub async fn rest(&mut self) -> String {
        while self.fill().await {}
        String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned()
    }

    async fn fill(&mut self) -> bool {
        let mut piece = [0; 16 << 10];
        let read = self.reader.read(&mut piece).await.unwrap_or(0);
        self.read.extend_from_slice(&piece[..read]);
        read > 0
    }
}

/// The value of a field in a head that is in lower case.
pub fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found == name).then(|| value.trim())
    })
}
