#include "base/xxh3_avx2.h"

#ifdef __x86_64__

#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

bool xxh3_avx2_fits(void)
{
    return __builtin_cpu_supports("avx2");
}

/* The header once more, compiled for AVX2: twice as fast. Debian's shared library chooses like
 * this; its archive, which the static build links, does not. */
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif

#define XXH_INLINE_ALL
#define XXH_VECTOR 2 /* XXH_AVX2 */
#include <xxhash.h>

void xxh3_avx2_update(void *state, const void *data, size_t len)
{
    XXH3_128bits_update(state, data, len);
}

#ifdef __clang__
#pragma clang attribute pop
#endif

#else

bool xxh3_avx2_fits(void)
{
    return false;
}

void xxh3_avx2_update(void *state, const void *data, size_t len)
{
    (void)state;
    (void)data;
    (void)len;
}

#endif
