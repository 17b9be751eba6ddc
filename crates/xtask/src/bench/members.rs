//! The servers behind the proxies. They answer 403 to a request without an identity, so that the benchmark fails if a
//! proxy does not forward it.

use std::{io, net::SocketAddr, sync::LazyLock, thread};

use anyhow::Result;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime,
    task::JoinSet,
};

use super::requests::ANONYMOUS;

/// A CA, several compilers, and a server for connections that are passed through. They run on a separate thread until
/// the program ends.
pub(super) struct Members {
    pub(super) ca: SocketAddr,
    pub(super) compilers: Vec<SocketAddr>,
    pub(super) passthrough: SocketAddr,
}

impl Members {
    /// Starts a CA and two compilers.
    pub(super) fn start() -> Result<Self> {
        Self::with_compilers(2)
    }

    pub(super) fn with_compilers(count: usize) -> Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
        let listeners = (0..count + 2).map(|_| runtime.block_on(bind()));
        let listeners = listeners.collect::<Result<Vec<_>>>()?;
        let addresses = listeners.iter().map(TcpListener::local_addr);
        let mut addresses = addresses.collect::<io::Result<Vec<_>>>()?;
        let compilers = addresses.split_off(2);
        thread::spawn(move || {
            runtime.block_on(async {
                let mut serving = JoinSet::new();
                for listener in listeners {
                    serving.spawn(serve(listener));
                }
                serving.join_all().await
            })
        });
        Ok(Self {
            ca: addresses[0],
            compilers,
            passthrough: addresses[1],
        })
    }
}

async fn bind() -> Result<TcpListener> {
    Ok(TcpListener::bind("127.0.0.1:0").await?)
}

async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        tokio::spawn(answer(stream));
    }
}

/// Answers requests one after the other until the proxy closes the connection.
async fn answer(mut stream: TcpStream) {
    let mut buffer = Vec::with_capacity(HEAD_BYTES_MAX);
    loop {
        while let Some(end) = head_end(&buffer) {
            let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
            let answer = answer_to(&head);
            buffer.drain(..end);
            if skip(&mut stream, &mut buffer, body_length(&head))
                .await
                .is_err()
                || stream.write_all(answer).await.is_err()
            {
                return;
            }
        }
        if buffer.len() > HEAD_BYTES_MAX || !matches!(stream.read_buf(&mut buffer).await, Ok(1..)) {
            return;
        }
    }
}

/// Reads the body of a request. The buffer may already contain its beginning.
async fn skip(stream: &mut TcpStream, buffer: &mut Vec<u8>, length: usize) -> io::Result<()> {
    let mut left = length;
    loop {
        let here = left.min(buffer.len());
        buffer.drain(..here);
        left -= here;
        if left == 0 {
            return Ok(());
        }
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .map(|start| start + 4)
}

fn body_length(head: &str) -> usize {
    let mut lines = head.split("\r\n");
    let length = lines.find_map(|line| line.strip_prefix("content-length:"));
    length.map_or(0, |length| length.trim().parse().unwrap_or(0))
}

/// The response with a large file.
pub(super) static FILE: LazyLock<Vec<u8>> = LazyLock::new(|| large(FILE_BYTES));

/// The response to a request, by its head in lower case.
fn answer_to(head: &str) -> &'static [u8] {
    static CATALOG: LazyLock<Vec<u8>> = LazyLock::new(|| large(CATALOG_BYTES));
    let path = head.split(' ').nth(1).unwrap_or_default();
    if !is_identified(head, path) {
        REFUSED.as_bytes()
    } else if path.contains("/file_content/") {
        &FILE
    } else if path.contains("/catalog/") {
        &CATALOG
    } else {
        SMALL.as_bytes()
    }
}

/// Whether the proxy forwarded the client's identity, or stated that an anonymous client has no certificate.
fn is_identified(head: &str, path: &str) -> bool {
    let verified = "\r\nx-client-verify: success\r\n";
    if path.split('/').any(|segment| segment == ANONYMOUS) {
        head.contains("\r\nx-client-verify: none\r\n")
    } else {
        head.contains(verified) && head.contains("\r\nx-client-dn: ")
    }
}

fn large(length: usize) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nX-Puppet-Version: 8.0.0\r\nContent-Length: {length}\r\n\r\n"
    );
    let mut answer = head.into_bytes();
    answer.resize(answer.len() + length, b'x');
    answer
}

const SMALL: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Puppet-Version: 8.0.0\r\nContent-Length: 120\r\n\r\n\
    {\"path\":\"/etc/puppetlabs/code/modules/ntp/files/ntp.conf\",\"links\":\"manage\",\"owner\":0,\"group\":0,\"mode\":420,\"type\":\"file\"}";
const REFUSED: &str = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
const FILE_BYTES: usize = 10_000_000;
const CATALOG_BYTES: usize = 300 << 10;
const HEAD_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_refuse_a_request_without_an_identity() {
        let answer = |path: &str, headers: &str| {
            let head = format!("get {path} http/1.1\r\nhost: puppet\r\n{headers}\r\n");
            answer_to(&head).starts_with(b"HTTP/1.1 200")
        };
        let named = "x-client-verify: success\r\nx-client-dn: cn=web01\r\n";
        let unnamed = "x-client-verify: none\r\n";
        assert!(answer("/puppet/v3/catalog/web01", named));
        assert!(!answer("/puppet/v3/catalog/web01", unnamed));
        assert!(!answer("/puppet/v3/catalog/web01", ""));
        let anonymous = format!("/puppet/v3/file_metadata/{ANONYMOUS}/ntp.conf");
        assert!(answer(&anonymous, unnamed));
        assert!(!answer(&anonymous, ""));
    }
}
