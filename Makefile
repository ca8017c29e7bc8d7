# The same targets on a laptop and in CI. A clean clone needs Python 3.11 or newer and make; the rest is installed into .venv.

PYTHON ?= python3
SEEDS ?= 200
MINUTES ?= 60
ARGS ?=
CLUSTER ?= 1
SPARK_ARGS ?= $(filter --quick --list,$(ARGS))

export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Let Python cache bytecode whatever the shell says: start-up time is a promise.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup setup-test run test quick lint check audit format bench sim chaos attacks fuzz siege docs wheels spark-versions clean

help:
	@echo "make run      set up, then run the demo: brokers, Spark, three groups on a topic (DEMO_SECONDS=60 ends it,"
	@echo "              CLUSTER=3 runs it on three brokers and a real ZooKeeper)"
	@echo "make test     set up with the test components, then check format, lint and types, and run the whole suite"
	@echo "make quick    run the tests that need no JVM, browser or other toolchain: under two minutes"
	@echo "make check    format, lint, types, audit, tidy rules; prints the largest files and functions"
	@echo "make audit    find insecure code (bandit) and packages with known vulnerabilities (pip-audit, if its database is reachable)"
	@echo "make format   format every file and apply lint fixes"
	@echo "make sim      simulate SEEDS=$(SEEDS) clusters, then run the seeded and property tests with as many seeds each"
	@echo "make chaos    MINUTES=$(MINUTES) of faults in a real cluster: brokers killed, paused, cut off, ZooKeeper restarted"
	@echo "make attacks  test the Spark sink's exactly-once: checkpoints restored, copied and truncated while processes are killed"
	@echo "make fuzz     send hostile bytes to every API, with SEEDS=$(SEEDS) seeds"
	@echo "make siege    run hostile clients of every kind for MINUTES=$(MINUTES) next to a normal one, and measure the cost to that one"
	@echo "make bench    compare Ottla with Apache Kafka on this machine, then our Spark source with Spark's own connector"
	@echo "              (ARGS=... and SPARK_ARGS=... to choose rows)"
	@echo "make docs     regenerate the generated pages"
	@echo "make spark-versions   test the Spark source and sink on every supported version of PySpark"
	@echo "make wheels   build the sdist and the Linux wheels into dist/, check and try them; needs Rust"

setup:
	@$(PYTHON) scripts/setup.py run

setup-test:
	@$(PYTHON) scripts/setup.py test

run: setup
	@CLUSTER=$(CLUSTER) python -m ottla.demo

# Three workers for two cores: tests spend half their time waiting for session timeouts, broker starts and browsers.
test: lint
	@python tests/components.py
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
