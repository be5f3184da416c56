#include "net/trust.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* Debian, Alpine; Fedora, RHEL; the same, newer; SUSE; Alpine, distroless. */
static const char *const system_bundles[] = {
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static X509_STORE *store; /* kept until the process ends */
static const char *offered;
static size_t offered_len;

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

/* Adds the certificates of PEM text, whatever else is in it. Takes ownership of text; NULL is none.
 */
static bool add_pem(X509_STORE *to, BIO *text)
{
    int n = 0;
    X509 *certificate;
    while (text && (certificate = PEM_read_bio_X509_AUX(text, NULL, NULL, NULL))) {
        n += X509_STORE_add_cert(to, certificate);
        X509_free(certificate);
    }
    BIO_free(text);
    ERR_clear_error(); /* reading ends with "no start line" */
    return n > 0;
}

static bool add_system(X509_STORE *to)
{
    for (size_t i = 0; i < sizeof system_bundles / sizeof system_bundles[0]; i++) {
        if (add_pem(to, BIO_new_file(system_bundles[i], "r")))
            return true;
    }
    return offered && add_pem(to, BIO_new_mem_buf(offered, (int)offered_len));
}

static int fill(X509_STORE *to, struct nc_err *err)
{
    const char *file = named("SSL_CERT_FILE");
    if (!file)
        file = named("CURL_CA_BUNDLE");
    if (file && !add_pem(to, BIO_new_file(file, "r")))
        return nc_err_set(err, "TlsFailed",
                          "%s holds no CA certificate: set SSL_CERT_FILE to a bundle in PEM form",
                          file);
    const char *folder = file ? NULL : named("SSL_CERT_DIR");
    if (file || (folder && X509_STORE_load_path(to, folder)) || (!folder && add_system(to)))
        return 0;
    return nc_err_set(
        err, "TlsFailed",
        "there are no CA certificates here: install the image's ca-certificates, or set "
        "SSL_CERT_FILE to a bundle in PEM form");
}

X509_STORE *trust_store(struct nc_err *err)
{
    pthread_mutex_lock(&lock);
    if (!store) {
        X509_STORE *new = X509_STORE_new();
        if (!new) {
            nc_err_set(err, "ENOMEM", "reading CA certificates: out of memory");
        } else if (fill(new, err)) {
            X509_STORE_free(new);
        } else {
            store = new;
        }
    }
    X509_STORE *found = store;
    pthread_mutex_unlock(&lock);
    return found;
}
