/* A model's file: the same bytes however the model is cut; a disk that fails
 * leaves nothing behind, and all ranks hear of it. */
#include "mck.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/model_case.h"
#include "fsdp/memory.h"

static size_t
read_file(unsigned char *bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return 0;
    size_t n = fread(bytes, 1, MAX_BYTES, file);
    fclose(file);
    return n;
}

static int
files_in_folder(void)
{
    int count = 0;
    DIR *dir = opendir(folder);
    while (dir != NULL && readdir(dir) != NULL)
        count++;
    if (dir != NULL)
        closedir(dir);
    return count - 2; /* . and .. */
}

static bool
file_is_right(fsdp_dtype_t dtype, const unsigned char *bytes, size_t size)
{
    char *header = NULL, entry[256];
    bool good = size > 8;
    uint64_t length = 0;
    size_t element = dtype == FSDP_FP64 ? 8 : 4, offset = 0;
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)bytes[i] << (8 * i);
    good = good && length % 8 == 0 && length < size;
    header = strndup((const char *)bytes + 8, length);
    good = good && strstr(header, "\"__metadata__\":{\"format\":\"pt\"}");
    const unsigned char *data = bytes + 8 + length;
    for (int i = 0; i < SPECS; i++) {
        size_t n = spec_numel(&specs[i]);
        snprintf(entry, sizeof entry,
                 "\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],"
                 "\"data_offsets\":[%zu,%zu]}",
                 specs[i].name, dtype == FSDP_FP64 ? "F64" : "F32", shapes[i],
                 offset, offset + n * element);
        good = good && strstr(header, entry) != NULL;
        for (size_t e = 0; good && e < n; e++) {
            unsigned char want[8];
            hand_put(want, dtype == FSDP_FP64 ? "F64" : "F32",
                     third(specs[i].name, e));
            good = memcmp(data + offset + e * element, want, element) == 0;
        }
        offset += n * element;
    }
    free(header);
    return good && size == 8 + length + offset;
}

START_TEST(same_bytes_however_cut)
{
    static const char *const metadata[][2] = {{"format", "pt"}};
    static unsigned char first[MAX_BYTES], bytes[MAX_BYTES];
    for (int d = 0; d < 2; d++)
        for (int cut = 0; cut < GIVEN_CUTS; cut++) {
            fsdp_dtype_t dtype = d == 0 ? FSDP_FP32 : FSDP_FP64;
            fsdp_module_t *model = make(dtype, (given_cut_t)cut, third);
            ck_assert(fsdp_model_save(model, world, path, metadata, 1) ==
                      FSDP_OK);
            size_t size = read_file(cut == 0 ? first : bytes);
            mck_assert(file_is_right(dtype, cut == 0 ? first : bytes, size));
            mck_assert(cut == 0 || memcmp(first, bytes, size) == 0);
            mck_assert(files_in_folder() == 1);
            fsdp_module_destroy(&model);
        }
}
END_TEST

START_TEST(saved_is_loaded)
{
    for (int from = 0; from < GIVEN_CUTS; from++)
        for (int to = 0; to < GIVEN_CUTS; to++) {
            fsdp_module_t *a = make(FSDP_FP32, (given_cut_t)from, third);
            fsdp_module_t *b = make(FSDP_FP32, (given_cut_t)to, zero);
            ck_assert(fsdp_model_save(a, world, path, NULL, 0) == FSDP_OK);
            ck_assert(fsdp_model_load(b, world, path) == FSDP_OK);
            mck_assert(has(b, third));
            fsdp_module_destroy(&a);
            fsdp_module_destroy(&b);
        }
}
END_TEST

/* -- saving that fails -- */

/* All ranks learn of it, and an older file of that name stays. */
static void
check_failure(fsdp_module_t *model, const char *where)
{
    static const char old[] = "an older file";
    static unsigned char bytes[MAX_BYTES];
    int before = files_in_folder();
    fsdp_barrier(world, "before");
    fsdp_status_t status = fsdp_model_save(model, world, where, NULL, 0);
    mck_assert(status == FSDP_ERR_IO);
    mck_assert(strstr(fsdp_error_message(), where) != NULL);
    mck_assert(files_in_folder() == before);
    if (before == 1)
        mck_assert(read_file(bytes) == sizeof old &&
                   memcmp(bytes, old, sizeof old) == 0);
}

