//! The figures of Proscenium and of several peers, and which of the peers is the best.

use super::{overload::NewConnections, table::median};

/// The result of one measurement of a proxy.
#[derive(Clone, Copy)]
pub(super) struct Cost {
    /// The compared figure. Less is better.
    pub(super) figure: f64,
    /// New connections during the measurement, in rows that require a number of them.
    pub(super) new_connections: Option<NewConnections>,
}

impl From<f64> for Cost {
    fn from(figure: f64) -> Self {
        Self {
            figure,
            new_connections: None,
        }
    }
}

/// The costs of one proxy in the rounds of a row.
pub(super) struct Costs {
    pub(super) name: String,
    pub(super) rounds: Vec<Cost>,
}

impl Costs {
    pub(super) fn median(&self) -> f64 {
        median(&self.figures())
    }

    /// The distance from the smallest to the largest figure, as a share of the median.
    pub(super) fn spread(&self) -> f64 {
        let (least, most) = self.limits();
        (most - least) / self.median()
    }

    /// The median, with the minimum and maximum if there are several figures.
    pub(super) fn range(&self) -> String {
        let middle = self.median();
        let decimals = if middle < 1_000.0 { 2 } else { 0 };
        let (least, most) = self.limits();
        match self.rounds.len() {
            1 => format!("{middle:.decimals$}"),
            _ => format!("{middle:.decimals$} ({least:.decimals$}–{most:.decimals$})"),
        }
    }

    fn limits(&self) -> (f64, f64) {
        let figures = self.figures().into_iter();
        figures.fold((f64::INFINITY, 0.0), |(least, most), figure| {
            (least.min(figure), most.max(figure))
        })
    }

    fn figures(&self) -> Vec<f64> {
        self.rounds.iter().map(|cost| cost.figure).collect()
    }
}

/// The peer with the smallest median.
pub(super) fn best(peers: &[Costs]) -> Option<&Costs> {
    peers
        .iter()
        .min_by(|one, other| one.median().total_cmp(&other.median()))
}

/// If the spread of the best peer is greater, a ratio of times has little meaning.
pub(super) const SPREAD_MAX: f64 = 0.10;

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(name: &str, figures: &[f64]) -> Costs {
        Costs {
            name: name.to_owned(),
            rounds: figures.iter().map(|figure| Cost::from(*figure)).collect(),
        }
    }

    #[test]
    fn the_best_peer_has_the_smallest_median_not_the_smallest_figure() {
        let peers = [
            costs("lucky", &[15.0, 21.0, 22.0]),
            costs("best", &[18.0, 20.0, 30.0]),
            costs("slow", &[29.0, 29.0, 29.0]),
        ];
        assert_eq!(best(&peers).expect("a peer").name, "best");
        assert_eq!(best(&peers[2..]).expect("a peer").name, "slow");
        assert!(best(&[]).is_none());
    }

    #[test]
    fn the_spread_is_a_share_of_the_median() {
        for (figures, spread) in [
            (&[19.0, 18.9, 31.7, 22.2, 18.9][..], 12.8 / 19.0),
            (&[20.0, 19.0, 21.0], 0.1),
            (&[5.0], 0.0),
        ] {
            let found = costs("peer", figures).spread();
            assert!((found - spread).abs() < 1e-9, "{figures:?}: {found}");
        }
    }

    #[test]
    fn a_range_has_the_median_first() {
        assert_eq!(costs("peer", &[1.0, 3.0, 2.0]).range(), "2.00 (1.00–3.00)");
        assert_eq!(costs("peer", &[2_548.4]).range(), "2548");
    }
}
