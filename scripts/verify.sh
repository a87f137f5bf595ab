#!/usr/bin/env bash
# All checks and tests, each with its time, and one summary. Shell, because it must run before anything is built.
#   verify.sh check    formatting, lints, contracts, docs, spelling, migrations: no servers
#   verify.sh test     check, then every test on a real Postgres and a real Redis Cluster
set -uo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.tools/venv/bin:$PATH"
mode=${1:-test}
logs=.tools/logs
mkdir -p "$logs"
failed=()
started=$SECONDS

# What failed among a thousand tests: cargo's own words on each, and on what did not end as a test does.
why_tests_failed() {
  awk '/^failures:$/ { shown = !shown; next } /^test result:/ { shown = 0 }
    shown || /^test .* FAILED$/ || /^error(\[E|: test failed|: could not|: process)/ || /^ *process did/' "$logs/tests.log" | head -n 300
}

# Runs one step quietly; its output is shown only when it fails.
step() {
  local name=$1 begun=$SECONDS
  shift
  if "$@" >"$logs/$name.log" 2>&1; then
    printf '  ok      %-12s %4d s\n' "$name" $((SECONDS - begun))
  else
    printf '  FAILED  %-12s %4d s: %s\n' "$name" $((SECONDS - begun)) "$*"
    failed+=("$name")
    # The tests' reasons come last of all: they stand anywhere in a long log.
    [[ $name == tests ]] || tail -n 150 "$logs/$name.log"
  fi
}

docs() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked; }
migrations() { find migrations -name '*.sql' -print0 | xargs -0 squawk; }
# What the workspace has built is called by its path: asked for by its package alone it would be built anew, with fewer features.
built="${CARGO_TARGET_DIR:-target}/debug"
envoy_config() { "$built/examples/envoy" .tools/envoy gateway && envoy --mode validate -c .tools/envoy/envoy.yaml; }
scripts_parse() { bash -n scripts/*.sh .ci/run; }
# What was built is on disk before the first server starts: gigabytes on their way there make a server wait a minute for its own few.
tests() {
  cargo build --workspace --locked && cargo test --workspace --locked --no-run && sync &&
    "$built/teststack" -- cargo test --workspace --locked --no-fail-fast -- --show-output
}

echo "checks"
step format cargo fmt --all --check
step scripts scripts_parse
step buf-lint buf lint
step buf-format buf format --diff --exit-code
step buf-breaking scripts/breaking.sh
step spelling typos
step migrations migrations
step clippy cargo clippy --workspace --all-targets --locked -- -D warnings
step docs docs

passed_tests=0 failed_tests=0
if [[ $mode == test ]]; then
  echo "tests"
  step tests tests
  step envoy envoy_config
  read -r passed_tests failed_tests < <(awk '/^test result:/ { p += $4; f += $6 } END { print p + 0, f + 0 }' "$logs/tests.log")
  grep -E '^[0-9]+ of [0-9]+ methods have no behaviour yet' "$logs/tests.log" | sed 's/^/  /; s/:$//'
fi

echo
echo "$((SECONDS - started)) s; logs in $logs"
if ((${#failed[@]})); then
  [[ " ${failed[*]} " != *" tests "* ]] || why_tests_failed
  echo "failed: ${failed[*]}"
fi
if [[ $mode == test ]]; then
  echo "$passed_tests passed, $failed_tests failed"
fi
((${#failed[@]} == 0))
