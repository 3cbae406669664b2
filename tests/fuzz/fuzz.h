/* What the fuzz targets share: see fuzz.c and README. */
#ifndef FSDP_TESTS_FUZZ_H
#define FSDP_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* What every target defines: libFuzzer's entry. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process: a property that holds for every input does not. */
#define FUZZ_CHECK(condition)                                                  \
    ((condition) ? (void)0 : fuzz_failed(__FILE__, __LINE__, #condition))
_Noreturn void fuzz_failed(const char *file, int line, const char *condition);

/* A file that holds the bytes, until the next call; it is in memory. */
const char *fuzz_file(const uint8_t *data, size_t size);

/* A folder of this process, made once, emptied at its end. */
const char *fuzz_folder(void);
/* Puts a file into it ("a/b" makes the folder a). */
void fuzz_put(const char *name, const uint8_t *data, size_t size);

/* The next part of an input that is made of several: it ends where "%%%%" stands
 * or with the input.  Steps *data and *size behind it. */
typedef struct fuzz_part {
    const uint8_t *data;
    size_t size;
} fuzz_part_t;
fuzz_part_t fuzz_next_part(const uint8_t **data, size_t *size);

#endif
