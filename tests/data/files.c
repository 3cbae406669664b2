#include "files.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

char folder[64], path[128];
fsdp_dataset_t *data;

void
make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/fsdp-hard-XXXXXX");
    ck_assert(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/input", folder);
}

void
remove_folder(void)
{
    fsdp_dataset_close(&data);
    unlink(path);
    ck_assert(rmdir(folder) == 0);
}

void
put(const char *text, size_t length)
{
    FILE *file = fopen(path, "wb");
    ck_assert(file != NULL && fwrite(text, 1, length, file) == length);
    fclose(file);
}

/* `head`, `rows` times `row`, `tail`. */
void
put_rows(const char *head, const char *row, int rows, const char *tail)
{
    FILE *file = fopen(path, "wb");
    ck_assert(file != NULL);
    fputs(head, file);
    for (int i = 0; i < rows; i++)
        fputs(row, file);
    fputs(tail, file);
    fclose(file);
}
