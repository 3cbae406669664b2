/* One truth for all ranks. */
#include "mck.h"

#include <string.h>

static fsdp_comm_t *world;
static int size, rank;

static void
set_up(void)
{
    world = fsdp_comm_world();
    size = fsdp_comm_size(world);
    rank = fsdp_comm_rank(world);
}

START_TEST(all_true)
{
    ck_assert(fsdp_comm_all_true(world, true));
    ck_assert(!fsdp_comm_all_true(world, false));
    for (int r = 0; r < size; r++)
        ck_assert(!fsdp_comm_all_true(world, rank != r));
}
END_TEST

START_TEST(all_is_well)
{
    fsdp_error(FSDP_ERR_INPUT, "of before, by rank %d", rank);
    ck_assert_int_eq((int)fsdp_comm_agree(world, FSDP_OK), FSDP_OK);
}
END_TEST

/* A mistake that all see alike is told as it is. */
START_TEST(all_alike)
{
    fsdp_status_t status = fsdp_error(FSDP_ERR_USAGE, "no such option");
    ck_assert_int_eq((int)fsdp_comm_agree(world, status), FSDP_ERR_USAGE);
    ck_assert_str_eq(fsdp_error_message(), "no such option");
}
END_TEST

START_TEST(one_rank)
{
    for (int r = 0; r < size; r++) {
        char expected[64];
        fsdp_status_t status = FSDP_OK;
        snprintf(expected, sizeof expected,
                 size == 1 ? "disk %d full" : "rank %d: disk %d full", r, r);
        if (rank == r)
            status = fsdp_error(FSDP_ERR_IO, "disk %d full", r);
        ck_assert_int_eq((int)fsdp_comm_agree(world, status), FSDP_ERR_IO);
        ck_assert_str_eq(fsdp_error_message(), expected);
    }
}
END_TEST

/* The lowest rank that failed speaks for all, whatever the others say. */
START_TEST(different_ranks)
{
    if (size < 3)
        return;
    fsdp_status_t status = FSDP_OK;
    if (rank == 1)
        status = fsdp_error(FSDP_ERR_INPUT, "file is empty");
    if (rank == 2)
        status = fsdp_error(FSDP_ERR_IO, "file is gone");
    ck_assert_int_eq((int)fsdp_comm_agree(world, status), FSDP_ERR_INPUT);
    ck_assert_str_eq(fsdp_error_message(), "rank 1: file is empty");
}
END_TEST

/* The same status with messages that differ; and a long one. */
START_TEST(different_messages)
{
    char text[1200], expected[1300];
    memset(text, 'a' + rank % 26, sizeof text - 1);
    text[sizeof text - 1] = '\0';
    fsdp_status_t status = fsdp_error(FSDP_ERR_INPUT, "%s", text);
    ck_assert_int_eq((int)fsdp_comm_agree(world, status), FSDP_ERR_INPUT);
    memset(text, 'a', sizeof text - 1);
    snprintf(expected, sizeof expected, "%s%s",
             size == 1 ? "" : "rank 0: ", text);
    ck_assert_str_eq(fsdp_error_message(), expected);
}
END_TEST

/* On a communicator of its own the rank named is that of the world. */
START_TEST(rank_of_the_world)
{
    fsdp_comm_t *half = fsdp_comm_split(world, rank % 2, -rank, "half");
    int members = fsdp_comm_size(half), last = size - 1 - (size - 1 - rank) % 2;
    fsdp_status_t status = FSDP_OK;
    char expected[64];
    if (fsdp_comm_rank(half) == 0)
        status = fsdp_error(FSDP_ERR_IO, "disk full");
    snprintf(expected, sizeof expected,
             members == 1 ? "disk full" : "rank %d: disk full", last);
    status = fsdp_comm_agree(half, status);
    bool good =
        status == FSDP_ERR_IO && strcmp(fsdp_error_message(), expected) == 0;
    fsdp_comm_destroy(&half);
    mck_assert(good);
}
END_TEST

START_TEST(world_is_there)
{
    ck_assert(fsdp_is_initialized());
    mck_assert(rank >= 0 && rank < size);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("agree");
    TCase *tcase = tcase_create("agree");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_test(tcase, world_is_there);
    tcase_add_test(tcase, all_true);
    tcase_add_test(tcase, all_is_well);
    tcase_add_test(tcase, all_alike);
    tcase_add_test(tcase, one_rank);
    tcase_add_test(tcase, different_ranks);
    tcase_add_test(tcase, different_messages);
    tcase_add_test(tcase, rank_of_the_world);
    return mck_run(argc, argv, suite);
}
