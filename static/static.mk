# build/static/ncrun: the same program as one file that needs nothing of the image it runs in.
#
# make static          build/static/ncrun, checked, with SHA256SUMS beside it
# make image           build/static/image, an OCI layout with just that file
# make static-twice    all of it once more in another folder: the same bytes
#
# The libraries are Debian's own static archives, but for two that are built from Debian's source
# packages: its libcurl.a wants archives that Debian does not have (Kerberos, LDAP), and its libxml2.a
# brings 30 MB of ICU. glibc it is, not musl, whose malloc is slow where many threads use it.

STATIC      := build/static
STATIC_LIBS := -lcurl -lxml2 -lcares -lssl -lcrypto -llua5.4 -ljansson -lyaml -larchive -lzstd -lz -lm -pthread
STATIC_PKGS := ca-certificates libarchive-dev libc6-dev libc-ares-dev libssl-dev liblua5.4-dev libjansson-dev libyaml-dev \
               libxxhash-dev libzstd-dev zlib1g-dev

STATIC_OPT     := -O2 $(HARDEN) -fstack-clash-protection -ffunction-sections -fdata-sections
STATIC_CFLAGS   = -std=c11 -D_GNU_SOURCE $(STATIC_OPT) $(WARN) -Iruntime \
                  -isystem $(STATIC)/usr/include -isystem $(STATIC)/usr/include/libxml2 \
                  -DNC_VERSION=\"$(VERSION)\" -DCURL_STATICLIB -DCARES_STATICLIB \
                  $(call pkg,cflags,lua5.4 jansson) -pthread
STATIC_LDFLAGS := -static-pie -Wl,--gc-sections,-z,relro,-z,now,-z,noexecstack,--build-id,--fatal-warnings \
                  -Wl,--wrap=ares_init_options -L$(STATIC)/usr/lib

# ---- libraries ----

# Both are told not to make their build systems anew: patches have touched them, and the tools for it
# are not here.
CONFIGURE := --quiet --prefix=/usr --disable-shared --enable-static --disable-dependency-tracking \
             CFLAGS='$(STATIC_OPT)' ACLOCAL=: AUTOCONF=: AUTOHEADER=: AUTOMAKE=:

# http and https over IPv4 and IPv6, as runtime/net uses them; no file is read that is not named.
CURL := --with-openssl --enable-ares \
        --without-brotli --without-gssapi --without-libidn2 --without-libpsl --without-librtmp \
        --without-libssh --without-libssh2 --without-nghttp2 --without-zlib --without-zstd \
        --without-ca-bundle --without-ca-path --disable-openssl-auto-load-config \
        --disable-alt-svc --disable-cookies --disable-doh --disable-hsts --disable-netrc \
        --disable-ntlm --disable-tls-srp --disable-unix-sockets --disable-manual \
        $(addprefix --disable-,dict file ftp gopher imap ldap ldaps mqtt pop3 rtsp smb smtp telnet tftp)

XML := --with-minimum --with-threads --with-tree --without-lzma --without-python --without-zlib

# $(call configured,FOLDER,OPTIONS,COMMANDS): what they say is shown when one fails.
define configured
	cd $(STATIC)/source/$(1)-*/ && \
	    { ./configure $(CONFIGURE) $(2) && $(3); } >../$(1).log 2>&1 || \
	    { tail -n 40 ../$(1).log >&2; exit 1; }
endef
INSTALLED := DESTDIR='$(abspath $(STATIC))'

$(STATIC)/source/unpacked: static/sources
	@mkdir -p $(STATIC)
	static/sources $(@D) curl libxml2 >$(STATIC)/sources.log 2>&1 || \
	    { tail -n 40 $(STATIC)/sources.log >&2; exit 1; }
	touch $@

$(STATIC)/usr/lib/libcurl.a: $(STATIC)/source/unpacked static/static.mk
	+$(call configured,curl,$(CURL),$(MAKE) -C include install $(INSTALLED) && \
	    $(MAKE) -C lib install $(INSTALLED))

$(STATIC)/usr/lib/libxml2.a: $(STATIC)/source/unpacked static/static.mk
	+$(call configured,libxml2,$(XML),$(MAKE) -C include install $(INSTALLED) && \
	    $(MAKE) install-libLTLIBRARIES $(INSTALLED))

STATIC_BUILT := $(STATIC)/usr/lib/libcurl.a $(STATIC)/usr/lib/libxml2.a

# ---- ncrun ----

STATIC_OBJ := $(patsubst %.c,$(STATIC)/obj/%.o,runtime/main.c $(SRC) $(wildcard static/*.c))

$(STATIC)/obj/%.o: %.c Makefile static/static.mk $(STATIC_BUILT)
	@mkdir -p $(@D)
	$(CC) $(STATIC_CFLAGS) -MMD -MP -c -o $@ $<

$(STATIC)/ca-certificates: static/ca-bundle
	@mkdir -p $(@D)
	static/ca-bundle >$@

$(STATIC)/linked: $(STATIC)/source/unpacked static/linked static/static.mk
	static/linked $(STATIC)/source $(STATIC_PKGS) >$@

$(STATIC)/embed.S: $(EMBED) $(STATIC)/ca-certificates $(STATIC)/linked runtime/embed.sh
	runtime/embed.sh $(EMBED) $(STATIC)/ca-certificates $(STATIC)/linked >$@

$(STATIC)/obj/embed.o: $(STATIC)/embed.S
	@mkdir -p $(@D)
	$(CC) -c -o $@ $<

$(STATIC)/ncrun.symbols: $(STATIC_OBJ) $(STATIC)/obj/embed.o
	$(CC) $(STATIC_LDFLAGS) -o $@ $^ $(STATIC_LIBS)

$(STATIC)/ncrun: $(STATIC)/ncrun.symbols static/check
	static/check $<
	strip -o $@ $<

$(STATIC)/SHA256SUMS: $(STATIC)/ncrun
	cd $(@D) && sha256sum ncrun >$(@F)

$(STATIC)/image: $(STATIC)/ncrun static/image
	static/image $< $@ $(VERSION)

.PHONY: static image static-twice
static:
	spec/deps build static
	$(MAKE) -s --no-print-directory -j$(JOBS) $(STATIC)/SHA256SUMS

image: static
	$(MAKE) -s --no-print-directory $(STATIC)/image

static-twice: static
	static/twice

-include $(STATIC_OBJ:.o=.d)
