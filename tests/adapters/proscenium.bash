# Finds the built binary. Sourced by the adapters.

# The binary named by PROSCENIUM, or else the newer of the release and debug builds of this tree.
proscenium_binary() {
  local root target
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
  target=${CARGO_TARGET_DIR:-$root/target}
  if [ -n "${PROSCENIUM:-}" ]; then echo "$PROSCENIUM"; return; fi
  # shellcheck disable=SC2012
  ls -t "$target/release/proscenium" "$target/debug/proscenium" 2>/dev/null | head -n 1 | grep . ||
    { echo "no proscenium binary in $target: cargo build, or set PROSCENIUM" >&2; return 1; }
}
