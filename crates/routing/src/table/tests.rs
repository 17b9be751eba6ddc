//! Which route a request gets: every row of the built-in table for every kind of client, and configured routes on top.

mod builtin;
mod classes;
mod conditions;
mod decisions;
mod legacy;
mod problems;
mod support;
