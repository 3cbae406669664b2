/* Status codes, messages, and the ways a process ends. */
/* Ranks: 1 */
#include "serial.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fsdp/status.h"

START_TEST(texts_and_exit_codes)
{
    /* The exit statuses that the program promises. */
    ck_assert_int_eq(fsdp_status_exit_code(FSDP_OK), 0);
    ck_assert_int_eq(fsdp_status_exit_code(FSDP_ERR_VERIFY), 1);
    ck_assert_int_eq(fsdp_status_exit_code(FSDP_ERR_USAGE), 2);
    ck_assert_int_eq(fsdp_status_exit_code(FSDP_ERR_INPUT), 2);
    ck_assert_int_eq(fsdp_status_exit_code(FSDP_ERR_IO), 2);
    ck_assert_int_eq(fsdp_status_exit_code(FSDP_ERR_FAULT), 3);
    ck_assert_int_eq(fsdp_status_exit_code((fsdp_status_t)99), 3);
    ck_assert_str_eq(fsdp_status_string(FSDP_OK), "success");
    ck_assert_str_eq(fsdp_status_string(FSDP_ERR_USAGE), "bad usage");
    ck_assert_str_eq(fsdp_status_string((fsdp_status_t)99), "unknown status");
}
END_TEST

START_TEST(error_keeps_its_message)
{
    ck_assert_int_eq(fsdp_error(FSDP_ERR_IO, "file %s: %d", "a", 7),
                     FSDP_ERR_IO);
    ck_assert_str_eq(fsdp_error_message(), "file a: 7");
    /* A caller adds where it happened to what happened. */
    fsdp_error(FSDP_ERR_IO, "row 3: %s!", fsdp_error_message());
    ck_assert_str_eq(fsdp_error_message(), "row 3: file a: 7!");
}
END_TEST

START_TEST(long_error_is_cut)
{
    char text[10000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    fsdp_error(FSDP_ERR_IO, "%s", text);
    size_t length = strlen(fsdp_error_message());
    ck_assert(length >= 1000 && length < sizeof text - 1);
    ck_assert(strspn(fsdp_error_message(), "x") == length);
}
END_TEST

static void
die_plainly(void)
{
    printf("half a line"); /* no newline: it waits in stdio's buffer */
    fsdp_die(2, "no such model: %s (%d%%)", "gpt9", 50);
}

START_TEST(die_says_one_line)
{
    ending_t e = serial_ending_of(die_plainly);
    ck_assert_int_eq(e.status, 2);
    ck_assert_str_eq(e.said, "fsdp: no such model: gpt9 (50%)\n");
    ck_assert_int_eq(e.writes, 1);
    ck_assert_str_eq(e.printed, "half a line");
}
END_TEST

static void
end_all_by_exit(int code)
{
    _exit(code + 40);
}

static void
die_as_rank_3(void)
{
    fsdp_set_process(3, end_all_by_exit);
    fsdp_die(1, "differs");
}

START_TEST(die_names_its_rank_and_ends_all)
{
    ending_t e = serial_ending_of(die_as_rank_3);
    ck_assert_int_eq(e.status, 41);
    ck_assert_str_eq(e.said, "fsdp: rank 3: differs\n");
    ck_assert_int_eq(e.writes, 1);
}
END_TEST

static void
die_long(void)
{
    char text[10000];
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    fsdp_set_process(123456789, end_all_by_exit);
    fsdp_die(1, "%s", text);
}

START_TEST(long_last_words_are_cut)
{
    static const char begin[] = "fsdp: rank 123456789: yyy", end[] = "yyy...\n";
    ending_t e = serial_ending_of(die_long);
    size_t length = strlen(e.said);
    ck_assert_int_eq(e.writes, 1);
    ck_assert(length > 1000 && length < 9000);
    ck_assert(strncmp(e.said, begin, strlen(begin)) == 0);
    ck_assert_str_eq(e.said + length - strlen(end), end);
}
END_TEST

static void
end_all_that_fails(int code)
{
    fsdp_die(code + 1, "the end failed as well");
}

static void
die_twice(void)
{
    fsdp_set_process(-1, end_all_that_fails);
    fsdp_die(5, "first");
}

START_TEST(dying_while_dying_ends)
{
    ending_t e = serial_ending_of(die_twice);
    ck_assert_int_eq(e.status, 6);
    ck_assert_str_eq(e.said, "fsdp: first\n");
}
END_TEST

static void *
die_in_thread(void *unused)
{
    (void)unused;
    fsdp_die(4, "a thread");
}

static void
end_all_slowly(int code)
{
    usleep(50000); /* the others have time to die too */
    _exit(code);
}

static void
die_in_four_threads(void)
{
    pthread_t thread[4];
    fsdp_set_process(-1, end_all_slowly);
    for (int i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, die_in_thread, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
}

START_TEST(one_thread_speaks)
{
    ending_t e = serial_ending_of(die_in_four_threads);
    ck_assert_int_eq(e.status, 4);
    ck_assert_str_eq(e.said, "fsdp: a thread\n");
    ck_assert_int_eq(e.writes, 1);
}
END_TEST

static void
fail_check(void)
{
    int ranks = 7;
    FSDP_CHECK(ranks % 7 == 0, "never said");
    FSDP_CHECK(ranks % 2 == 0, "%d ranks are odd", ranks);
}

START_TEST(failed_check_says_where_and_why)
{
    ending_t e = serial_ending_of(fail_check);
    ck_assert_int_eq(e.status, FSDP_EXIT_FAULT);
    ck_assert_int_eq(e.writes, 1);
    ck_assert(strstr(e.said, "never said") == NULL);
    ck_assert(strstr(e.said, "test_status.c:") != NULL);
    ck_assert(strstr(e.said, ": 7 ranks are odd (check failed: "
                             "ranks % 2 == 0)\n") != NULL);
}
END_TEST

static void
fail_check_of_the_library(void)
{
    fsdp_check_failed("../../somewhere/src/src/base/x.c", 12, "a == b", "why");
}

START_TEST(place_begins_at_src)
{
    ending_t e = serial_ending_of(fail_check_of_the_library);
    ck_assert_str_eq(e.said,
                     "fsdp: src/base/x.c:12: why (check failed: a == b)\n");
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("status");
    TCase *tcase = tcase_create("status");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, texts_and_exit_codes);
    tcase_add_test(tcase, error_keeps_its_message);
    tcase_add_test(tcase, long_error_is_cut);
    tcase_add_test(tcase, die_says_one_line);
    tcase_add_test(tcase, die_names_its_rank_and_ends_all);
    tcase_add_test(tcase, long_last_words_are_cut);
    tcase_add_test(tcase, dying_while_dying_ends);
    tcase_add_test(tcase, one_thread_speaks);
    tcase_add_test(tcase, failed_check_says_where_and_why);
    tcase_add_test(tcase, place_begins_at_src);
    return serial_run(suite);
}
