/* Ranks: 1 2 3 4 5 8 */
/* The all-to-all: each pair of ranks has a count of its own, which may be 0. */
#include <stdio.h>

#include "mck.h"
#include "numbers.h"

enum { MOST_RANKS = 8, MOST = 7, PATTERNS = 5 };

static fsdp_comm_t *world;
static int size, rank;

static void
begin(void)
{
    world = fsdp_comm_world();
    size = fsdp_comm_size(world);
    rank = fsdp_comm_rank(world);
}

/* What q gives r: nothing at all, one each, all to the last rank, and two uneven
 * ways with zeros among them. */
static size_t
count_of(int pattern, int q, int r)
{
    switch (pattern) {
    case 0:
        return 0;
    case 1:
        return 1;
    case 2:
        return r == size - 1 ? MOST : 0;
    case 3:
        return (size_t)(3 * q + 5 * r) % (MOST + 1);
    default:
        return q == r ? MOST : (size_t)(q + 2 * r) % 3;
    }
}

/* Element i of what q gives r; every dtype holds it. */
static double
value_of(int q, int r, size_t i)
{
    return (double)((q * 29 + r * 7 + (int)i) % 128);
}

typedef struct exchange {
    size_t send[MOST_RANKS], receive[MOST_RANKS];
    size_t sent, received, away; /* elements; those for other ranks */
    void *in, *out;
    fsdp_work_t *work;
} exchange_t;

static exchange_t
prepare(int pattern, fsdp_dtype_t dtype)
{
    exchange_t x = {0};
    for (int r = 0; r < size; r++) {
        x.send[r] = count_of(pattern, rank, r);
        x.receive[r] = count_of(pattern, r, rank);
        x.sent += x.send[r];
        x.received += x.receive[r];
        x.away += r != rank ? x.send[r] : 0;
    }
    x.in = bordered(x.sent * fsdp_dtype_size(dtype));
    x.out = bordered(x.received * fsdp_dtype_size(dtype));
    size_t at = 0;
    for (int r = 0; r < size; r++)
        for (size_t i = 0; i < x.send[r]; i++)
            element_set(dtype, x.in, at++, value_of(rank, r, i));
    return x;
}

static bool
finish(exchange_t *x, fsdp_dtype_t dtype)
{
    bool good = border_untouched(x->out, x->received * fsdp_dtype_size(dtype));
    size_t at = 0;
    for (int q = 0; q < size; q++)
        for (size_t i = 0; i < x->receive[q]; i++)
            good = good &&
                   element_get(dtype, x->out, at++) == value_of(q, rank, i);
    free(x->in);
    free(x->out);
    return good;
}

START_TEST(every_pattern)
{
    begin();
    bool good = true;
    for (int d = 0; d < DTYPES; d++)
        for (int p = 0; p < PATTERNS; p++) {
            exchange_t x = prepare(p, all_dtypes[d]);
            fsdp_all_to_all(world, "u", all_dtypes[d], x.in, x.send, x.out,
                            x.receive);
            good = finish(&x, all_dtypes[d]) && good;
        }
    mck_assert(good);
}
END_TEST

/* Several at once, waited for in the opposite order; counts are not borrowed. */
START_TEST(several_in_flight)
{
    begin();
    exchange_t x[PATTERNS];
    for (int p = 0; p < PATTERNS; p++) {
        x[p] = prepare(p, FSDP_FP32);
        exchange_t copy = x[p];
        x[p].work = fsdp_all_to_all_start(world, "u", FSDP_FP32, x[p].in,
                                          copy.send, x[p].out, copy.receive);
        memset(&copy, 0xff, sizeof copy);
    }
    bool good = true;
    for (int p = PATTERNS - 1; p >= 0; p--) {
        fsdp_work_wait(&x[p].work);
        good = finish(&x[p], FSDP_FP32) && good;
    }
    mck_assert(good);
}
END_TEST

/* Ranks give away different numbers of elements; that is no mismatch. */
START_TEST(ledger_and_counters)
{
    begin();
    fsdp_ledger_mode_t mode = fsdp_ledger_get_mode();
    fsdp_ledger_set_mode(FSDP_LEDGER_CHECK);
    fsdp_comm_t *twin = fsdp_comm_dup(world, "twin");
    exchange_t x = prepare(3, FSDP_FP64);
    fsdp_all_to_all(twin, "experts", FSDP_FP64, x.in, x.send, x.out, x.receive);
    fsdp_ledger_set_mode(mode);
    char line[256], want[256];
    fsdp_ledger_format(fsdp_ledger_latest(twin, 0), line, sizeof line);
    snprintf(want, sizeof want,
             "#1 all_to_all twin experts float64 %zu elements %zu bytes",
             x.sent, x.sent * 8);
    fsdp_comm_counter_t c = fsdp_comm_counter(twin, FSDP_ALL_TO_ALL);
    bool good =
        strcmp(line, want) == 0 && c.calls == 1 && c.bytes_sent == x.away * 8;
    mck_assert(finish(&x, FSDP_FP64) && good);
    fsdp_comm_destroy(&twin);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("all_to_all");
    TCase *tcase = tcase_create("all_to_all");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, every_pattern);
    tcase_add_test(tcase, several_in_flight);
    tcase_add_test(tcase, ledger_and_counters);
    return mck_run(argc, argv, suite);
}
