//! Large bodies pass through the proxy without being held in memory.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use testkit::Reply;

use crate::support::{Estate, connection, exchanges::one_compiler, http1_alone, paths::FILE};

/// Number of concurrent transfers, and the size of each. The benchmark covers the size that the issue asks for.
const TRANSFERS: usize = 8;
const TRANSFER_BYTES: u64 = 24 << 20;
/// Memory growth allowed for one transfer.
const GROWTH_KIB_MAX: u64 = 2048;
/// A reader reads this much, then pauses.
const PIECE_BYTES: usize = 64 << 10;
const REST: Duration = Duration::from_millis(2);

#[track_caller]
fn assert_grows_little(estate: &Estate, transfer: impl Fn(&Barrier) + Send + Sync + 'static) {
    let barrier = Arc::new(Barrier::new(TRANSFERS));
    let transfer = Arc::new(transfer);
    // Memory for handshakes and first requests is not part of a transfer.
    assert_eq!(connection(estate).get(FILE).status, 200);
    let before = estate.proxy.memory_peak_kib();
    let running: Vec<_> = (0..TRANSFERS)
        .map(|_| {
            let (barrier, transfer) = (Arc::clone(&barrier), Arc::clone(&transfer));
            thread::spawn(move || transfer(&barrier))
        })
        .collect();
    for transfer in running {
        transfer.join().expect("a whole transfer");
    }
    let growth = estate.proxy.memory_growth_kib(before);
    assert!(
        growth < GROWTH_KIB_MAX * TRANSFERS as u64,
        "{growth} KiB for {TRANSFERS} transfers"
    );
}

/// Reads a piece at a time, with pauses; returns the number of bytes.
fn read_slowly(mut read: impl FnMut(&mut [u8]) -> usize) -> u64 {
    let mut piece = vec![0; PIECE_BYTES];
    let mut total = 0;
    loop {
        let n = read(&mut piece);
        if n == 0 {
            return total;
        }
        total += n as u64;
        thread::sleep(REST);
    }
}

#[test]
fn large_responses_to_slow_readers_use_little_memory() {
    http1_alone!("slow readers of bytes; of streams see http2.rs");
    let estate = one_compiler().one_agent_for_many().start();
    estate.compilers[0].answer(|request| {
        request
            .target
            .ends_with("large")
            .then(|| Reply::stream(TRANSFER_BYTES))
    });
    let client = estate.agent("web01").receive_buffer(PIECE_BYTES);
    assert_grows_little(&estate, move |together| {
        let mut connection = client.connect().expect("connects");
        let fields = [("Connection", "close")];
        connection
            .send("GET", "/puppet/v3/file_content/large", &fields, b"")
            .expect("sends");
        assert_eq!(connection.read_head().expect("a head").status, 200);
        together.wait();
        let total = read_slowly(|piece| connection.read_some(piece).unwrap_or(0));
        // The first bytes may have arrived with the head.
        assert!(total > TRANSFER_BYTES - (64 << 10), "{total}");
    });
}

#[test]
fn large_bodies_to_a_slow_member_use_little_memory() {
    let slow = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let tables = format!(
        "[pools.slow]\nscheme = \"http\"\nmembers = [\"{}\"]\ncheck = {{ type = \"none\" }}\n\
         [[routes]]\nname = \"slow\"\npath = {{ prefix = \"/slow\" }}\npool = \"slow\"",
        slow.local_addr().expect("bound")
    );
    thread::spawn(move || {
        for socket in slow.incoming().flatten() {
            thread::spawn(move || take_slowly(socket));
        }
    });
    let estate = one_compiler().with(&tables).start();
    let client = estate.agent("web01");
    assert_grows_little(&estate, move |together| {
        let mut connection = client.connect().expect("connects");
        together.wait();
        let head = connection.head("PUT", "/slow", &[], Some(TRANSFER_BYTES as usize));
        connection.send_raw(&head).expect("sends");
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..TRANSFER_BYTES >> 20 {
            connection.send_raw(&piece).expect("sends");
        }
        assert_eq!(
            connection.read_response().expect("an answer").text(),
            TRANSFER_BYTES.to_string()
        );
    });
}

/// A member that reads a body slowly and returns its length.
fn take_slowly(mut socket: TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && socket.read(&mut byte).is_ok_and(|n| n == 1) {
        head.push(byte[0]);
    }
    let mut left = TRANSFER_BYTES as usize;
    let total = read_slowly(|piece| {
        let most = piece.len().min(left);
        let n = if most == 0 {
            0
        } else {
            socket.read(&mut piece[..most]).unwrap_or(0)
        };
        left -= n;
        n
    })
    .to_string();
    let _ = write!(
        socket,
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{total}",
        total.len()
    );
}
