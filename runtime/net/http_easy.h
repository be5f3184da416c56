/* One attempt of a request as a libcurl easy handle: options, callbacks, and what came of it.
 * Private to net/: http.c drives it, on one worker's thread. */
#ifndef NC_NET_HTTP_EASY_H
#define NC_NET_HTTP_EASY_H

#include "net/http.h"

#include <curl/curl.h>

struct http_transfer {
    CURL *easy; /* kept between requests; its connections live in the multi handle */
    struct http_request *r;
    const char *method; /* that it is set up for; NULL: none */
    bool uploads;
    char *ca_file;           /* owned: the request that named it may be gone */
    struct buf lines;        /* the request's headers, each a string */
    struct curl_slist *list; /* of them, as libcurl wants it */
    size_t list_size;
    struct nc_err err;  /* set by a callback that stopped the transfer */
    size_t sent;        /* bytes of the body handed to libcurl */
    bool body_started;  /* the answer's head was checked */
    bool expected;      /* its body is the one that dest or take is for */
    bool hook_failed;   /* the owner's begun, take or give has filled r->err */
    bool answered;      /* the answer has begun */
    bool late;          /* cut because it had not */
    size_t booked;      /* bytes that its pace lets move */
    uint64_t resume_us; /* 0, or when it may go on that waits for its turn */
    uint64_t *first_us; /* the worker's: the earliest of these; 0: none waits */
    uint64_t begun_ms;  /* when the attempt began */
    uint64_t window_ms; /* the stall clock: when this window began, bytes seen by then */
    curl_off_t window_bytes;
    char curl_text[CURL_ERROR_SIZE];
    struct http_transfer *prev, *next;
};

/* All but first_us. -1 without memory, with what free takes. */
int http_easy_init(struct http_transfer *t, CURLSH *names);
void http_easy_free(struct http_transfer *t);
/* Sets it up for the next attempt of r. 0 or -1 with r->err. */
int http_easy_begin(struct http_transfer *t, struct http_request *r);
/* After libcurl is done with it: fills r's status, failed, err. */
void http_easy_end(struct http_transfer *t, CURLcode code);
/* Takes back from r->moved what this attempt counted: it will have to move again. */
void http_easy_undo(struct http_transfer *t);
/* True once the attempt has moved too little for too long, at now_ms. */
bool http_easy_stalled(struct http_transfer *t, uint64_t now_ms);
/* Lets a transfer go on that waits for its turn, if that has come; if not, it says when again. A
 * result that is not CURLE_OK ends it. */
CURLcode http_easy_resume(struct http_transfer *t, uint64_t now_us);
/* True once its first byte is late, if that is a reason to cut it. */
bool http_easy_late(struct http_transfer *t, uint64_t now_ms);
/* What has passed so far counts no more for a stall. */
void http_easy_restart_clock(struct http_transfer *t, uint64_t now_ms);

/* In http_flow.c, for libcurl; `user` is the transfer. */
size_t http_on_body(char *data, size_t size, size_t n, void *user);
size_t http_on_header(char *data, size_t size, size_t n, void *user);
size_t http_on_read(char *out, size_t size, size_t n, void *user);
int http_on_seek(void *user, curl_off_t offset, int origin);
/* At the first byte of a body, or at the end of an answer without one. False: it ends here, and why
 * is noted. */
bool http_check_head(struct http_transfer *t);

#endif
