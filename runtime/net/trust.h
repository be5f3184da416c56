/* Whose signature a TLS server's certificate needs where nobody names a bundle: a store of root
 * certificates. Reading one takes longer than a handshake, so it is read once in the life of the
 * process, when first needed, and all connections share it. Any thread. */
#ifndef NC_NET_TRUST_H
#define NC_NET_TRUST_H

#include "base/err.h"

#include <openssl/x509.h>
#include <stddef.h>

/* A PEM bundle for machines that have none: borrowed, for ever. Before the first connection. */
void trust_offer(const char *pem, size_t len);

/* The certificates of the first of these that is there: the file of SSL_CERT_FILE, of
 * CURL_CA_BUNDLE, the folder of SSL_CERT_DIR, the system's bundle where the distributions keep it,
 * what trust_offer brought. Borrowed, for ever. NULL with err filled (TlsFailed) when none is
 * there, or the file that a variable names holds no certificate. */
X509_STORE *trust_store(struct nc_err *err);

#endif
