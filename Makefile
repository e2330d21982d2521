# `make train` and `make test` are all a fresh machine needs; both create the environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

METRICS_VENV := .venv-metrics
METRICS_STAMP := $(METRICS_VENV)/.installed
DOCS_VENV := .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.installed

.PHONY: help setup metrics train serve test test-image report experiment model model-de corpus docs lint clean

setup: $(STAMP)  ## the environment alone, .venv

$(STAMP): requirements.txt requirements-clients.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-clients.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(STAMP)

metrics: $(METRICS_STAMP)  ## COMET, BLEURT, SimulEval, OmniSTEval and an aligner, in an environment of their own

$(METRICS_STAMP): requirements-metrics.txt
	$(PYTHON) -m venv $(METRICS_VENV)
	$(METRICS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-metrics.txt
	touch $(METRICS_STAMP)

train: setup  ## train on the built-in corpus, then translate held-out sentences
	$(BIN)/python train.py trainer.devices=cores training.optimizer=muon training.learning_rate=6e-3 \
	  training.warmup_steps=70 training.lm_cells=visits data.batch_size=24 data.train_size=24000 $(ARGS)

serve: setup  ## the live server with the latest model: http://127.0.0.1:8000
	$(BIN)/python serve.py $(ARGS)

test: setup  ## the whole suite
	$(BIN)/python -m pytest $(ARGS)

test-image: setup  ## the steps of Dockerfile in a fresh Debian, as root, with debootstrap: minutes, 10 GB
	TEST_IMAGE=1 $(BIN)/python -m pytest -n 0 tests/deploy/test_image.py $(ARGS)

report: setup  ## one HTML file about FOLDER: a run, a model or an evaluation, or the latest run; ARGS="--results FOLDER"
	$(BIN)/python -m duplexmt.report $(FOLDER) $(ARGS)

WITH_PYTHON := PATH="$(CURDIR)/$(BIN):$$PATH"
experiment: setup  ## base → grid, wait-k, offline → results: SIZE=mini|small|medium DATA=folder of pairs, or those of data/; goes on where it was
	$(WITH_PYTHON) benchmarks/experiment.sh $(ARGS)

model-de: setup  ## the model in the box for German, models/de-en, likewise
	$(WITH_PYTHON) benchmarks/box_model.sh de-en $(ARGS)

model: setup  ## the model in the box, models/zh-en, again from data/: base → grid → packed → evaluated; goes on where it was
	$(WITH_PYTHON) benchmarks/box_model.sh zh-en $(ARGS)

ROOT ?= wmt21
corpus: setup  ## clean the raw files of WMT21 zh-en in ROOT and draw the paper's sample into ROOT/prepared-paper
	$(BIN)/python -m data_prep root=$(ROOT) $(ARGS)

docs: $(DOCS_STAMP)  ## the documents and docstrings as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --quiet $(ARGS)
	@echo site/index.html

$(DOCS_STAMP): requirements-docs.txt
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	touch $(DOCS_STAMP)

lint: setup  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:  ## remove the environments, the site and the tools' caches; runs stay
	rm -rf $(VENV) $(METRICS_VENV) $(DOCS_VENV) site .pytest_cache .ruff_cache .mypy_cache .hypothesis

help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | expand -t 14
