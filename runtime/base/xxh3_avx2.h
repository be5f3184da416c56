/* XXH3's inner loop with the instructions that a processor may lack. Private to base/digest.c. */
#ifndef NC_BASE_XXH3_AVX2_H
#define NC_BASE_XXH3_AVX2_H

#include <stdbool.h>
#include <stddef.h>

/* Whether this processor has them. */
bool xxh3_avx2_fits(void);
/* XXH3_128bits_update of an XXH3_state_t. Only where it fits. */
void xxh3_avx2_update(void *state, const void *data, size_t len);

#endif
