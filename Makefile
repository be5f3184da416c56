# make                 build/ncrun
# make static          build/static/ncrun: one file that runs in any image
# make image           the same as an OCI image, in build/static/image
# make deps            install what the build and the tests need (Debian 12, root or sudo)
# make demo            stage a real model into the local server's bucket and show what is there
# make test            the whole suite, on the local server and on a real Ceph RGW
# make lint            clang-format, clang-tidy, cppcheck, luacheck
# make bench           ncrun beside its peers, as ratios  [BENCH=name]
# SANITIZE=address,undefined | thread                      instrumented builds, in build/<kind>/

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

VERSION  := 0.1.0
SANITIZE ?=
comma    := ,
BUILD    := build$(if $(SANITIZE),/$(subst $(comma),-,$(SANITIZE)))

PACKAGES := lua5.4 libcurl libssl libcrypto libxml-2.0 jansson yaml-0.1 libxxhash libarchive
pkg       = $(shell pkg-config --$(1) $(2) 2>/dev/null)

CC       ?= gcc
WARN     := -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes \
            -Wformat=2 -Wvla -Wundef
OPT      := $(if $(SANITIZE),-O1 -fno-omit-frame-pointer -fsanitize=$(SANITIZE),-O2)
HARDEN   := -fstack-protector-strong $(if $(SANITIZE),,-D_FORTIFY_SOURCE=2)
CFLAGS   ?= -g
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE $(OPT) $(HARDEN) $(WARN) $(CFLAGS) -Iruntime \
             -DNC_VERSION=\"$(VERSION)\" $(call pkg,cflags,$(PACKAGES)) -pthread
ALL_LDFLAGS = $(if $(SANITIZE),-fsanitize=$(SANITIZE)) -Wl,-z,relro,-z,now,--build-id -Wl,-E $(LDFLAGS)
LIBS      = $(call pkg,libs,$(PACKAGES)) -pthread -lm

SRC      := $(filter-out runtime/main.c,$(sort $(wildcard runtime/*/*.c)))
OBJ      := $(SRC:%.c=$(BUILD)/obj/%.o)
EMBED    := $(sort $(shell find lua manifests recipes -name '*.lua'))
UNIT     := $(patsubst spec/unit/%.c,$(BUILD)/unit/%,$(sort $(wildcard spec/unit/*_test.c)))
FUZZ     := $(patsubst spec/fuzz/%.c,build/fuzz/%,$(sort $(wildcard spec/fuzz/*_fuzz.c)))
SERVER   := $(sort $(wildcard spec/server/*.c))

.PHONY: all
all: $(BUILD)/ncrun $(BUILD)/ncdev compile_commands.json

$(BUILD)/ncrun: $(BUILD)/obj/runtime/main.o $(BUILD)/obj/embed.o $(BUILD)/libncrun.a
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/libncrun.a: $(OBJ)
	rm -f $@
	ar rcs $@ $^

$(BUILD)/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# Every Lua file as bytes inside the binary, with a table of name, start and end (base/embed.h).
$(BUILD)/embed.S: $(EMBED) runtime/embed.sh Makefile
	@mkdir -p $(@D)
	runtime/embed.sh $(EMBED) >$@

$(BUILD)/obj/embed.o: $(BUILD)/embed.S
	@mkdir -p $(@D)
	$(CC) -c -o $@ $<

# The local S3 + hub server of the specs.
$(BUILD)/ncdev: $(SERVER:%.c=$(BUILD)/obj/%.o) $(BUILD)/libncrun.a
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(call pkg,libs,libmicrohttpd) $(LIBS)

$(BUILD)/unit/%: spec/unit/%.c spec/unit/unit.h $(BUILD)/libncrun.a Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -Ispec/unit $(ALL_LDFLAGS) -o $@ $< $(BUILD)/libncrun.a $(LIBS)

.PHONY: unit
unit: $(UNIT)

# The sources once more, instrumented.
FUZZ_CC  := clang -std=c11 -D_GNU_SOURCE -O1 -g -Iruntime -DNC_VERSION=\"$(VERSION)\" -MMD -MP
FUZZ_OBJ := $(SRC:%.c=build/fuzz/obj/%.o)

build/fuzz/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(FUZZ_CC) -fsanitize=fuzzer-no-link,address,undefined $(call pkg,cflags,$(PACKAGES)) \
	    -c -o $@ $<

build/fuzz/%: spec/fuzz/%.c $(FUZZ_OBJ) $(BUILD)/obj/embed.o
	$(FUZZ_CC) -fsanitize=fuzzer,address,undefined $(call pkg,cflags,$(PACKAGES)) \
	    -o $@ $^ $(LIBS)

.PHONY: fuzz
fuzz: $(FUZZ)

# For editors and clang-tidy.
compile_commands.json: Makefile $(SRC) $(SERVER)
	@runtime/compile-commands.sh '$(subst ','\'',$(CC) $(strip $(ALL_CFLAGS)))' runtime/main.c $(SRC) $(SERVER) >$@

.PHONY: clean
clean:
	rm -rf build compile_commands.json

-include $(OBJ:.o=.d) $(FUZZ_OBJ:.o=.d) $(BUILD)/obj/runtime/main.d $(SERVER:%.c=$(BUILD)/obj/%.d)

# deps, demo, test, lint, fuzz-run
include spec/spec.mk
# static, image, static-twice
include static/static.mk
