#include "base/build_id.h"

#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The executable's own header, where the linker has put it. */
extern const ElfW(Ehdr) __ehdr_start;

static char text[2 * 20 + 1]; /* SHA-1 */

/* A note: its header, "GNU\0", the digest; each padded to four bytes. */
static void read_notes(const char *p, const char *end)
{
    while (p < end) {
        const ElfW(Nhdr) *note = (const void *)p;
        const char *name = p + sizeof *note;
        const unsigned char *id = (const void *)(name + ((note->n_namesz + 3) & ~3u));
        if (note->n_type == NT_GNU_BUILD_ID && strcmp(name, ELF_NOTE_GNU) == 0) {
            for (size_t i = 0; i < note->n_descsz && 2 * i + 2 < sizeof text; i++)
                snprintf(text + 2 * i, 3, "%02x", id[i]);
        }
        p = (const char *)id + ((note->n_descsz + 3) & ~3u);
    }
}

static void find(void)
{
    const char *base = (const void *)&__ehdr_start;
    const ElfW(Phdr) *segment = (const void *)(base + __ehdr_start.e_phoff);
    for (int i = 0; i < __ehdr_start.e_phnum; i++, segment++) {
        if (segment->p_type == PT_NOTE && segment->p_align == 4)
            read_notes(base + segment->p_vaddr, base + segment->p_vaddr + segment->p_memsz);
    }
}

const char *build_id(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find);
    return text;
}
