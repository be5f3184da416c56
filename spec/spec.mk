# Targets that install, check, show and measure. Each of demo, test, bench and lint installs what it
# needs.

JOBS := $(shell nproc)

.PHONY: deps
deps:
	spec/deps build static images demo test bench lint

.PHONY: demo
demo:
	spec/deps build demo
	$(MAKE) -s --no-print-directory -j$(JOBS) all
	spec/demo.sh

.PHONY: test
test:
	spec/deps build static images test
	$(MAKE) -s --no-print-directory -j$(JOBS) all unit fuzz $(STATIC)/SHA256SUMS $(STATIC)/image
	$(MAKE) -s --no-print-directory -j$(JOBS) SANITIZE=address,undefined all unit
	$(MAKE) -s --no-print-directory -j$(JOBS) SANITIZE=thread build/thread/ncrun unit
	spec/run

# BENCH= ROUNDS= SIZE= SHARDS= FILES= DISK= are parameters of spec/bench/run.lua.
.PHONY: bench
bench:
	spec/deps build static bench
	$(MAKE) -s --no-print-directory -j$(JOBS) all $(STATIC)/ncrun
	build/ncrun spec/bench/run.lua

.PHONY: fuzz-run
fuzz-run: fuzz
	spec/run fuzz

C_FILES     := $(sort $(wildcard runtime/*.[ch] runtime/*/*.[ch] static/*.c spec/*/*.[ch]))
SHELL_FILES := .ci/run spec/deps spec/run spec/demo.sh spec/fixtures/make-acoustic spec/fixtures/kubectl \
               $(wildcard spec/rigs/* runtime/*.sh) spec/static/inside \
               $(filter-out %.c %.mk,$(wildcard static/*))
LUA_FILES   := $(wildcard lua recipes manifests spec) spec/fixtures/make-checkpoint

.PHONY: format
format:
	clang-format -i $(C_FILES)

# Each tool reports, whatever the others found.
LINTS := lint-format lint-shell lint-lua lint-cppcheck lint-tidy
.PHONY: lint $(LINTS)
lint:
	spec/deps build lint
	$(MAKE) -s --no-print-directory compile_commands.json
	$(MAKE) --no-print-directory -k -j$(JOBS) -Otarget $(LINTS)

lint-format:
	clang-format --dry-run -Werror $(C_FILES)

lint-shell:
	shellcheck -x $(SHELL_FILES)

lint-lua:
	luacheck -q --no-color $(LUA_FILES)

lint-cppcheck:
	cppcheck -q --std=c11 --enable=warning,performance,portability --inline-suppr \
	    --suppress=arrayIndexOutOfBoundsCond --suppress=readdirCalled --error-exitcode=1 --library=posix \
	    -D_GNU_SOURCE -Iruntime -Ispec/unit $(filter %.c,$(C_FILES))

lint-tidy:
	printf '%s\n' $(filter runtime/% spec/server/%,$(filter %.c,$(C_FILES))) | \
	    xargs -P$(JOBS) -n3 clang-tidy --quiet 2> >(grep -v ' generated\.$$')
