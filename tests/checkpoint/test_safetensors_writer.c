/* Written safetensors files: all element types and odd places read back, and
 * what would not read back is not written. */
/* Ranks: 1 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fsdp/memory.h"
#include "mck.h"
#include "safetensors_case.h"

/* Entry i is as it was given and its bytes are where they should be; also
 * element by element. */
static void
expect_entry(const fsdp_safetensors_t *file, size_t i, uint64_t begin)
{
    const fsdp_safetensors_entry_t *e =
        fsdp_safetensors_find(file, many[i].name);
    unsigned char got[64];
    ck_assert(e != NULL && e->dtype == many[i].dtype);
    ck_assert_int_eq(e->ndim, many[i].ndim);
    ck_assert(memcmp(e->shape, many[i].shape, sizeof e->shape) == 0);
    ck_assert_uint_eq(e->begin, begin);
    ck_assert_uint_eq(e->end, begin + bytes_of[i]);
    ck_assert(fsdp_safetensors_read(file, e, 0, e->numel, got) == FSDP_OK);
    for (size_t b = 0; b < bytes_of[i]; b++)
        ck_assert_uint_eq(got[b], byte_at(begin + b));
    for (uint64_t n = 0; n < e->numel; n++) {
        size_t size = bytes_of[i] / e->numel;
        memset(got, 0, sizeof got);
        ck_assert(fsdp_safetensors_read(file, e, n, 1, got) == FSDP_OK);
        for (size_t b = 0; b < sizeof got; b++)
            ck_assert_uint_eq(got[b],
                              b < size ? byte_at(begin + n * size + b) : 0);
    }
}

START_TEST(what_was_written_reads_back)
{
    static const size_t pieces[] = {1, 2, 7, ALL_BYTES};
    fsdp_safetensors_t *file;
    ck_assert(write_many(pieces[_i]) == FSDP_OK);
    ck_assert_int_eq(files_in_folder(), 1);
    ck_assert_msg(fsdp_safetensors_open(path, &file) == FSDP_OK, "%s",
                  fsdp_error_message());
    ck_assert_uint_eq(fsdp_safetensors_count(file), MANY);
    ck_assert_str_eq(fsdp_safetensors_metadata(file, "k"), "v\"\n");
    ck_assert_str_eq(fsdp_safetensors_metadata(file, ""), "");
    uint64_t begin = 0;
    for (size_t i = 0; i < MANY; i++) {
        expect_entry(file, i, begin);
        if (bytes_of[i] > 0) /* an empty one shares its place with the next */
            ck_assert(fsdp_safetensors_find(file, many[i].name)->end > begin);
        begin += bytes_of[i];
    }
    ck_assert_uint_eq(begin, ALL_BYTES);
    for (size_t i = 1; i < MANY; i++)
        ck_assert(fsdp_safetensors_entry(file, i)->begin ==
                  fsdp_safetensors_entry(file, i - 1)->end);
    fsdp_safetensors_close(&file);
    ck_assert(file == NULL);
}
END_TEST

START_TEST(a_file_of_no_tensors)
{
    fsdp_safetensors_writer_t *writer;
    fsdp_safetensors_t *file;
    ck_assert(fsdp_safetensors_create(path, NULL, 0, NULL, 0, &writer) ==
              FSDP_OK);
    ck_assert(fsdp_safetensors_commit(&writer) == FSDP_OK);
    ck_assert(fsdp_safetensors_open(path, &file) == FSDP_OK);
    ck_assert_uint_eq(fsdp_safetensors_count(file), 0);
    fsdp_safetensors_close(&file);
}
END_TEST

/* ---- misuse --------------------------------------------------------------- */

/* Broken invariants end the process, in a child here. */
static bool
dies(const fsdp_safetensors_entry_t *entries, size_t count)
{
    int status = 0;
    pid_t pid = fork();
    ck_assert(pid >= 0);
    if (pid == 0) {
        fsdp_safetensors_writer_t *writer;
        fsdp_set_process(-1, NULL);
        fsdp_set_speaker(NULL);
        close(STDERR_FILENO);
        fsdp_safetensors_create("/dev/null/x", entries, count, NULL, 0,
                                &writer); /* fails: not the end */
        fsdp_safetensors_create(path, entries, count, NULL, 0, &writer);
        fsdp_safetensors_abandon(&writer);
        _exit(0);
    }
    ck_assert(waitpid(pid, &status, 0) == pid);
    char *command = fsdp_format("rm -f %s.tmp-*", path);
    ck_assert(system(command) == 0);
    fsdp_free(command);
    return WIFEXITED(status) && WEXITSTATUS(status) == FSDP_EXIT_FAULT;
}

START_TEST(names_that_would_not_read_back)
{
    static char *const names[][2] = {{(char *)"a", (char *)"a"},
                                     {(char *)"a", (char *)"__metadata__"},
                                     {(char *)"a", (char *)"\xff"},
                                     {(char *)"a", (char *)"b"}};
    for (int i = 0; i < 4; i++) {
        fsdp_safetensors_entry_t two[2] = {
            {.name = names[i][0], .dtype = FSDP_UINT8},
            {.name = names[i][1], .dtype = FSDP_UINT8}};
        ck_assert(dies(two, 2) == (i < 3));
    }
}
END_TEST

START_TEST(sizes_that_overflow)
{
    fsdp_safetensors_entry_t e[2] = {
        {.name = (char *)"a", .dtype = FSDP_FP32, .ndim = 1},
        {.name = (char *)"b", .dtype = FSDP_FP32, .ndim = 1}};
    e[0].shape[0] = (uint64_t)1 << 62; /* 2^64 bytes */
    ck_assert(dies(e, 1));
    e[0].shape[0] = e[1].shape[0] = (uint64_t)1 << 60; /* 2^62 bytes each */
    ck_assert(!dies(e, 1));
    ck_assert(dies(e, 2));
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("safetensors_writer");
    TCase *tcase = tcase_create("safetensors_writer");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, make_folder, remove_folder);
    tcase_add_loop_test(tcase, what_was_written_reads_back, 0, 4);
    tcase_add_test(tcase, a_file_of_no_tensors);
    tcase_add_test(tcase, names_that_would_not_read_back);
    tcase_add_test(tcase, sizes_that_overflow);
    return mck_run(argc, argv, suite);
}
