# Two commands: `make demo` shows the product at work on simulated GPUs, `make test` passes every test.
# Both set up what they need in .venv; nothing else on the machine is changed, except that `make test` installs
# Debian's chromium, nats-server, postgresql, iproute2 and faketime with apt when it runs as root and they are not there.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
PYTEST_ARGS ?=
SAY := @printf '\n\033[1m== %s\033[0m\n'
# What the front end is built of: its sources, the help pages that it shows, the translations that the hub's page takes.
FRONT_END := $(shell find labextension/src labextension/style labextension/schema labextension/scripts docs/users \
	jupyter_gpushare/locale -type f 2>/dev/null) $(wildcard docs/images/help-*.png) labextension/package.json

export JUPYTER_PLATFORM_DIRS := 1
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint types unit front-end browser images pictures wheel texts clean help

help:
	@echo 'make demo   JupyterLab on simulated GPUs with a guided notebook (ARGS="--check --no-browser": run it to the end and report;'
	@echo '            "--hub": a JupyterHub of three GPU servers)'
	@echo 'make test   every test: style, types, Python, TypeScript, wheel, browser'
	@echo 'make texts  brings the catalogues of translations up to date with the sources'
	@echo 'make images the pictures that the browser tests compare with, drawn anew; make pictures those of the README'
	@echo 'make clean  remove .venv and everything built'

demo: $(VENV)/installed-$(if $(findstring --hub,$(ARGS)),test,demo)
	$(SAY) 'Demo: simulated GPUs'
	@$(if $(findstring --hub,$(ARGS)),sh scripts/need-nats; sh scripts/need-proxy $(VENV))
	@$(BIN)/jupyter gpushare demo $(ARGS)

test: $(VENV)/installed-test lint types unit front-end wheel browser
	$(SAY) 'Every test passed'

lint: $(VENV)/installed-test
	$(SAY) '1/6 Style: ruff'
	@$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: $(VENV)/installed-test
	$(SAY) '2/6 Types: mypy --strict on the core and the model'
	@$(BIN)/mypy

unit: $(VENV)/installed-test
	$(SAY) '3/6 Python tests'
	@sh scripts/need-nats
	@sh scripts/need-proxy $(VENV)
	@sh scripts/need-bed
	@$(BIN)/pytest -q -n 2 --dist loadfile -m 'not browser and not wheel and not alone' $(PYTEST_ARGS)
	@$(BIN)/pytest -q -m alone $(PYTEST_ARGS)

front-end: $(VENV)/installed-test
	$(SAY) '4/6 TypeScript: eslint, prettier, stylelint, the types of the API, jest'
	@cd labextension && jlpm lint:check && jlpm api:check && jlpm test

wheel: $(VENV)/installed-test
	$(SAY) '5/6 The wheel: built, inspected, installed without Node.js'
	@$(BIN)/pytest -q -m wheel tests

browser: $(VENV)/beside
	$(SAY) '6/6 Browser: the whole story in a real Chromium (pictures in artifacts/)'
	@sh scripts/need-chromium
	@$(BIN)/pytest -q -m browser tests $(PYTEST_ARGS)

images: $(VENV)/installed-test
	$(SAY) 'What people see, drawn anew into tests/browser/images: look at each before it is committed'
	@sh scripts/need-chromium
	@RENEW_IMAGES=1 $(BIN)/pytest -q -m browser tests/browser/test_images.py

pictures: $(VENV)/installed-test
	$(SAY) 'The README'"'"'s pictures: docs/images/story.png and docs/images/panel-*.png'
	@sh scripts/need-chromium
	@$(BIN)/python scripts/pictures.py

# The front end is built once per change of its sources; pip's build hook would reuse a stale bundle.
jupyter_gpushare/labextension/package.json: $(FRONT_END) labextension/yarn.lock | $(VENV)/tools
	$(SAY) 'Building the JupyterLab extension (a minute the first time)'
	@cd labextension && { jlpm install >../$(VENV)/jlpm.log 2>&1 || { cat ../$(VENV)/jlpm.log; exit 1; }; } && jlpm build:prod
	@touch $@

$(VENV)/tools:
	@sh scripts/need-tools '$(PYTHON)'
	$(SAY) 'Creating .venv'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -q 'hatchling>=1.27' editables 'jupyter-builder>=1.3,<2' 'hatch-jupyter-builder>=0.9'
	@touch $@

# Built in isolation: a dependency that comes as source only (gpustat) brings what it is built with.
$(VENV)/installed-demo: pyproject.toml jupyter_gpushare/labextension/package.json | $(VENV)/tools
	$(SAY) 'Installing jupyter-gpushare and JupyterLab into .venv'
	@$(BIN)/pip install -q -e '.[demo]'
	@$(BIN)/jupyter-builder develop --overwrite . >/dev/null
	@touch $@

$(VENV)/installed-test: pyproject.toml $(VENV)/installed-demo
	$(SAY) 'Installing the tools of the tests into .venv'
	@$(BIN)/pip install -q -e '.[demo,test,dev]'
	@$(BIN)/jupyter-builder develop --overwrite . >/dev/null
	@touch $@

# The extensions of others that some tests run beside ours, in a folder that nothing else looks into.
$(VENV)/beside: tests/browser/beside.txt | $(VENV)/installed-test
	$(SAY) 'Installing extensions of others for the tests beside them'
	@rm -rf $@
	@$(BIN)/pip install -q --prefix $@ -r $<
	@touch $@

texts: $(VENV)/installed-test
	@PYTHONPATH=. $(BIN)/python scripts/texts.py

# Known vulnerabilities of what is installed; an advisory service that does not answer is said, and fails nothing.
audit: $(VENV)/installed-test
	$(SAY) 'Known vulnerabilities of the installed packages'
	@$(BIN)/python scripts/audit.py

.PHONY: audit

clean:
	rm -rf $(VENV) artifacts labextension/node_modules labextension/lib jupyter_gpushare/labextension \
		jupyter_gpushare/hub/page/built dist build
