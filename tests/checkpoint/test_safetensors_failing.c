/* Writing a safetensors file that fails: wherever it does, nothing new stands
 * under the final name, and what stood there is as it was. */
/* Ranks: 1 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fsdp/memory.h"
#include "mck.h"
#include "safetensors_case.h"

static void
put_old_file(void)
{
    FILE *file = fopen(path, "wb");
    ck_assert(file != NULL);
    fputs("old", file);
    fclose(file);
}

static bool
old_file_stands(void)
{
    char got[8] = "";
    FILE *file = fopen(path, "rb");
    bool stands = file != NULL && fread(got, 1, sizeof got, file) == 3 &&
                  strcmp(got, "old") == 0;
    if (file != NULL)
        fclose(file);
    return stands && files_in_folder() == 1;
}

/* The disk takes `room` bytes of a file, as a full one would. */
static fsdp_status_t
write_with_room(size_t room, size_t piece)
{
    struct rlimit all, little;
    void (*former)(int) = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &all);
    little = all;
    little.rlim_cur = room;
    setrlimit(RLIMIT_FSIZE, &little);
    fsdp_status_t status = write_many(piece);
    setrlimit(RLIMIT_FSIZE, &all);
    signal(SIGXFSZ, former);
    return status;
}

START_TEST(disk_full_at_any_byte)
{
    struct stat st;
    ck_assert(write_many(5) == FSDP_OK && stat(path, &st) == 0);
    size_t size = (size_t)st.st_size;
    ck_assert(size > ALL_BYTES + 8);
    put_old_file();
    for (size_t room = 0; room < size; room++) {
        ck_assert_msg(write_with_room(room, 5) == FSDP_ERR_IO,
                      "%zu bytes of %zu fit", room, size);
        ck_assert(strstr(fsdp_error_message(), path) != NULL);
        ck_assert(strstr(fsdp_error_message(), "File too large") != NULL);
        ck_assert(old_file_stands());
    }
    ck_assert(write_with_room(size, 5) == FSDP_OK);
    ck_assert(!old_file_stands());
}
END_TEST

/* Who does not look at the status of an append must not get a file either. */
START_TEST(failed_append_is_not_forgotten)
{
    struct rlimit all, little;
    static const fsdp_safetensors_entry_t one = {
        .name = (char *)"a", .dtype = FSDP_UINT8, .ndim = 1, .shape = {5000}};
    static const char zeros[5000];
    fsdp_safetensors_writer_t *writer;
    put_old_file();
    ck_assert(fsdp_safetensors_create(path, &one, 1, NULL, 0, &writer) ==
              FSDP_OK);
    void (*former)(int) = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &all);
    little = all;
    little.rlim_cur = 1000;
    setrlimit(RLIMIT_FSIZE, &little);
    ck_assert(fsdp_safetensors_append(writer, zeros, 4000) == FSDP_ERR_IO);
    setrlimit(RLIMIT_FSIZE, &all);
    signal(SIGXFSZ, former);
    ck_assert(fsdp_safetensors_append(writer, zeros, 1000) == FSDP_OK);
    ck_assert(fsdp_safetensors_commit(&writer) == FSDP_ERR_IO);
    ck_assert(writer == NULL);
    ck_assert(old_file_stands());
}
END_TEST

static void
expect_refused(const char *where, const char *word)
{
    fsdp_safetensors_writer_t *writer;
    ck_assert(fsdp_safetensors_create(where, many, MANY, NULL, 0, &writer) ==
              FSDP_ERR_IO);
    ck_assert(writer == NULL);
    ck_assert(strstr(fsdp_error_message(), where) != NULL);
    ck_assert_msg(strstr(fsdp_error_message(), word) != NULL, "%s",
                  fsdp_error_message());
}

/* A file would take the place of the device, of the pipe, of the folder. */
START_TEST(only_files_are_replaced)
{
    struct stat st;
    expect_refused(folder, "directory");
    ck_assert(mkfifo(path, 0600) == 0);
    expect_refused(path, "exists");
    ck_assert(stat(path, &st) == 0 && S_ISFIFO(st.st_mode));
    unlink(path);
    ck_assert(symlink("/dev/full", path) == 0);
    expect_refused(path, "exists");
    ck_assert(stat(path, &st) == 0 && S_ISCHR(st.st_mode));
    ck_assert_int_eq(files_in_folder(), 1);
}
END_TEST

START_TEST(folder_that_takes_no_file)
{
    char *where = fsdp_format("%s/no/x", folder);
    expect_refused(where, "No such file");
    fsdp_free(where);
    put_old_file();
    where = fsdp_format("%s/x", path);
    expect_refused(where, "Not a directory");
    fsdp_free(where);
    where = fsdp_format("%s/%0300d", folder, 0);
    expect_refused(where, "too long");
    fsdp_free(where);

    /* Root may write everywhere, so it becomes somebody else for a moment. */
    uid_t user = geteuid();
    ck_assert(chmod(folder, 0555) == 0);
    ck_assert(user != 0 || seteuid(65534) == 0);
    expect_refused(path, "Permission denied");
    ck_assert(user != 0 || seteuid(0) == 0);
    ck_assert(chmod(folder, 0700) == 0);
    ck_assert(old_file_stands());
}
END_TEST

/* What a process of the same number left behind is not overwritten, and two
 * writers of one process do not meet. */
START_TEST(temporary_names_are_unique)
{
    fsdp_safetensors_writer_t *writer[3];
    for (int i = 0; i < 3; i++)
        ck_assert(fsdp_safetensors_create(path, NULL, 0, NULL, 0, &writer[i]) ==
                  FSDP_OK);
    ck_assert_int_eq(files_in_folder(), 3);
    fsdp_safetensors_abandon(&writer[1]);
    ck_assert(writer[1] == NULL);
    ck_assert_int_eq(files_in_folder(), 2);
    ck_assert(fsdp_safetensors_commit(&writer[0]) == FSDP_OK);
    ck_assert(fsdp_safetensors_commit(&writer[2]) == FSDP_OK);
    ck_assert_int_eq(files_in_folder(), 1);
    fsdp_safetensors_abandon(&writer[1]); /* does nothing */
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("safetensors_failing");
    TCase *tcase = tcase_create("safetensors_failing");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, make_folder, remove_folder);
    tcase_add_test(tcase, disk_full_at_any_byte);
    tcase_add_test(tcase, failed_append_is_not_forgotten);
    tcase_add_test(tcase, only_files_are_replaced);
    tcase_add_test(tcase, folder_that_takes_no_file);
    tcase_add_test(tcase, temporary_names_are_unique);
    return mck_run(argc, argv, suite);
}
