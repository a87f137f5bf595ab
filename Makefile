# Thin: logic lives in scripts/ (before anything is built), in cli/, dev/ and tests/. `onsale` runs `onsale-dev` for up, down and bench (ADR 0021).
.PHONY: help setup up buy down test check fmt bench

# The mesh runs as a debug build: from a fresh clone it builds in half the time, and `make test` reuses it.
# For a fast mesh: make up PROFILE=release
PROFILE ?= dev
TARGET = $(or $(CARGO_TARGET_DIR),target)
BINARIES = $(TARGET)/$(patsubst dev,debug,$(PROFILE))

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## install missing packages and tools
	@scripts/setup.sh

up: setup ## run the whole mesh on this machine until Ctrl-C: make up ARGS=--fresh
	@cargo build --workspace --locked --profile $(PROFILE)
	@exec $(BINARIES)/onsale up $(ARGS)

buy: ## buy two tickets from the running mesh, in another terminal: make buy ARGS='--customers 100'
	@exec $(BINARIES)/onsale buy $(ARGS)

down: ## stop the mesh, from another terminal
	@onsale=$(firstword $(wildcard $(BINARIES)/onsale $(TARGET)/*/onsale)); \
	if [ -n "$$onsale" ]; then exec "$$onsale" down; else echo "no binary is built, so no mesh is running"; fi

test: setup ## run all checks and tests, as CI does
	@scripts/verify.sh test

check: setup ## check formatting, lints, contracts, docs, spelling and migrations
	@scripts/verify.sh check

fmt: setup ## format code and contracts
	@cargo fmt --all
	@.tools/venv/bin/buf format --write

bench: setup ## measure: make bench NAME=join ARGS=--json
	@cargo build --quiet --release --locked -p onsale -p onsale-dev -p onsale-queue -p onsale-inventory -p onsale-claim
	@exec $(TARGET)/release/onsale bench $(or $(NAME),empty) $(ARGS)
