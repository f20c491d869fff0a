# Each target runs the script of the same name in scripts/, which can also be run directly.
.DEFAULT_GOAL := help
.PHONY: help build test test-all test-matrix model storm fuzz soak sanitize kill-anywhere demo demo-restore demo-keeper examples gtk gtk-test bench docs site-test lint format rules structure api-check clean

help: ## list the targets
	@echo 'make TARGET, where TARGET is one of'
	@sed -n 's/^\([a-z-]*\): ## \(.*\)/  \1	\2/p' $(MAKEFILE_LIST) | expand -t 18

build: ## build the package (debug)
	@scripts/build

test: ## build with warnings as errors; unit tests, simulator, real BlueZ: 15 minutes the first time
	@scripts/test $(ARGS)

test-all: ## everything there is: other kernels and toolchains, sanitizers, long random runs: hours
	@scripts/test --all

test-matrix: ## every scenario of the virtual machine on several versions of BlueZ and Linux: about an hour
	@scripts/test-matrix

storm: ## two minutes of randomized fault injection in the simulator (scripts/storm --seconds N --seed N --rig --suite NAME)
	@scripts/storm

model: ## 10,000 random sequences of calls and events against a model of the contract (scripts/model --sequences N --seed N)
	@scripts/model

fuzz: ## a minute of fuzzing everything that reads external input (scripts/fuzz --inputs N --seed N TARGET)
	@scripts/fuzz

soak: ## a simulated gateway for a week of compressed time (scripts/soak --days N --seed N)
	@scripts/soak

sanitize: ## the unit tests under Thread Sanitizer and Address Sanitizer (scripts/sanitize thread | address --filter SUITE)
	@scripts/sanitize

kill-anywhere: ## kill an app at every system call, restart it, and check what it preserved
	@scripts/kill-anywhere

demo: ## show a heart-rate sensor: a real one if there is an adapter, otherwise a simulated one
	@trap : INT; scripts/demo || [ $$? -eq 130 ] # Ctrl-C is how it ends, and no error

demo-restore: ## kill the demo while measurements arrive, restart it, and check that it resumes
	@scripts/demo-restore

demo-keeper: ## kill the demo again and again; a keeper starts it again, and no measurement is missing
	@scripts/demo-keeper

examples: ## build the programs in Examples, and test each of them in the simulator
	@scripts/examples

gtk: ## build and run a GTK app that shows a heart-rate sensor, simulated if there is no adapter
	@scripts/gtk

gtk-test: ## run the GTK app without a display, kill it, and take screenshots
	@scripts/gtk-test

bench: ## measure the release build
	@scripts/bench

docs: ## build the web site, with guides and API, into .build/docs (scripts/docs --pages: without the API, in seconds)
	@scripts/docs

site-test: ## look at the web site in Chromium: width, contrast, requests, looks; light and dark, phone and desk
	@scripts/site-test

lint: ## check style and doc comments; changes nothing
	@scripts/lint

format: ## format the Swift sources
	@scripts/format

rules: ## show which rules of the contract have tests
	@scripts/rules

structure: ## measure how the library's types, functions and folders depend on each other
	@scripts/structure

api-check: ## compare the public API with Docs/api (scripts/api-check --update --since TAG)
	@scripts/api-check

clean: ## remove all build products
	@scripts/clean
