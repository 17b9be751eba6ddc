//! The executable. The library of this package contains the program.

use std::process::ExitCode;

/// Its settings are compiled in: `.cargo/config.toml` (docs/decisions/allocator.md).
#[cfg(target_env = "gnu")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    proscenium::main()
}
