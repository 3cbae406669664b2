/* Files in the safetensors format: what was written reads back, and a battery
 * of unsound files is refused, each with a message and without a crash. */
/* Ranks: 1 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fsdp/memory.h"
#include "fsdp/safetensors.h"
#include "mck.h"

static char folder[64], path[128];

static void
make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/fsdp-safetensors-XXXXXX");
    ck_assert(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
}

static void
remove_folder(void)
{
    unlink(path);
    ck_assert_msg(rmdir(folder) == 0, "something is left in %s", folder);
}

/* Length, header and data as they stand. */
static void
put_file(uint64_t length, const char *header, size_t header_bytes,
         const char *data, size_t data_bytes)
{
    FILE *file = fopen(path, "wb");
    ck_assert(file != NULL);
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> (8 * i) & 255), file);
    fwrite(header, 1, header_bytes, file);
    fwrite(data, 1, data_bytes, file);
    fclose(file);
}

static fsdp_status_t
open_only(void)
{
    fsdp_safetensors_t *file;
    fsdp_status_t status = fsdp_safetensors_open(path, &file);
    ck_assert((status == FSDP_OK) == (file != NULL));
    fsdp_safetensors_close(&file);
    return status;
}

/* ---- sound files ---------------------------------------------------------- */

START_TEST(reads_a_file_made_by_hand)
{
    static const char header[] =
        "{\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[8,16]},"
        "\"__metadata__\":{\"k\":\"v\"},"
        "\"a\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"e\":{\"dtype\":\"BF16\",\"shape\":[0,5],\"data_offsets\":[16,16]}} "
        "  ";
    float b[2] = {1.5f, -2.25f};
    char data[16] = {7};
    memcpy(data + 8, b, sizeof b);
    put_file(sizeof header - 1, header, sizeof header - 1, data, sizeof data);

    fsdp_safetensors_t *file;
    ck_assert(fsdp_safetensors_open(path, &file) == FSDP_OK);
    ck_assert_uint_eq(fsdp_safetensors_count(file), 3);
    ck_assert_str_eq(fsdp_safetensors_entry(file, 0)->name, "a");
    ck_assert_str_eq(fsdp_safetensors_metadata(file, "k"), "v");
    ck_assert(fsdp_safetensors_metadata(file, "none") == NULL);
    const fsdp_safetensors_entry_t *e = fsdp_safetensors_find(file, "b");
    ck_assert(e != NULL && e->ndim == 2 && e->shape[0] == 2 && e->numel == 2 &&
              e->dtype == FSDP_FP32);
    float got = 0;
    ck_assert(fsdp_safetensors_read(file, e, 1, 1, &got) == FSDP_OK);
    ck_assert(got == -2.25f);
    int64_t seven = 0;
    ck_assert(fsdp_safetensors_read(file, fsdp_safetensors_find(file, "a"), 0,
                                    1, &seven) == FSDP_OK);
    ck_assert_int_eq(seven, 7);
    ck_assert_uint_eq(fsdp_safetensors_find(file, "e")->numel, 0);
    ck_assert(fsdp_safetensors_find(file, "c") == NULL);
    fsdp_safetensors_close(&file);
}
END_TEST

/* The bytes of a written file are known from the format alone. */
START_TEST(writes_what_the_format_says)
{
    fsdp_safetensors_entry_t entries[2] = {
        {.name = (char *)"w\"1",
         .dtype = FSDP_FP32,
         .ndim = 2,
         .shape = {1, 2}},
        {.name = (char *)"n", .dtype = FSDP_UINT8, .ndim = 1, .shape = {3}}};
    static const char *const metadata[][2] = {{"format", "pt"}};
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"w\\\"1\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
        "\"n\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]}}";
    static const float w[2] = {1, 2};
    fsdp_safetensors_writer_t *writer;
    ck_assert(fsdp_safetensors_create(path, entries, 2, metadata, 1, &writer) ==
              FSDP_OK);
    ck_assert_msg(access(path, F_OK) != 0, "shown before it is whole");
    ck_assert(fsdp_safetensors_append(writer, w, 8) == FSDP_OK);
    ck_assert(fsdp_safetensors_append(writer, "abc", 3) == FSDP_OK);
    ck_assert(fsdp_safetensors_commit(&writer) == FSDP_OK);

    unsigned char got[512];
    FILE *file = fopen(path, "rb");
    size_t bytes = fread(got, 1, sizeof got, file);
    fclose(file);
    size_t text = sizeof header - 1, padded = (text + 7) / 8 * 8;
    ck_assert_uint_eq(bytes, 8 + padded + 11);
    ck_assert_uint_eq(got[0] + 256u * got[1], padded);
    ck_assert(memcmp(got + 8, header, text) == 0);
    for (size_t i = text; i < padded; i++)
        ck_assert_int_eq(got[8 + i], ' ');
    ck_assert(memcmp(got + 8 + padded, w, 8) == 0);
    ck_assert(memcmp(got + 8 + padded + 8, "abc", 3) == 0);
}
END_TEST

