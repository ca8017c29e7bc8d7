# The same names on a laptop and in CI. A clean clone needs Python 3.11 or newer and make; the rest is fetched into .venv.

PYTHON ?= python3
SEEDS ?= 200
MINUTES ?= 60
ARGS ?=
CLUSTER ?= 1
SPARK_ARGS ?= $(filter --quick --list,$(ARGS))

export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Start-up time is a promise: let Python keep what it compiled, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup setup-test run test quick lint check audit format bench sim chaos attacks fuzz siege docs wheels spark-versions clean

help:
	@echo "make run      set up, then the demo: brokers, Spark, three groups on a topic (DEMO_SECONDS=60 ends it,"
	@echo "              CLUSTER=3 runs it on three brokers and a real ZooKeeper)"
	@echo "make test     set up with the test components, then format, lint, types and the whole suite"
	@echo "make quick    the tests that need no JVM, browser or other toolchain: under two minutes"
	@echo "make check    format, lint, types, audit, tidy rules; prints the largest files and functions"
	@echo "make audit    insecure code (bandit), and packages with known holes (pip-audit, where its database can be reached)"
	@echo "make format   put every file into shape"
	@echo "make sim      SEEDS=$(SEEDS) simulated clusters, then the seeded and property suites with as many worlds each"
	@echo "make chaos    MINUTES=$(MINUTES) of chaos in a real cluster: brokers killed, paused, cut off, ZooKeeper restarted"
	@echo "make attacks  the Spark sink's exactly once: checkpoints restored, copied and cut while everything is killed"
	@echo "make fuzz     hostile bytes at every API, SEEDS=$(SEEDS) times"
	@echo "make siege    MINUTES=$(MINUTES) of hostile clients of every kind beside a good one, and what that costs the good one"
	@echo "make bench    Ottla and Apache Kafka side by side on this machine, then our Spark source and Spark's own connector"
	@echo "              (ARGS=... and SPARK_ARGS=... to choose rows)"
	@echo "make docs     write the generated pages anew"
	@echo "make spark-versions   the Spark source and sink on every version of PySpark that is promised"
	@echo "make wheels   the sdist and the wheels for Linux into dist/, checked and tried; needs Rust"

setup:
	@$(PYTHON) scripts/setup.py run

setup-test:
	@$(PYTHON) scripts/setup.py test

run: setup
	@CLUSTER=$(CLUSTER) python -m ottla.demo

# Three workers for two cores: tests wait for sessions to expire, for brokers to start and for browsers as long as they work.
test: lint
	@python -m pytest -n 3 --dist loadgroup $(ARGS)

quick: setup-test
	@python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder --quick $(ARGS)

lint: setup-test
	ruff format --check .
	ruff check .
	mypy --strict

check: lint audit
	@python -m pytest -s tests/test_tidy.py

audit: setup-test
	@python scripts/audit.py

format: setup-test
	ruff format .
	ruff check --fix .

sim: setup-test
	@python -m ottla.sim --seeds $(SEEDS)
	@SEEDS=$(SEEDS) python -m pytest -n 2 --dist loadgroup -m "seeded or hypothesis" $(ARGS)

chaos: setup-test
	@cd tests && python -m cluster_faults.chaos --minutes $(MINUTES) $(ARGS)

attacks: setup-test
	@python tests/spark/attacks.py $(ARGS)

fuzz: setup-test
	@SEEDS=$(SEEDS) python -m pytest -n 2 --dist loadgroup tests/fuzz $(ARGS)

siege: setup-test
	@cd tests && python -m fuzz.hostile.siege --minutes $(MINUTES) $(ARGS)

bench: setup-test
	@python bench/run.py $(ARGS)
	@python bench/spark.py $(SPARK_ARGS)

docs: setup-test
	@python scripts/docs.py

wheels: setup
	@python scripts/wheels.py

spark-versions: setup
	@python scripts/spark_versions.py $(ARGS)

clean:
	rm -rf .venv build dist native/target src/ottla/_native.abi3.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
