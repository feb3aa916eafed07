# `make demo` shows the main job on real parts; `make test` runs everything. Both set up what they need.
.PHONY: setup demo check test nightly newest fuzz mutants lint types bench soak lock hosts states locked attacks fields documents clean help
.DEFAULT_GOAL := help

PY := .venv/bin/python

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile

setup: ## install what is missing and make .venv; quick when all is there
	@scripts/setup-system
	@scripts/setup-venv

demo: setup ## lend a project with a failing test to a second daemon, which repairs it
	@$(PY) examples/demo.py

check: setup ## for the edit loop: style, layers, types, and the tests that start no program
	@scripts/check $(ARGS)

test: setup hosts ## run all tests, real mounts included, and check that nothing is left behind
	@scripts/test $(ARGS)

nightly: setup hosts ## run all tests as an ordinary user and on each Python that is here; takes hours, and root
	@scripts/nightly

newest: setup ## test what leans on private parts of libraries with the newest versions that are allowed
	@scripts/test-newest $(ARGS)

fuzz: setup ## feed every decoder with anything; ARGS="--seconds 600 TARGET" for longer
	@PYTHONPATH=tests $(PY) -m fuzz.run $(ARGS)

mutants: setup ## change what decides and see that a test notices; ARGS="--told" for what is known, "--all" to try every change, which takes hours
	@PYTHONPATH=tests $(PY) -m mutants.run $(ARGS)

hosts:
	@scripts/setup-browser
	@scripts/setup-hosts
	@scripts/setup-clients

lint: setup ## check style and the layers
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check --quiet .
	@.venv/bin/lint-imports >/dev/null || .venv/bin/lint-imports

types: setup ## check types
	@.venv/bin/mypy --no-error-summary

bench: setup ## measure what docs/benchmarks.md claims
	@for file in delegation sftp transports relay policy messaging offices; do $(PY) "benchmarks/$$file.py" || exit 1; done

soak: setup ## break links, kill at every journal write, run many leases and rooms: what docs/reliability.md claims; takes hours
	@$(PY) benchmarks/links.py --markdown
	@$(PY) benchmarks/crashes.py --markdown
	@$(PY) benchmarks/trees.py --markdown
	@$(PY) benchmarks/soak.py --markdown
	@$(PY) benchmarks/hostile.py --markdown
	@$(PY) benchmarks/convergence.py --results --markdown
	@$(PY) benchmarks/convergence.py --processes --results --markdown

lock: setup ## choose the versions of requirements.lock anew
	@scripts/lock

states: setup ## draw the state tables in docs/design.md
	@$(PY) scripts/draw-states

locked: setup ## draw the table of names that are locked in docs/what-is-lent.md
	@$(PY) scripts/draw-locked

attacks: setup ## draw the table of attacks in docs/reliability.md
	@$(PY) scripts/draw-attacks

fields: setup ## drop each field that is accepted from outside, and see that its test turns red; ARGS="NAME" for some
	@PYTHONPATH=tests $(PY) -m fields.run $(ARGS)

documents: setup ## draw docs/control-api.md and docs/openapi.json from the operations
	@$(PY) scripts/draw-documents

clean: ## remove what setup and the tools made
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