START_TEST(opens_the_golden_files)
{
    static const char *const names[] = {"operators", "mlp_sgd",
                                        "mlp_adamw", "gpt2_adamw",
                                        "gpt2_sgd",  "gpt2_untied_sgd"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[1024];
        fsdp_safetensors_t *file;
        snprintf(name, sizeof name, "%s/golden/%s.safetensors",
                 getenv("FSDP_DATA_DIR"), names[i]);
        ck_assert_msg(fsdp_safetensors_open(name, &file) == FSDP_OK, "%s",
                      fsdp_error_message());
        ck_assert(fsdp_safetensors_count(file) > 10);
        fsdp_safetensors_close(&file);
    }
}
END_TEST

/* ---- unsound headers ------------------------------------------------------- */

/* Four bytes of data follow each. */
static const char *const unsound[] = {
    "",
    " ",
    "[]",
    "null",
    "{",
    "}",
    "{\"a\"}",
    "{\"a\":1}",
    "{\"a\":[]}",
    "{\"a\":null}",
    "{\"a\":{}}",
    "{}",
    " {\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
    "\xef\xbb\xbf{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"
    "}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}x",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],"
    "\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"z\":1}}",
    "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}",
    "{\"a\":{\"dtype\":\"float32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"Q4\",\"shape\":[1],\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"\",\"shape\":[1],\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1,-1],\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[0,-1],\"data_offsets\":[4,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[4611686018427387903],"
    "\"data_offsets\":[4,0]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1e0],\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[NaN],\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,0]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],"
    "\"data_offsets\":[0,0]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],"
    "\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],"
    "\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],"
    "\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":\"0,4\"}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}",
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[1,4]}}",
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
    "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
    "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
    "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
    "{\"__metadata__\":1,\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
    "\"data_offsets\":[0,4]}}",
    "{\"__metadata__\":{\"k\":1},\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
    "\"data_offsets\":[0,4]}}",
    "{\"__metadata__\":{\"k\":\"v\",\"k\":\"w\"},\"a\":{\"dtype\":\"F32\","
    "\"shape\":[1],\"data_offsets\":[0,4]}}",
    "{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4]}}",
    "{\"\xff\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
};

START_TEST(unsound_header_is_refused)
{
    const char *header = unsound[_i];
    put_file(strlen(header), header, strlen(header), "data", 4);
    ck_assert_msg(open_only() == FSDP_ERR_INPUT, "accepted: %s", header);
    ck_assert_msg(strstr(fsdp_error_message(), "x.safetensors") != NULL,
                  "names no file: %s", fsdp_error_message());
}
END_TEST

START_TEST(deep_nesting_is_refused)
{
    enum { DEEP = 200000 };
    char *header = malloc(2 * DEEP + 8);
    memcpy(header, "{\"a\":", 5);
    memset(header + 5, '[', DEEP);
    memset(header + 5 + DEEP, ']', DEEP);
    header[5 + 2 * DEEP] = '}';
    put_file(2 * DEEP + 6, header, 2 * DEEP + 6, "", 0);
    ck_assert(open_only() == FSDP_ERR_INPUT);
    free(header);
}
END_TEST

/* A header that claims more than there is costs no memory. */
START_TEST(lying_length_is_refused)
{
    static const uint64_t lengths[] = {
        3,          100000000,      100000001,        10000000000,
        UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        fsdp_memory_reset_peaks();
        size_t before = fsdp_memory_live_bytes_all();
        put_file(lengths[i], "{}", 2, "", 0);
        ck_assert(open_only() == FSDP_ERR_INPUT);
        ck_assert(fsdp_memory_peak_bytes_all() < before + 100000);
    }
}
END_TEST

/* A file may really be that large (here a hole in it is); the format's limit
 * holds all the same, before any of it is read. */
