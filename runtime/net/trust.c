#include "net/trust.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One store that was asked for; they are never freed. */
struct known {
    char *file; /* NULL: the default */
    X509_STORE *store;
    struct known *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct known *known;
static const char *offered;
static size_t offered_len;

/* Where distributions have their bundle: Debian, Alpine; Fedora, RHEL; SUSE; BSD, distroless. */
static const char *const system_bundles[] = {
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
};

void trust_offer(const char *pem, size_t len)
{
    offered = pem;
    offered_len = len;
}

static const char *named(const char *variable)
{
    const char *path = getenv(variable);
    return path && *path && access(path, R_OK) == 0 ? path : NULL;
}

/* How many certificates were added from PEM text, whatever else is in it. */
static int add_pem(X509_STORE *store, BIO *text)
{
    int n = 0;
    X509 *certificate;
    while (text && (certificate = PEM_read_bio_X509_AUX(text, NULL, NULL, NULL))) {
        n += X509_STORE_add_cert(store, certificate);
        X509_free(certificate);
    }
    BIO_free(text);
    ERR_clear_error(); /* reading ends with "no start line" */
    return n;
}

static bool add_file(X509_STORE *store, const char *file)
{
    return add_pem(store, BIO_new_file(file, "r")) > 0;
}

static bool add_system(X509_STORE *store)
{
    for (size_t i = 0; i < sizeof system_bundles / sizeof system_bundles[0]; i++) {
        if (add_file(store, system_bundles[i]))
            return true;
    }
    return false;
}

static bool add_offered(X509_STORE *store)
{
    return offered && add_pem(store, BIO_new_mem_buf(offered, (int)offered_len)) > 0;
}

static int fill(X509_STORE *store, const char *file, struct nc_err *err)
{
    const char *folder = NULL;
    if (!file && !(file = named("SSL_CERT_FILE")) && !(file = named("CURL_CA_BUNDLE")))
        folder = named("SSL_CERT_DIR");
    if (file)
        return add_file(store, file)
                   ? 0
                   : nc_err_set(err, "TlsFailed",
                                "no certificate can be read from the CA bundle %s: set "
                                "AWS_CA_BUNDLE or SSL_CERT_FILE to one in PEM form",
                                file);
    if (folder ? X509_STORE_load_path(store, folder) : add_system(store) || add_offered(store))
        return 0;
    return nc_err_set(err, "TlsFailed",
                      "there are no CA certificates on this machine: install its ca-certificates, or "
                      "set SSL_CERT_FILE to a bundle in PEM form");
}

static struct known *load(const char *file, struct nc_err *err)
{
    struct known *k = calloc(1, sizeof *k);
    if (!k || !(k->store = X509_STORE_new()) || (file && !(k->file = strdup(file)))) {
        nc_err_set(err, "ENOMEM", "reading CA certificates: out of memory");
    } else if (!fill(k->store, file, err)) {
        /* A server's own certificate in a bundle is trusted, as libcurl has it. */
        X509_STORE_set_flags(k->store, X509_V_FLAG_PARTIAL_CHAIN);
        return k;
    }
    if (k) {
        X509_STORE_free(k->store);
        free(k->file);
        free(k);
    }
    return NULL;
}

X509_STORE *trust_store(const char *file, struct nc_err *err)
{
    pthread_mutex_lock(&lock);
    struct known *k = known;
    while (k && (file && k->file ? strcmp(file, k->file) != 0 : file != k->file))
        k = k->next;
    if (!k && (k = load(file, err))) {
        k->next = known;
        known = k;
    }
    pthread_mutex_unlock(&lock);
    return k ? k->store : NULL;
}
