# make demo    pack a real model and run it on the best device here
# make test    everything CI runs: the checks, then the tests on the built wheel
# make check   formatting, lint, types, import order, the package for browsers and its size (no device needed)
# make bench-web   measure in Chromium against onnxruntime-web
# make bench   measure against ONNX Runtime, CPU and WebGPU (ARGS="--quick --models ppocr-cls")
# make models  fetch the acceptance models into models/
# make site    put the demo site into the package, so that a wheel built afterwards carries it
# make pyodide fetch Python for the page into .cache/pyodide, with the wheel of this checkout
# make clean   remove what these made, except models/
#
# Needs python3 >= 3.11 and git; on Debian and Ubuntu the rest is installed by tools/system_packages.sh.

PYTHON ?= python3
VENV := .venv
DEMO := .venv-demo
MODEL := ppocr-cls
SIZES := x_2=48,x_3=192
ARGS :=
TESTS := tests
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' tang_edge/__init__.py)
WHEEL := dist/tang_edge-$(VERSION)-py3-none-any.whl
ACCEPTANCE := go2-policy reachy-fk reachy-fk-dynamic reachy-ik reachy-fk-int8 ppocr-cls ppocr-det ppocr-rec \
  ddddocr-det oww-melspec oww-embedding oww-jarvis
SOURCES := $(shell find tang_edge -type f -not -name '*.pyc') pyproject.toml README.md LICENSE
PIP := -m pip --disable-pip-version-check -q

# Vulkan drivers want a private folder; where a session manager gives none, one in the checkout does.
export XDG_RUNTIME_DIR ?= $(CURDIR)/.cache/xdg

.PHONY: demo site test check check-web bench bench-web models pyodide clean

$(VENV)/made $(DEMO)/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tang-edge needs Python 3.11 or later; set PYTHON=python3.x" >&2; exit 1; }
	PYTHON=$(PYTHON) tools/system_packages.sh venv cc vulkan
	mkdir -p -m 700 .cache/xdg
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	touch $@

$(WHEEL): $(SOURCES) $(VENV)/made
	$(VENV)/bin/python $(PIP) wheel --no-deps --wheel-dir dist .
	touch $@

# Third-party packages change with pyproject.toml only; our own wheel with every source.
$(VENV)/packages: pyproject.toml $(VENV)/made | $(WHEEL)
	$(VENV)/bin/python $(PIP) install "$(WHEEL)[dev]"
	touch $@

$(VENV)/ready: $(VENV)/packages $(WHEEL)
	$(VENV)/bin/python $(PIP) install --force-reinstall --no-deps $(WHEEL)
	touch $@

check: $(VENV)/ready
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ruff check
	$(VENV)/bin/mypy
	PYTHONSAFEPATH=1 $(VENV)/bin/pytest -q tests/test_import_order.py
	tools/system_packages.sh node npm
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory check-web; \
	  else echo "npm is missing: web/ and demos/ are not checked" >&2; fi

web/node_modules/.package-lock.json: web/package-lock.json
	cd web && npm ci --no-audit --no-fund
	touch $@

demos/node_modules/.package-lock.json: demos/package-lock.json
	cd demos && npm ci --no-audit --no-fund
	touch $@

# The demos take the package's types from its build.
check-web: web/node_modules/.package-lock.json demos/node_modules/.package-lock.json
	cd web && npm run check && npm test && npm run build
	cd demos && npm run check && npm test

# The fetching scripts go along with every wheel (pyproject.toml); pages and the compiler for the page are built here.
site: $(VENV)/made
	tools/system_packages.sh node npm
	$(MAKE) --no-print-directory web/node_modules/.package-lock.json demos/node_modules/.package-lock.json
	cd web && npm run build
	cd demos && npm run build -- --out ../tang_edge/site/shell
	$(VENV)/bin/python tools/build_page_wheel.py --dest tang_edge/site/page

models: $(VENV)/made
	tools/system_packages.sh npm
	$(VENV)/bin/python tools/fetch_models.py --dest models $(ACCEPTANCE)

# Python for the page: about 17 MB, out of packages of 120 MB, which are kept in the user's cache.
pyodide: .cache/pyodide/pyodide-lock.json

PAGE_WHEEL := dist/page/tang_edge-$(VERSION)-py3-none-any.whl

$(PAGE_WHEEL): $(SOURCES) tools/build_page_wheel.py tools/fetch_pyodide.py tools/archives.py $(VENV)/made
	tools/system_packages.sh npm
	$(VENV)/bin/python tools/build_page_wheel.py --dest $(@D)

.cache/pyodide/pyodide-lock.json: $(PAGE_WHEEL) tools/pyodide.toml
	$(VENV)/bin/python tools/fetch_pyodide.py --dest $(@D) --wheel $(PAGE_WHEEL)

# PYTHONSAFEPATH keeps the checkout off sys.path: what is tested is the installed wheel.
test: check models pyodide
	tools/system_packages.sh chromium firefox
	PYTHONSAFEPATH=1 $(VENV)/bin/pytest $(TESTS) $(ARGS)

bench: $(VENV)/ready models
	tools/system_packages.sh vulkan-headers
	mkdir -p benchmarks/out
	$(VENV)/bin/python -m benchmarks.run --json benchmarks/out/latest.json --plot benchmarks/out/latest.png $(ARGS)

bench-web: $(VENV)/ready models
	tools/system_packages.sh node npm chromium
	mkdir -p benchmarks/out
	$(VENV)/bin/python -m benchmarks.web --json benchmarks/out/web.json $(ARGS)

$(DEMO)/ready: $(DEMO)/made $(SOURCES)
	$(DEMO)/bin/python $(PIP) install --upgrade ".[compiler]"
	touch $@

demo: $(DEMO)/ready
	$(DEMO)/bin/python tools/fetch_models.py --dest models $(MODEL)
	$(DEMO)/bin/tang-edge pack models/$(MODEL).onnx -o .cache/$(MODEL).tang
	$(DEMO)/bin/tang-edge run .cache/$(MODEL).tang --dims $(SIZES)

clean:
	rm -rf $(VENV) $(DEMO) .peer-webgpu .cache build dist benchmarks/out web/dist web/build web/node_modules demos/dist demos/build \
	  demos/node_modules tang_edge/site .mypy_cache .ruff_cache .pytest_cache