START_TEST(huge_header_is_refused)
{
    put_file(100000001, "{}", 2, "", 0);
    ck_assert(truncate(path, 8 + 100000001) == 0);
    fsdp_memory_reset_peaks();
    size_t before = fsdp_memory_live_bytes_all();
    ck_assert(open_only() == FSDP_ERR_INPUT);
    ck_assert(fsdp_memory_peak_bytes_all() < before + 100000);
}
END_TEST

START_TEST(truncated_anywhere_is_refused)
{
    static const char header[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}";
    size_t text = sizeof header - 1;
    put_file(text, header, text, "twelve bytes", 12);
    ck_assert(open_only() == FSDP_OK);
    for (size_t size = 0; size < 8 + text + 12; size++) {
        put_file(text, header, text, "twelve bytes", 12);
        ck_assert(truncate(path, (off_t)size) == 0);
        ck_assert_msg(open_only() == FSDP_ERR_INPUT, "cut to %zu bytes", size);
    }
}
END_TEST

START_TEST(other_things_are_refused)
{
    fsdp_safetensors_t *file;
    ck_assert(fsdp_safetensors_open("/nowhere/x", &file) == FSDP_ERR_IO);
    ck_assert(strstr(fsdp_error_message(), "/nowhere/x") != NULL);
    ck_assert(fsdp_safetensors_open(folder, &file) != FSDP_OK);
    ck_assert(mkfifo(path, 0600) == 0);
    ck_assert(fsdp_safetensors_open(path, &file) == FSDP_ERR_INPUT);
}
END_TEST

/* ---- writing that fails ------------------------------------------------------ */

static fsdp_safetensors_entry_t one = {
    .name = (char *)"a", .dtype = FSDP_UINT8, .ndim = 1, .shape = {1 << 20}};

static void
expect_only(bool present)
{
    ck_assert((access(path, F_OK) == 0) == present);
    char command[256];
    snprintf(command, sizeof command, "test $(ls -A %s | wc -l) = %d", folder,
             present);
    ck_assert_msg(system(command) == 0, "a temporary file is left");
}

/* A limit on the file's size stands for a full disk. */
START_TEST(full_disk_leaves_nothing)
{
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    small = before;
    small.rlim_cur = 1 << 16;
    setrlimit(RLIMIT_FSIZE, &small);
    fsdp_safetensors_writer_t *writer;
    char *data = calloc(1, 1 << 20);
    ck_assert(fsdp_safetensors_create(path, &one, 1, NULL, 0, &writer) ==
              FSDP_OK);
    ck_assert(fsdp_safetensors_append(writer, data, 1 << 20) == FSDP_ERR_IO);
    fsdp_safetensors_abandon(&writer);
    setrlimit(RLIMIT_FSIZE, &before);
    expect_only(false);
    free(data);
}
END_TEST

START_TEST(missing_folder_is_refused)
{
    fsdp_safetensors_writer_t *writer;
    ck_assert(fsdp_safetensors_create("/nowhere/x", &one, 1, NULL, 0,
                                      &writer) == FSDP_ERR_IO);
    ck_assert(writer == NULL);
}
END_TEST

/* An older file of that name stays until the new one is whole. */
START_TEST(abandoned_writing_keeps_the_old_file)
{
    put_file(2, "{}", 2, "", 0);
    fsdp_safetensors_writer_t *writer;
    ck_assert(fsdp_safetensors_create(path, &one, 1, NULL, 0, &writer) ==
              FSDP_OK);
    fsdp_safetensors_abandon(&writer);
    expect_only(true);
    ck_assert(open_only() == FSDP_OK);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("safetensors");
    TCase *tcase = tcase_create("files");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, make_folder, remove_folder);
    tcase_add_test(tcase, reads_a_file_made_by_hand);
    tcase_add_test(tcase, writes_what_the_format_says);
    tcase_add_test(tcase, opens_the_golden_files);
    tcase_add_loop_test(tcase, unsound_header_is_refused, 0,
                        sizeof unsound / sizeof *unsound);
    tcase_add_test(tcase, deep_nesting_is_refused);
    tcase_add_test(tcase, lying_length_is_refused);
    tcase_add_test(tcase, huge_header_is_refused);
    tcase_add_test(tcase, truncated_anywhere_is_refused);
    tcase_add_test(tcase, other_things_are_refused);
    tcase_add_test(tcase, full_disk_leaves_nothing);
    tcase_add_test(tcase, missing_folder_is_refused);
    tcase_add_test(tcase, abandoned_writing_keeps_the_old_file);
    return mck_run(argc, argv, suite);
}
