#!/usr/bin/env bash
# Fails on breaking changes of the contracts. Compares the working tree with the last commit, and each of the last 30
# commits that touched the contracts with its parent. An agreed break has a line in its commit message:
# `Breaking-Contract: <why, and what callers do>`.
set -euo pipefail
cd "$(dirname "$0")/.."
commits_max=30

git rev-parse --verify --quiet HEAD >/dev/null || { echo "no commit yet: nothing to compare with"; exit 0; }

has_contracts() { git cat-file -e "$1:buf.yaml" 2>/dev/null; }

# The contracts of a commit as a folder: buf itself would clone the repository for each comparison, which takes seconds.
trees=$(mktemp -d)
trap 'rm -rf "$trees"' EXIT
contracts_of() {
  if [[ ! -d $trees/$1 ]]; then
    mkdir "$trees/$1"
    git archive "$1" -- buf.yaml '*.proto' | tar -x -C "$trees/$1"
  fi
  echo "$trees/$1"
}

if has_contracts HEAD; then
  echo "working tree against HEAD"
  buf breaking --against "$(contracts_of "$(git rev-parse HEAD)")"
fi

for commit in $(git log --max-count="$commits_max" --no-merges --format=%H -- proto); do
  parent=$(git rev-parse --verify --quiet "$commit^" || true)
  # The first commit and the last one of a shallow clone have no parent to compare with.
  [[ -n $parent ]] && has_contracts "$parent" || continue
  if git show --no-patch --format=%B "$commit" | grep -q '^Breaking-Contract: '; then
    echo "$(git log -1 --format='%h %s' "$commit"): agreed break"
    continue
  fi
  echo "$(git log -1 --format='%h %s' "$commit")"
  buf breaking "$(contracts_of "$commit")" --against "$(contracts_of "$parent")"
done
