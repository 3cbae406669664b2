/* Where there is no libFuzzer: runs a target once for each file that is named,
 * and once for it cut short at some places, since that is what files suffer. */

#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"

enum { CUTS = 16 };

static uint8_t *
read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(1 << 20);
    if (file == NULL || data == NULL) {
        perror(path);
        exit(2);
    }
    *size = fread(data, 1, 1 << 20, file);
    fclose(file);
    return data;
}

/* In memory of just that size, so that a sanitizer sees one byte too many. */
static void
run(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    for (size_t i = 0; i < size; i++)
        copy[i] = data[i];
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

int
main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        size_t size;
        uint8_t *data = read_file(argv[i], &size);
        run(data, size);
        for (size_t k = 0; k < CUTS; k++)
            run(data, size * k / CUTS);
        free(data);
    }
    printf("%d inputs\n", argc - 1);
    return argc > 1 ? 0 : 2;
}
