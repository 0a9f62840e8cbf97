# SPDX-License-Identifier: Apache-2.0
# The front door; CMake does the building. `make help` lists the targets.

BUILD  ?= build
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)

# Ninja where there is one. A build folder keeps the generator it began with.
generator = $(if $(wildcard $(1)/CMakeCache.txt),,$(if $(shell command -v ninja),-G Ninja))
configure = cmake --preset $(1) -B $(2) $(call generator,$(2)) -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(CONFIGURE)
compile   = cmake --build $(1) --parallel $(JOBS)
product   = --target ringattn_product
counted   = --target ringattn_perf

# Programs that run one kernel on one thread: TSan has nothing to see there, and takes minutes each.
no_threads = ^unit/(kernel|terms|thin|numbers)

.PHONY: all demo test sanitize races check perf perf-baseline peers install format clean help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

all: ## build the library and the command (the default)
	@tools/install-deps build
	@$(call configure,default,$(BUILD))
	@$(call compile,$(BUILD)) $(product)

demo: ## build the command alone, and show what it does
	@tools/install-deps build
	@$(call configure,default,$(BUILD))
	@$(call compile,$(BUILD)) --target ringattn
	@$(BUILD)/ringattn demo

test: ## build everything and run the tests; a few minutes at most
	@tools/install-deps test
	@$(call configure,default,$(BUILD))
	@$(call compile,$(BUILD))
	@tools/run-tests test $(BUILD) -j $(JOBS) -LE '^long$$' --timeout 300

sanitize: ## the unit tests under ASan and UBSan
	@tools/install-deps test
	@$(call configure,asan,$(BUILD)-asan)
	@$(call compile,$(BUILD)-asan) --target tests_unit
	@tools/run-tests 'unit tests under asan and ubsan' $(BUILD)-asan -j $(JOBS) -L '^unit$$' -LE '^long$$' --timeout 600

races: ## the kernels for GPUs, emulated, searched for races
	@tools/install-deps test
	@$(call configure,races,$(BUILD)-races)
	@$(call compile,$(BUILD)-races) --target tests_cuda
	@tools/run-tests 'races on the emulated GPU' $(BUILD)-races -j $(JOBS) -L '^cuda$$' --timeout 1800

check: ## longer grids, then the tests by clang, under ASan, UBSan and TSan, GPU races, and fuzzing
	@tools/install-deps check
	@$(call configure,default,$(BUILD))
	@$(call compile,$(BUILD))
	@RINGATTN_LONG=1 tools/run-tests 'long grids' $(BUILD) -j $(JOBS) --timeout 1800
	@$(call configure,clang,$(BUILD)-clang)
	@$(call compile,$(BUILD)-clang)
	@tools/run-tests clang $(BUILD)-clang -j $(JOBS) -L '^(unit|ring|bits|abi|examples)$$' --timeout 300
	@$(call configure,asan,$(BUILD)-asan)
	@$(call compile,$(BUILD)-asan)
	@tools/run-tests 'asan and ubsan' $(BUILD)-asan -j $(JOBS) -LE '^long$$' --timeout 900
	@$(call configure,tsan,$(BUILD)-tsan)
	@$(call compile,$(BUILD)-tsan)
	@tools/run-tests 'tsan' $(BUILD)-tsan -j $(JOBS) -LE '^long$$' -E '$(no_threads)' --timeout 900
	@$(MAKE) races
	@$(call configure,fuzz,$(BUILD)-fuzz)
	@$(call compile,$(BUILD)-fuzz) --target tests_fuzz
	@tools/run-tests fuzz $(BUILD)-fuzz -L '^fuzz$$'
	@cat $(BUILD)/tests.summary $(BUILD)-clang/tests.summary $(BUILD)-asan/tests.summary $(BUILD)-tsan/tests.summary $(BUILD)-races/tests.summary $(BUILD)-fuzz/tests.summary

perf: ## instruction counts against the baseline; a minute at most
	@tools/install-deps perf
	@$(call configure,default,$(BUILD))
	@$(call compile,$(BUILD)) $(counted)
	@bench/perf/run.sh $(BUILD)

perf-baseline: ## counts again, and makes these the baseline
	@tools/install-deps perf
	@$(call configure,default,$(BUILD))
	@$(call compile,$(BUILD)) $(counted)
	@bench/perf/run.sh --renew $(BUILD)

peers: ## build what bench/peers/compare times; tools/install-deps peers brings the rivals
	@tools/install-deps build
	@$(call configure,default,$(BUILD))
	@$(call compile,$(BUILD)) --target peers

install: ## build, and install below PREFIX; DESTDIR is respected
	@tools/install-deps --check build
	@$(call configure,default,$(BUILD))
	@$(call compile,$(BUILD)) $(product)
	@cmake --install $(BUILD)

format: ## clang-format all C sources
	@tools/install-deps format
	@find include src harness cli bench tests examples -name '*.[ch]' 2>/dev/null | xargs clang-format -i

clean: ## remove the build folders
	@rm -rf $(BUILD) $(BUILD)-debug $(BUILD)-clang $(BUILD)-asan $(BUILD)-tsan $(BUILD)-fuzz

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 22
	@echo "Variables: BUILD=$(BUILD) PREFIX=$(PREFIX) JOBS=$(JOBS) CONFIGURE=(flags for cmake)"
