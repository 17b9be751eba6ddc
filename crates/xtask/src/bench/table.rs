//! What is printed in the end.

use super::peers::Peer;

/// Medians of all rounds, and how many of theirs one of ours costs: the first peer is ours.
pub(super) fn print(what: &str, unit: &str, peers: &[Peer], costs: &[Vec<f64>]) {
    let ours = median(&costs[0]);
    println!("\n{what:<28} {unit:>14} {:>14}", "ours : theirs");
    for (peer, costs) in peers.iter().zip(costs) {
        let cost = median(costs);
        println!("{:<28} {cost:>14.2} {:>14.2}", peer.name(), ours / cost);
    }
}

/// The middle one.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
