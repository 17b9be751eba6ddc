//! Names of the pools that the built-in routes send requests to.

/// The CA server; required while the built-in routes are on.
pub const CA: &str = "ca";
/// The compilers; required while the built-in routes are on.
pub const COMPILERS: &str = "compilers";
/// The members that store filebucket files; without this pool the compilers do.
pub const FILEBUCKET: &str = "filebucket";
/// All of them.
pub const ALL: [&str; 3] = [CA, COMPILERS, FILEBUCKET];
