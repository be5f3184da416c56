/* Requests to a model hub that speaks Hugging Face's protocol.
 *
 * The token goes to the hub's own scheme, host and port and to no other: redirects are followed by
 * hand. A file's bytes lie behind a redirect to a signed address that expires; it is resolved once,
 * shared by all parts of the file, and resolved again when the far side refuses it.
 *
 * Errors: RepoNotFound, RevisionNotFound, EntryNotFound, GatedRepo, Unauthorized, AccessDenied,
 * NotFound, RateLimited, HubError, and those of net/http.h.
 */
#ifndef NC_HUB_HUB_H
#define NC_HUB_HUB_H

#include "net/http.h"
#include "net/url.h"

#include <pthread.h>

struct hub {
    struct url endpoint;
    char *base;          /* the endpoint without a trailing '/'; owned */
    char *authorization; /* "Bearer ...", or NULL; owned, secret */
    struct retry_gate gate;
};

/* Strings are copied. token may be NULL. */
int hub_init(struct hub *hub, const char *endpoint, const char *token, struct nc_err *err);
void hub_free(struct hub *hub); /* wipes the token */

/* Where something's bytes are at the moment: the last redirect followed. */
struct hub_location {
    pthread_mutex_t lock;
    char *url; /* owned; NULL until it was resolved */
};

void hub_location_init(struct hub_location *l);
void hub_location_free(struct hub_location *l);

struct hub_request {
    struct http_request http; /* first: hooks get back to us through it */
    struct hub *hub;
    const char *path;              /* from "/", with query; percent-encoded; borrowed */
    struct hub_location *location; /* borrowed; shared by the parts of one file */
    bool away;                     /* this attempt went to another origin than the hub's */
    char sent_to[URL_HOST_SIZE];   /* host of the attempt, for messages */
    unsigned resolved_again;
    void (*done)(struct hub_request *r); /* on a worker */
    void *owner;
};

/* Fill http.what, and http.dest and so on as wanted, between init and submit. */
void hub_request_init(struct hub_request *r, struct hub *hub, struct hub_location *location);
void hub_request_free(struct hub_request *r);

#endif
