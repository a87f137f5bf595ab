# Thin: logic lives in scripts/ (before anything is built), in cli/, dev/ and tests/. `onsale` runs `onsale-dev` for up, down and bench (ADR 0021).
.PHONY: help setup up buy down test check fmt bench

# The mesh runs as a debug build: from a fresh clone it is built in half the time, and `make test` uses the same one.
# For speed: make up PROFILE=release
PROFILE ?= dev
TARGET = $(or $(CARGO_TARGET_DIR),target)
BINARIES = $(TARGET)/$(patsubst dev,debug,$(PROFILE))

help: ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## install what this machine lacks
	@scripts/setup.sh

up: setup ## the whole mesh on this machine, until Ctrl-C: make up ARGS=--fresh
	@cargo build --workspace --locked --profile $(PROFILE)
	@exec $(BINARIES)/onsale up $(ARGS)

buy: ## two tickets from it, from another terminal: make buy ARGS='--customers 100'
	@exec $(BINARIES)/onsale buy $(ARGS)

down: ## stop it, from another terminal
	@onsale=$(firstword $(wildcard $(BINARIES)/onsale $(TARGET)/*/onsale)); \
	if [ -n "$$onsale" ]; then exec "$$onsale" down; else echo "nothing is built, so nothing runs"; fi

test: setup ## all that CI runs: checks, then every test on real servers
	@scripts/verify.sh test

check: setup ## formatting, lints, contracts, docs, spelling, migrations
	@scripts/verify.sh check

fmt: setup ## put code and contracts in form
	@cargo fmt --all
	@.tools/venv/bin/buf format --write

bench: setup ## measure: make bench NAME=join ARGS=--json
	@cargo build --quiet --release --locked -p onsale -p onsale-dev -p onsale-queue -p onsale-inventory -p onsale-claim
	@exec $(TARGET)/release/onsale bench $(or $(NAME),empty) $(ARGS)
