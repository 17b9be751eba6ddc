//! Turns among members of a pool that are equally good.

use crate::{pool_entry::PoolEntry, pool_state::PoolState, rotation::Credit};

/// The source of turns. A pick takes turns from it; a rehearsal only reads them.
pub(crate) enum Turns<'a> {
    Shared(&'a PoolState),
    Rehearsed(&'a mut Rehearsal),
}

/// The turns that picks would take next.
pub(crate) struct Rehearsal {
    draw: u64,
    tie: u64,
    pub(crate) credits: Box<[Credit]>,
}

impl Rehearsal {
    pub(crate) fn new(state: &PoolState, entries: &[PoolEntry]) -> Self {
        let _wheel = state.wheel.lock();
        let copy = |entry: &PoolEntry| {
            let credit = Credit::default();
            credit.set(entry.member.credit.get());
            credit
        };
        Self {
            draw: state.draws.peek(),
            tie: state.ties.peek(),
            credits: entries.iter().map(copy).collect(),
        }
    }
}

impl Turns<'_> {
    /// The next turn among idle members.
    pub(crate) fn draw(&mut self) -> u64 {
        match self {
            Self::Shared(state) => state.draws.next(),
            Self::Rehearsed(rehearsal) => next(&mut rehearsal.draw),
        }
    }

    /// The next turn among members with equal cost.
    pub(crate) fn break_tie(&mut self) -> u64 {
        match self {
            Self::Shared(state) => state.ties.next(),
            Self::Rehearsed(rehearsal) => next(&mut rehearsal.tie),
        }
    }
}

fn next(turn: &mut u64) -> u64 {
    *turn = turn.wrapping_add(1);
    turn.wrapping_sub(1)
}
