/* How the static build looks names up: c-ares, by /etc/hosts and /etc/resolv.conf alone.
 *
 * libcurl's channels are opened here instead of in c-ares (the linker's --wrap), since libcurl has
 * no option for any of this. */
#include <ares.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

enum {
    FIRST_WAIT_MS = 300, /* for a name server's answer, before the next one is asked as well */
    ROUNDS = 5,          /* over all servers, waiting twice as long each time */
};

int __real_ares_init_options(ares_channel *channel, struct ares_options *options, int mask);
int __wrap_ares_init_options(ares_channel *channel, struct ares_options *options, int mask);

/* Where there is no /dev/urandom, c-ares draws its query ids from rand(). */
static void seed_rand(void)
{
    unsigned seed = 0;
    if (getrandom(&seed, sizeof seed, 0) == sizeof seed)
        srand(seed);
}

/* A dead first server costs a part of a second with each name that is tried, and a pod's search
 * list has four: c-ares' own 5 s would outlast the time to connect. Files first, then DNS, whatever
 * the image's nsswitch.conf says of modules that are not here. */
int __wrap_ares_init_options(ares_channel *channel, struct ares_options *options, int mask)
{
    static pthread_once_t seeded = PTHREAD_ONCE_INIT;
    pthread_once(&seeded, seed_rand);
    options->timeout = FIRST_WAIT_MS;
    options->tries = ROUNDS;
    options->lookups = (char[]){"fb"};
    return __real_ares_init_options(channel, options,
                                    mask | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS);
}
