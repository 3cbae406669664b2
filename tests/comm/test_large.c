/* More than 2^31 elements of one byte in one call.  Takes 9 GB, so it is no part
 * of `make check`: run it on 2 ranks by `make check-large`. */
#include "mck.h"

#include <stdlib.h>
#include <string.h>

static const size_t count = ((size_t)1 << 31) + 12345;

/* Differs from piece to piece, and where a count was cut to 32 bits. */
static uint8_t
value(int rank, size_t i)
{
    return (uint8_t)((i * 2654435761u >> 13) + (i >> 30) * 37 +
                     (size_t)rank * 101);
}

static bool
row_is(const uint8_t *row, int rank)
{
    for (size_t i = 0; i < count; i++)
        if (row[i] != value(rank, i))
            return false;
    return true;
}

START_TEST(all_gather_and_broadcast)
{
    fsdp_comm_t *world = fsdp_comm_world();
    int size = fsdp_comm_size(world), rank = fsdp_comm_rank(world);
    uint8_t *all = malloc((size_t)size * count);
    mck_assert(all != NULL);
    uint8_t *mine = all + (size_t)rank * count;
    for (size_t i = 0; i < count; i++)
        mine[i] = value(rank, i);
    fsdp_comm_reset_counters(world);
    fsdp_all_gather(world, "large", FSDP_UINT8, mine, all, count);
    uint64_t sent = fsdp_comm_counter(world, FSDP_ALL_GATHER).bytes_sent;
    bool good = true;
    for (int r = 0; r < size; r++)
        good = good && row_is(all + (size_t)r * count, r);

    if (rank != 0)
        memset(all, 0, count);
    fsdp_broadcast(world, "large", FSDP_UINT8, all, count, 0);
    good = good && row_is(all, 0);
    free(all);
    mck_assert(good && sent == (uint64_t)(size - 1) * count);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("large");
    TCase *tcase = tcase_create("above 2^31");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, all_gather_and_broadcast);
    return mck_run(argc, argv, suite);
}
