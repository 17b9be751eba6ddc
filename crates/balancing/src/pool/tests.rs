//! Table tests of picks, and seeded simulations of a pool under load.

mod algorithms;
mod availability;
mod backups;
mod ejections;
mod hashing;
mod jrubies;
mod moves;
mod reload;
mod returning;
mod simulations;
mod slow_start;
mod sums;
mod support;
