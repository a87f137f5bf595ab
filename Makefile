# Thin: logic lives in scripts/ (before anything is built), in cli/ and in tests/.
.PHONY: help setup test check fmt bench clients

help: ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## install what this machine lacks
	@scripts/setup.sh

test: setup ## all that CI runs: checks, then every test on real servers
	@scripts/verify.sh test

check: setup ## formatting, lints, contracts, docs, spelling, migrations
	@scripts/verify.sh check

fmt: setup ## put code and contracts in form
	@cargo fmt --all
	@.tools/venv/bin/buf format --write

bench: setup ## measure: make bench NAME=empty
	@cargo run --quiet --release --locked -p onsale -- bench $(or $(NAME),empty)
