# Two commands do everything on Linux with Python >= 3.11, git, make and a C++ compiler:
#   make nightly   measure tonight's duels and publish the dashboard
#   make test      run the whole test suite
UV := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
export UV_COMPILE_BYTECODE = 1

.PHONY: nightly test test-postgresql lint mutants audit docs size sync

nightly: sync
	.venv/bin/deadheat nightly --profile laptop

test: sync lint
	.venv/bin/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

# The tests of the store again, on a PostgreSQL of the system's package. Some leave connections to
# the garbage collector, which psycopg warns about.
test-postgresql: sync
	.venv/bin/python -m pytest --engine postgresql \
	    -W ignore::pytest.PytestUnraisableExceptionWarning tests/benchcore/store

lint: sync
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/pyright
	.venv/bin/lint-imports

# Breaks every guard of the table of pitfalls, one after the other: its tests must fail.
mutants: sync
	.venv/bin/python tests/mutants.py

# Known vulnerabilities of the lock's packages, by osv.dev.
audit: sync
	.venv/bin/python tests/audit.py

# The manual as HTML, dist/docs/index.html; a warning is an error.
docs: sync
	.venv/bin/sphinx-build --quiet --fail-on-warning --keep-going docs dist/docs

# Lines of Python per package.
size:
	@for package in benchcore/* flows tasks dashboards data_checks deployments benchmarks tests; do \
	    git ls-files "$$package" | grep '\.py$$' | xargs --no-run-if-empty cat | wc --lines | \
	        xargs printf '%7d  %s\n' | sed "s|$$|$$package|"; \
	done | sort --numeric-sort --reverse

# Our own environment uses a Python that is here. A night may fetch one for the newest JAX.
sync: export UV_PYTHON_DOWNLOADS = never
sync: $(filter .tools/%,$(UV))
	$(UV) sync --quiet --locked

# No uv on this machine: take it from the package registry.
.tools/bin/uv:
	python3 -m venv .tools
	.tools/bin/python -m pip install --quiet --disable-pip-version-check uv
