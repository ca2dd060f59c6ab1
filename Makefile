# make demo       the whole flow on real data, into demo/
# make test       lint, types, tests, doctests, README and examples
# make test-slow  the tests marked slow
# make test-browser  the tests of pages, in Chromium
# make bench      speed and memory, side by side, into build/bench/
# make lint       ruff and pyright
# make docs       the pages, into build/docs/
# make clean      removes what make made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PYTEST_FLAGS ?= -n auto --dist worksteal

MATHJAX := docs/_static/mathjax

.PHONY: demo test test-slow test-browser bench lint docs clean
.DELETE_ON_ERROR:

demo: $(VENV)/demo.stamp
	$(BIN)/demur demo --out demo --force

test: lint
	$(BIN)/demur warm
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

test-slow: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -m slow $(PYTEST_FLAGS)

test-browser: $(VENV)/dev.stamp
	DEMUR_BROWSER=required $(BIN)/python -m pytest -m browser $(PYTEST_FLAGS)

bench: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks.run --out build/bench
	$(BIN)/python -m benchmarks.last_layer --out build/bench
	$(BIN)/python -m benchmarks.laplace --out build/bench
	$(BIN)/python -m benchmarks.credal

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

docs: $(VENV)/docs.stamp $(MATHJAX)/tex-mml-chtml.js
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

clean:
	rm -rf $(VENV) build dist demo $(MATHJAX) .pytest_cache .ruff_cache .hypothesis
	find src tests examples docs -name __pycache__ -type d -prune -exec rm -rf {} +

# One environment, stamped per set of packages: an install runs again only when what it reads changes.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e ".[report,tables,torch]"
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e ".[dev]"
	@touch $@

$(VENV)/docs.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e ".[docs]"
	@touch $@

# MathJax travels with the pages: one script and its fonts, nothing fetched by the reader.
$(MATHJAX)/tex-mml-chtml.js:
	@command -v npm >/dev/null || { echo "make docs takes MathJax from npm, and npm is not installed: install Node.js first" >&2; exit 1; }
	rm -rf build/mathjax
	mkdir -p build/mathjax
	cd build/mathjax && npm pack --silent mathjax@3
	tar -xzf build/mathjax/mathjax-3.*.tgz -C build/mathjax
	rm -rf $(MATHJAX)
	mkdir -p $(MATHJAX)/output/chtml/fonts
	cp -R build/mathjax/package/es5/output/chtml/fonts/woff-v2 $(MATHJAX)/output/chtml/fonts/
	cp build/mathjax/package/LICENSE $(MATHJAX)/
	cp build/mathjax/package/es5/tex-mml-chtml.js $(MATHJAX)/
