/* The digest of this very build: the linker's note over all that it put together, which `file` and
 * `readelf --notes` print as "Build ID". Any thread. */
#ifndef NC_BASE_BUILD_ID_H
#define NC_BASE_BUILD_ID_H

/* Lower-case hex in static storage; "" when it was linked without one. */
const char *build_id(void);

#endif
