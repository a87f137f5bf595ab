#!/usr/bin/env bash
# Runs all checks and tests, prints the time of each step and a summary. Shell, because it must work before the first build.
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

# Prints the output of failed tests, and the compiler or process errors that ended the run.
why_tests_failed() {
  awk '/^failures:$/ { shown = !shown; next } /^test result:/ { shown = 0 }
    shown || /^test .* FAILED$/ || /^error(\[E|: test failed|: could not|: process)/ || /^ *process did/' "$logs/tests.log" | head -n 300
}

# Prints the ten slowest test binaries with their seconds. Cargo runs the binaries one after another, those of a crate
# together and its unit tests first, and prints `Running` or `Doc-tests` before each binary and `finished in` after it.
slowest_binaries() {
  awk '/^ +Running .*\(.*\)$/ {
      name = $NF; gsub(/[()]/, "", name); sub(/.*\//, "", name); sub(/-[0-9a-f]+$/, "", name)
      if (/ unittests src\/(lib|main)\.rs /) { crate = name; name = name " (unit tests)" } else name = crate ": " name
    }
    /^ +Doc-tests / { name = $2 " (doc tests)" }
    /^test result:.* finished in / { seconds[name] += $NF }
    END { for (name in seconds) printf "%9.1f s  %s\n", seconds[name], name }' "$logs/tests.log" | sort -rn | head -n 10
}

# Runs one step without output; shows the end of its output if it fails.
step() {
  local name=$1 begun=$SECONDS
  shift
  if "$@" >"$logs/$name.log" 2>&1; then
    printf '  ok      %-12s %4d s\n' "$name" $((SECONDS - begun))
  else
    printf '  FAILED  %-12s %4d s: %s\n' "$name" $((SECONDS - begun)) "$*"
    failed+=("$name")
    # Reasons of failed tests are extracted at the end, because they may be anywhere in a long log.
    [[ $name == tests ]] || tail -n 150 "$logs/$name.log"
  fi
}

docs() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked; }
migrations() { find migrations -name '*.sql' -print0 | xargs -0 squawk; }
# Call the built binaries by path: `cargo run -p` would build them again with fewer features.
built="${CARGO_TARGET_DIR:-target}/debug"
envoy_config() { "$built/examples/envoy" .tools/envoy gateway && envoy --mode validate -c .tools/envoy/envoy.yaml; }
scripts_parse() { bash -n scripts/*.sh .ci/run; }
# Flush the build output to disk before the first server starts: otherwise the servers' own syncs wait up to a minute behind it.
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
  grep -E '^[0-9]+ of [0-9]+ methods are not implemented yet' "$logs/tests.log" | sed 's/^/  /; s/:$//'
  echo "slowest test binaries"
  slowest_binaries
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
