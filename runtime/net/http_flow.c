/* What comes and goes while an attempt is under way: libcurl's callbacks, and the turns of a pace.
 */
#include "net/http_easy.h"

#include "base/clock.h"
#include "base/text.h"

#include <string.h>

static int stop(struct http_transfer *t, bool retryable, const char *code, const char *text)
{
    nc_err_set(&t->err, code, "%s", text);
    t->err.retryable = retryable;
    return 0; /* fewer bytes than offered: libcurl ends the transfer */
}

/* The same for an answer that is none to what was asked. */
static int stop_wrong(struct http_transfer *t, const char *code, const char *text)
{
    t->r->wrong = true;
    return stop(t, true, code, text);
}

/* A hook of the owner's has filled r->err. */
static bool stop_hook(struct http_transfer *t)
{
    t->hook_failed = true;
    return false;
}

/* "bytes 0-9/100" must start where we asked and hold as many bytes as we asked for. */
static bool range_fits(const struct http_request *r)
{
    char value[96];
    uint64_t first, last;
    if (!http_header(r, "content-range", value, sizeof value))
        return false;
    const char *p = value;
    if (!text_starts(p, "bytes "))
        return false;
    p += strlen("bytes ");
    if (text_take_u64(&p, &first) || *p++ != '-' || text_take_u64(&p, &last))
        return false;
    return first == r->range_start && last - first + 1 == r->dest_len;
}

/* At the first byte of a body, or at the end of an answer without one: where does it go? */
bool http_check_head(struct http_transfer *t)
{
    struct http_request *r = t->r;
    t->body_started = true;
    long status = 0;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    r->status = (int)status;
    t->expected = (r->dest || r->take) && status >= 200 && status < 300;
    if (!t->expected)
        return true;
    if (r->ranged && status != 206) {
        stop_wrong(t, "BadRange", "the server ignored the range and sent the whole file");
        return false;
    }
    if (r->ranged && !range_fits(r)) {
        stop_wrong(t, "BadRange", "the server sent another range than it was asked for");
        return false;
    }
    return !r->begun || r->begun(r) == 0 || stop_hook(t);
}

static void resume_at(struct http_transfer *t, uint64_t us)
{
    t->resume_us = us;
    if (!*t->first_us || us < *t->first_us)
        *t->first_us = us;
}

/* Whether len more of the `left` bytes of a body may move now; if not, it is on for later. */
static bool has_turn(struct http_transfer *t, size_t len, size_t left)
{
    struct pace *pace = t->r->pace;
    if (!pace)
        return true;
    if (t->booked < len) {
        size_t slice = pace_slice(pace), want = left < slice ? left : slice;
        want = want < len - t->booked ? len - t->booked : want;
        uint64_t now = clock_us(), wait = pace_book(pace, want, now);
        t->booked += want;
        if (wait) {
            resume_at(t, now + wait);
            return false;
        }
    }
    t->booked -= len;
    return true;
}

size_t http_on_body(char *data, size_t size, size_t n, void *user)
{
    struct http_transfer *t = user;
    struct http_request *r = t->r;
    size_t len = size * n;
    if (!t->body_started && !http_check_head(t))
        return 0;
    if (t->expected) {
        if (len > r->dest_len - r->received)
            return (size_t)stop_wrong(t, "LongBody", "the server sent more than it was asked for");
        if (!has_turn(t, len, r->dest_len - r->received))
            return CURL_WRITEFUNC_PAUSE;
        if (!r->take)
            memcpy((char *)r->dest + r->received, data, len);
        else if (r->take(r, data, len))
            return stop_hook(t);
    } else {
        size_t room = r->text.max - r->text.len;
        if (len > room && r->text_whole)
            return (size_t)stop(t, false, "LongBody", "the answer is larger than it may be");
        buf_add(&r->text, data, len < room ? len : room);
    }
    r->received += len;
    if (r->moved && t->expected)
        atomic_fetch_add_explicit(r->moved, len, memory_order_relaxed);
    return len;
}

static void note_first_byte(struct http_transfer *t)
{
    curl_off_t sent_us = 0, first_us = 0;
    t->answered = true;
    if (!t->r->cut_late || !t->r->gate)
        return;
    curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &sent_us);
    curl_easy_getinfo(t->easy, CURLINFO_STARTTRANSFER_TIME_T, &first_us);
    if (first_us > sent_us)
        latency_add(&t->r->gate->first_byte, (uint64_t)(first_us - sent_us));
}

/* Each header line; a new status line (100 Continue, say) starts the head over. */
size_t http_on_header(char *data, size_t size, size_t n, void *user)
{
    struct http_transfer *t = user;
    struct buf *head = &t->r->head;
    size_t len = size * n;
    if (!t->answered)
        note_first_byte(t);
    if (len > 5 && memcmp(data, "HTTP/", 5) == 0) {
        buf_clear(head);
        return len;
    }
    size_t end = len;
    while (end && (data[end - 1] == '\r' || data[end - 1] == '\n'))
        end--;
    const char *colon = memchr(data, ':', end);
    if (!colon)
        return len;
    size_t at = head->len;
    if (buf_add(head, data, end) || buf_putc(head, '\n'))
        return (size_t)stop(t, false, "NetworkError", "the answer's headers are too large");
    for (size_t i = 0; i < (size_t)(colon - data); i++) {
        if (head->data[at + i] >= 'A' && head->data[at + i] <= 'Z')
            head->data[at + i] = (char)(head->data[at + i] + ('a' - 'A'));
    }
    return len;
}

size_t http_on_read(char *out, size_t size, size_t n, void *user)
{
    struct http_transfer *t = user;
    struct http_request *r = t->r;
    size_t left = r->body_len - t->sent;
    size_t len = size * n < left ? size * n : left;
    if (r->pace && len > pace_slice(r->pace))
        len = pace_slice(r->pace);
    if (len && !has_turn(t, len, left))
        return CURL_READFUNC_PAUSE;
    if (len && !r->give) {
        memcpy(out, (const char *)r->body + t->sent, len);
    } else if (len && r->give(r, t->sent, out, len)) {
        stop_hook(t);
        return CURL_READFUNC_ABORT;
    }
    t->sent += len;
    if (r->moved)
        atomic_fetch_add_explicit(r->moved, len, memory_order_relaxed);
    return len;
}

/* A reused connection that turned out dead: libcurl sends the body again from its start. */
int http_on_seek(void *user, curl_off_t offset, int origin)
{
    struct http_transfer *t = user;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > t->r->body_len)
        return CURL_SEEKFUNC_FAIL;
    if (t->r->moved)
        atomic_fetch_sub_explicit(t->r->moved, t->sent - (size_t)offset, memory_order_relaxed);
    t->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

CURLcode http_easy_resume(struct http_transfer *t, uint64_t now_us)
{
    if (!t->resume_us)
        return CURLE_OK;
    if (t->resume_us > now_us) {
        resume_at(t, t->resume_us);
        return CURLE_OK;
    }
    t->resume_us = 0;
    http_easy_restart_clock(t, now_us / 1000);
    return curl_easy_pause(t->easy, CURLPAUSE_CONT);
}
