/* A list that grows, and a file that is replaced, whole or not at all. */
/* Ranks: 1 */
#include "serial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/grow.h"
#include "base/whole_file.h"

START_TEST(items_stay_and_room_doubles)
{
    size_t room = 0, before = fsdp_memory_live_bytes(FSDP_MEM_BASELINE);
    int *list = NULL;
    for (int i = 0; i < 100; i++) {
        size_t expected = 3;
        while (expected < (size_t)i + 1)
            expected *= 2;
        list = fsdp_grow(FSDP_MEM_BASELINE, list, (size_t)i, &room, 3,
                         sizeof *list);
        ck_assert_uint_eq(room, expected);
        list[i] = i * i;
    }
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(list[i], i * i);
    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_BASELINE) - before,
                      192 * sizeof *list);
    fsdp_free(list);
    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_BASELINE), before);
}
END_TEST

START_TEST(file_is_replaced_or_stays)
{
    char dir[] = "/tmp/fsdp-grow-XXXXXX", path[64], *text;
    size_t length;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/f", dir);
    ck_assert(fsdp_file_replace(path, "first", 5) == FSDP_OK);
    ck_assert(fsdp_file_replace(path, "second", 6) == FSDP_OK);
    ck_assert(fsdp_file_read(path, 100, &text, &length) == FSDP_OK);
    ck_assert_uint_eq(length, 6);
    ck_assert_mem_eq(text, "second", 6);
    fsdp_free(text);
    unlink(path);
    ck_assert(mkdir(path, 0777) == 0); /* no file can take its place */
    ck_assert(fsdp_file_replace(path, "third", 5) == FSDP_ERR_IO);
    ck_assert(strstr(fsdp_error_message(), path) != NULL);
    ck_assert(rmdir(path) == 0);
    ck_assert(rmdir(dir) == 0); /* nothing is left behind */
    ck_assert(fsdp_file_replace(path, "fourth", 6) == FSDP_ERR_IO);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("grow");
    TCase *tcase = tcase_create("grow");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, items_stay_and_room_doubles);
    tcase_add_test(tcase, file_is_replaced_or_stays);
    return serial_run(suite);
}
