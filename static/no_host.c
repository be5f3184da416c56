/* What would reach for files of the image at run time, and is not to: glibc's lookups load NSS
 * modules of the very glibc that this was linked with, and dlopen a library that wants another
 * libc. Defined here, libc's own stay out of the link. OpenSSL, c-ares and Lua refer to them and go
 * on without. */
#include <dlfcn.h>
#include <errno.h>
#include <iconv.h>
#include <netdb.h>
#include <stddef.h>

/* ---- names: libcurl asks c-ares ---- */

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    (void)name, (void)service, (void)hints, (void)out;
    return EAI_FAIL;
}

void freeaddrinfo(struct addrinfo *list)
{
    (void)list;
}

int getnameinfo(const struct sockaddr *restrict address, socklen_t length, char *restrict host,
                socklen_t host_size, char *restrict service, socklen_t service_size, int flags)
{
    (void)address, (void)length, (void)host, (void)host_size;
    (void)service, (void)service_size, (void)flags;
    return EAI_FAIL;
}

struct hostent *gethostbyname(const char *name)
{
    (void)name;
    h_errno = NO_RECOVERY;
    return NULL;
}

struct servent *getservbyname(const char *name, const char *protocol)
{
    (void)name, (void)protocol;
    return NULL;
}

int getservbyport_r(int port, const char *protocol, struct servent *entry, char *buf, size_t size,
                    struct servent **out)
{
    (void)port, (void)protocol, (void)entry, (void)buf, (void)size;
    *out = NULL;
    return 0;
}

/* ---- libraries: there are none; glibc's own calls, for character sets, go by other names ---- */

void *__libc_dlopen_mode(const char *file, int mode);
void *__libc_dlsym(void *handle, const char *name);
int __libc_dlclose(void *handle);

void *__libc_dlopen_mode(const char *file, int mode)
{
    (void)file, (void)mode;
    return NULL;
}

void *__libc_dlsym(void *handle, const char *name)
{
    (void)handle, (void)name;
    return NULL;
}

int __libc_dlclose(void *handle)
{
    (void)handle;
    return -1;
}

void *dlopen(const char *file, int flags)
{
    (void)file, (void)flags;
    return NULL;
}

void *dlsym(void *restrict handle, const char *restrict name)
{
    (void)handle, (void)name;
    return NULL;
}

int dlclose(void *handle)
{
    (void)handle;
    return -1;
}

char *dlerror(void)
{
    static char text[] = "this program is static: it loads no library";
    return text;
}

int dladdr(const void *address, Dl_info *info)
{
    (void)address, (void)info;
    return 0;
}

/* ---- characters: libarchive leaves names as they are ---- */

iconv_t iconv_open(const char *to, const char *from)
{
    (void)to, (void)from;
    errno = EINVAL;
    return (iconv_t)-1;
}

size_t iconv(iconv_t cd, char **restrict in, size_t *restrict in_left, char **restrict out,
             size_t *restrict out_left)
{
    (void)cd, (void)in, (void)in_left, (void)out, (void)out_left;
    errno = EBADF;
    return (size_t)-1;
}

int iconv_close(iconv_t cd)
{
    (void)cd;
    return 0;
}
