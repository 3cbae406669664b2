#include "safetensors_case.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

char folder[64], path[128];

void
make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/fsdp-writer-XXXXXX");
    ck_assert(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
}

void
remove_folder(void)
{
    unlink(path);
    ck_assert_msg(rmdir(folder) == 0, "something is left in %s", folder);
}

int
files_in_folder(void)
{
    int count = 0;
    DIR *dir = opendir(folder);
    ck_assert(dir != NULL);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count - 2; /* . and .. */
}

/* Odd sizes first, so that nothing after them is aligned; names out of order,
 * odd, and such as no file may be called; empty tensors between others. */
const fsdp_safetensors_entry_t many[MANY] = {
    {.name = (char *)"z", .dtype = FSDP_UINT8, .ndim = 1, .shape = {3}},
    {.name = (char *)"../../x", .dtype = FSDP_FP64, .ndim = 2, .shape = {2, 1}},
    {.name = (char *)"", .dtype = FSDP_FP32, .ndim = 2, .shape = {0, 7}},
    {.name = (char *)"a.\"\\\n\t\x01",
     .dtype = FSDP_BF16,
     .ndim = 1,
     .shape = {5}},
    {.name = (char *)"scalar", .dtype = FSDP_FP16, .ndim = 0},
    {.name = (char *)"\xc3\xa9",
     .dtype = FSDP_INT64,
     .ndim = 8,
     .shape = {1, 1, 1, 2, 1, 1, 1, 1}},
    {.name = (char *)"i", .dtype = FSDP_INT32, .ndim = 1, .shape = {1}},
    {.name = (char *)"last", .dtype = FSDP_FP64, .ndim = 1, .shape = {0}},
};
const uint64_t bytes_of[MANY] = {3, 16, 0, 10, 2, 16, 4, 0};

unsigned char
byte_at(size_t i)
{
    return (unsigned char)(i * 73 + 19);
}

fsdp_status_t
write_many(size_t piece)
{
    static const char *const metadata[][2] = {{"k", "v\"\n"}, {"", ""}};
    unsigned char data[ALL_BYTES];
    fsdp_safetensors_writer_t *writer;
    for (size_t i = 0; i < ALL_BYTES; i++)
        data[i] = byte_at(i);
    fsdp_status_t status =
        fsdp_safetensors_create(path, many, MANY, metadata, 2, &writer);
    ck_assert((status == FSDP_OK) == (writer != NULL));
    for (size_t at = 0; at < ALL_BYTES && status == FSDP_OK; at += piece) {
        size_t n = piece < ALL_BYTES - at ? piece : ALL_BYTES - at;
        status = fsdp_safetensors_append(writer, data + at, n);
    }
    if (status == FSDP_OK)
        status = fsdp_safetensors_commit(&writer);
    else
        fsdp_safetensors_abandon(&writer);
    ck_assert(writer == NULL);
    return status;
}
