//! Hand-over: a new process takes the listening sockets of the one that serves, which then finishes its connections.
//!
//! The new process connects to a socket in the state directory, to which only the proxy's own account has access.
//! Sockets are passed as descriptors. Keys, session tickets and connections are not passed.
//!
//! | new process | serving process |
//! | --- | --- |
//! | [`Hello`](ToServing::Hello) | |
//! | | copies of its listening sockets ([`Sockets`](ToNew::Sockets)) |
//! | reads and prepares everything, then [`Prepared`](ToServing::Prepared) | |
//! | | stores its state, changes nothing more, unlocks the state directory, then [`Unlocked`](ToNew::Unlocked) |
//! | locks the directory, reads the state, accepts connections, then [`Serving`](ToServing::Serving) | |
//! | | its requests ([`Former`](ToNew::Former)), [`Draining`](ToNew::Draining), then the [`Agents`](ToNew::Agents) that it has seen, and its requests until it ends |
//! | whenever it opens its log files again, [`ReopenLogs`](ToServing::ReopenLogs) | opens its own again |
//!
//! If the new process fails before `Serving`, the other process continues to serve as before.

mod agents;
mod channel;
mod followed_state;
mod former;
mod giving;
mod launcher;
mod program;
mod successor;
mod taking;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use agents::PassedAgent;
pub(crate) use followed_state::follow_state;
use former::{FormerProcesses, FormerReport};
pub(crate) use giving::{HandOverState, accept_hand_overs, successor_runs};
pub use launcher::launch_successor;
pub(crate) use program::{ChangedProgram, RunningProgram};
pub use taking::TakeOverError;
pub(crate) use taking::{TakeOver, TakenSockets};

/// Name of the socket in the state directory.
const SOCKET: &str = "hand-over.sock";
/// The version of the messages. Processes of other versions refuse a hand-over.
const VERSION: u32 = 1;
/// Maximum number of descriptors in a message. The kernel allows 253.
const DESCRIPTORS_MAX: usize = 64;
/// Maximum size of a message in bytes.
const MESSAGE_BYTES_MAX: u32 = 1 << 20;
/// Maximum number of sockets that are passed.
const SOCKETS_MAX: usize = 16_384;
/// How long each side waits for an answer that needs no work.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long a new process may take to read and prepare everything, which includes large CRLs and names that DNS looks up.
const PREPARE_MAX: Duration = Duration::from_secs(180);
/// How long the serving process waits for running changes to end and for its state to be stored.
const STORE_MAX: Duration = Duration::from_secs(30);
/// How long changes by operators wait while the new process reads the state and starts to accept connections.
const START_MAX: Duration = Duration::from_secs(60);
/// How long the whole hand-over may take. A service manager must wait longer: see `TimeoutStartSec` of the unit file.
const HAND_OVER_MAX: Duration = Duration::from_secs(
    PREPARE_MAX.as_secs() + STORE_MAX.as_secs() + START_MAX.as_secs() + ANSWER_MAX.as_secs(),
);
/// Number of agents in one message.
const AGENTS_PER_MESSAGE: usize = 256;

/// What the new process sends.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ToServing {
    /// The first message.
    Hello { version: u32, build: String },
    /// Everything is prepared and can be committed.
    Prepared,
    /// It accepts connections.
    Serving,
    /// It ends, and why.
    Failed { why: String },
    /// After the hand-over: it has opened its log files again, because a rotation has renamed them.
    ReopenLogs,
}

/// What the serving process sends.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ToNew {
    /// Listening sockets, whose descriptors the message has in the same order.
    Sockets {
        sockets: Vec<PassedSocket>,
        /// Whether no more sockets follow.
        is_last: bool,
        /// The number of the active generation.
        generation: u64,
    },
    /// The state is stored and the state directory unlocked.
    Unlocked,
    /// It accepts no more connections and finishes its requests.
    Draining,
    /// Agents that it has seen.
    Agents(Vec<PassedAgent>),
    /// Its requests, whenever they have changed, until it ends.
    Former(FormerReport),
    /// There is no hand-over, and why.
    Refused { why: String },
}

/// A listening socket that is passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PassedSocket {
    /// A listener's socket, by its endpoint as configured.
    Listener(EndpointName),
    /// The admin socket, with its path.
    Admin(std::path::PathBuf),
    /// The metrics listener, with its address as configured.
    Metrics(std::net::SocketAddr),
}

/// An endpoint of a listener, in the form in which two processes compare it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct EndpointName {
    address: String,
    only_v6: bool,
    interface: Option<String>,
}

impl EndpointName {
    fn of(endpoint: &listener::ListenEndpoint) -> Self {
        Self {
            address: endpoint.address.to_string(),
            only_v6: endpoint.only_v6,
            interface: endpoint.interface.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_manager_waits_longer_than_a_hand_over_takes() {
        let unit = include_str!("../../../packaging/proscenium.service");
        let line = unit
            .lines()
            .find_map(|line| line.strip_prefix("TimeoutStartSec="));
        let seconds: u64 = line.expect("a line").parse().expect("seconds");
        assert!(seconds > HAND_OVER_MAX.as_secs(), "{seconds}");
    }
}
