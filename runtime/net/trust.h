/* Whose signature a TLS server's certificate needs: stores of root certificates. Reading a bundle takes
 * longer than a handshake, so each is read once in the life of the process, when first needed, and
 * all connections share it. Any thread. */
#ifndef NC_NET_TRUST_H
#define NC_NET_TRUST_H

#include "base/err.h"

#include <openssl/x509.h>
#include <stddef.h>

/* A PEM bundle for machines that have none: borrowed, for ever. Before the first connection. */
void trust_offer(const char *pem, size_t len);

/* The certificates of a PEM file. NULL: of the first of these that is there: the file of
 * SSL_CERT_FILE, of CURL_CA_BUNDLE, the folder of SSL_CERT_DIR, the system's bundle where the
 * distributions keep it, what trust_offer brought. Borrowed, for ever. NULL with err filled
 * (TlsFailed) when the file holds none, or none is there. */
X509_STORE *trust_store(const char *file, struct nc_err *err);

#endif
