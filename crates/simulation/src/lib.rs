//! A simulated Puppet estate, which shows the effect of `balancing` and of other balancers.
//!
//! [`world::simulate`] runs a [`Scenario`](scenario::Scenario) against a [`Balancer`](balancer::Balancer) in virtual
//! time. [`proscenium::Proscenium`] is the code that the proxy runs; [`haproxy::Haproxy`] behaves as HAProxy does with
//! the settings in `bench/simulate`. With the same seed, agents and compilers behave the same in every column.

pub mod balancer;
pub mod column;
pub mod compiler;
pub mod fleet;
pub mod goals;
pub mod haproxy;
pub mod outcome;
pub mod proscenium;
pub mod random;
pub mod report;
pub mod rolling;
pub mod scenario;
pub mod several;
pub mod time;
pub mod world;