static void
write_old(void)
{
    if (rank == 0) {
        FILE *file = fopen(path, "wb");
        fwrite("an older file", 1, sizeof "an older file", file);
        fclose(file);
    }
    fsdp_barrier(world, "old");
}

START_TEST(no_such_folder)
{
    char where[2 * LONG];
    fsdp_module_t *model = make(FSDP_FP32, GIVEN_ALL, value);
    snprintf(where, sizeof where, "%s/no/model.safetensors", folder);
    check_failure(model, where);
    write_old();
    snprintf(where, sizeof where, "%s/model.safetensors", path);
    check_failure(model, where); /* a file in place of a folder */
    fsdp_module_destroy(&model);
}
END_TEST

START_TEST(read_only_folder)
{
    fsdp_module_t *model = make(FSDP_FP32, GIVEN_ALL, value);
    write_old();
    if (rank == 0)
        chmod(folder, 0500);
    fsdp_barrier(world, "chmod");
    if (geteuid() != 0) /* root may write everywhere */
        check_failure(model, path);
    if (rank == 0)
        chmod(folder, 0700);
    fsdp_module_destroy(&model);
}
END_TEST

/* The disk of rank 0 is full after so many bytes: in the header, in the first
 * tensor, in the last. */
static void
check_full_disk(rlim_t room)
{
    struct rlimit all, little;
    fsdp_module_t *model = make(FSDP_FP32, GIVEN_ALL, value);
    write_old();
    getrlimit(RLIMIT_FSIZE, &all);
    little = all;
    little.rlim_cur = room;
    if (rank == 0)
        setrlimit(RLIMIT_FSIZE, &little);
    check_failure(model, path);
    setrlimit(RLIMIT_FSIZE, &all);
    fsdp_module_destroy(&model);
}

START_TEST(full_disk)
{
    static unsigned char bytes[MAX_BYTES];
    void (*former)(int) = signal(SIGXFSZ, SIG_IGN);
    fsdp_module_t *model = make(FSDP_FP32, GIVEN_ALL, value);
    ck_assert(fsdp_model_save(model, world, path, NULL, 0) == FSDP_OK);
    size_t size = read_file(bytes);
    fsdp_module_destroy(&model);
    fsdp_barrier(world, "read");
    check_full_disk(10);
    check_full_disk((rlim_t)size - 73 * 4 + 20);
    check_full_disk((rlim_t)size - 1);
    signal(SIGXFSZ, former);
}
END_TEST

/* -- memory -- */

/* Rank 0 holds one parameter, whole, and its gathered chunks; the others hold
 * next to nothing.  Four equal ones would be seen. */
START_TEST(one_parameter_at_a_time)
{
    static const given_spec_t big[4] = {{"a.w", 2, {1000, 100}, GIVEN_USED},
                                        {"b.w", 2, {1000, 100}, GIVEN_USED},
                                        {"c.w", 2, {1000, 100}, GIVEN_USED},
                                        {"d.w", 2, {1000, 100}, GIVEN_USED}};
    size_t size = (size_t)fsdp_comm_size(world);
    size_t chunks = (1000 + size - 1) / size * size * 100 * 4;
    size_t small = 1 << 14;
    fsdp_module_t *model =
        given_create(big, 4, FSDP_FP32, mesh, GIVEN_ALL, value);
    size_t before = fsdp_memory_live_bytes_all();
    fsdp_memory_reset_peaks();
    ck_assert(fsdp_model_save(model, world, path, NULL, 0) == FSDP_OK);
    size_t more = fsdp_memory_peak_bytes_all() - before;
    mck_assert(more <= (rank == 0 ? 400000 + chunks + small : small));

    fsdp_memory_reset_peaks();
    ck_assert(fsdp_model_load(model, world, path) == FSDP_OK);
    mck_assert(fsdp_memory_peak_bytes_all() - before <= small);
    fsdp_module_destroy(&model);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("model_save");
    TCase *tcase = tcase_create("model_save");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 0);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, same_bytes_however_cut);
    tcase_add_test(tcase, saved_is_loaded);
    tcase_add_test(tcase, no_such_folder);
    tcase_add_test(tcase, read_only_folder);
    tcase_add_test(tcase, full_disk);
    tcase_add_test(tcase, one_parameter_at_a_time);
    return mck_run(argc, argv, suite);
}
