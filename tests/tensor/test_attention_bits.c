/* Ranks: 1 */
/* What the bits of attention must not depend on: the number of threads, the
 * other samples, and the positions behind. */
#include <stdlib.h>
#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/tensor.h"
#include "mck.h"
#include "tensor/attention_case.h"

/* A copy of out, lse and dqkv, one after another. */
static char *
results_of(const case_t *c)
{
    size_t out = c->out_numel * c->size, lse = c->lse_numel * c->size;
    size_t dqkv = c->qkv_numel * c->size;
    char *all = malloc(out + lse + dqkv);
    memcpy(all, c->out, out);
    memcpy(all + out, c->lse, lse);
    memcpy(all + out + lse, c->dqkv, dqkv);
    return all;
}

static bool
same_as(const case_t *c, const char *all)
{
    size_t out = c->out_numel * c->size, lse = c->lse_numel * c->size;
    return memcmp(all, c->out, out) == 0 &&
           memcmp(all + out, c->lse, lse) == 0 &&
           memcmp(all + out + lse, c->dqkv, c->qkv_numel * c->size) == 0;
}

static void
spoil_results(case_t *c)
{
    memset(c->out, 0xff, c->out_numel * c->size);
    memset(c->lse, 0xff, c->lse_numel * c->size);
    memset(c->dqkv, 0xff, c->qkv_numel * c->size);
}

static void
run(case_t *c, int threads)
{
    spoil_results(c);
    fsdp_set_num_threads(threads);
    case_forward(c);
    case_backward(c);
    fsdp_set_num_threads(1);
}

/* _i: bit 0 the type, bit 1 dropout */
static case_t
case_for(int i, size_t batch, size_t positions)
{
    return case_create(i & 1 ? FSDP_FP64 : FSDP_FP32, batch, positions, 3, 21,
                       2.0, i & 2 ? 0.3 : 0);
}

START_TEST(threads)
{
    case_t c = case_for(_i, 2, 150);
    run(&c, 1);
    char *expected = results_of(&c);
    bool same = true;
    for (int t = 2; t <= 4; t++)
        for (int repeat = 0; repeat < 3; repeat++) {
            run(&c, t);
            same = same && same_as(&c, expected);
        }
    free(expected);
    case_destroy(&c);
    ck_assert(same);
}
END_TEST

/* Sample b of `whole` alone, with dropout's numbers for that sample. */
static case_t
slice(const case_t *whole, size_t b)
{
    size_t t = whole->shape.positions, channels = whole->shape.channels;
    case_t one = case_create(whole->dtype, 1, t, whole->shape.heads,
                             channels / whole->shape.heads, 2.0, whole->key.p);
    one.key.first_sample = whole->key.first_sample + (uint32_t)b;
    memcpy(one.qkv, (char *)whole->qkv + b * one.qkv_numel * one.size,
           one.qkv_numel * one.size);
    memcpy(one.dout, (char *)whole->dout + b * one.out_numel * one.size,
           one.out_numel * one.size);
    return one;
}

static bool
slice_agrees(const case_t *whole, size_t b)
{
    case_t one = slice(whole, b);
    size_t out = one.out_numel * one.size, lse = one.lse_numel * one.size;
    size_t dqkv = one.qkv_numel * one.size;
    run(&one, 1);
    bool same = memcmp(one.out, (char *)whole->out + b * out, out) == 0 &&
                memcmp(one.lse, (char *)whole->lse + b * lse, lse) == 0 &&
                memcmp(one.dqkv, (char *)whole->dqkv + b * dqkv, dqkv) == 0;
    case_destroy(&one);
    return same;
}

START_TEST(other_samples)
{
    case_t whole = case_for(_i, 3, 75);
    run(&whole, 1);
    bool same = true;
    for (size_t b = 0; b < 3; b++)
        same = same && slice_agrees(&whole, b);
    case_destroy(&whole);
    ck_assert(same);
}
END_TEST

/* The first T positions alone: out is a prefix, lse one of each head. */
static bool
prefix_agrees(const case_t *whole, size_t positions)
{
    case_t c = case_for(whole->dtype == FSDP_FP64, 1, positions);
    memcpy(c.qkv, whole->qkv, c.qkv_numel * c.size);
    run(&c, 1);
    bool same = memcmp(c.out, whole->out, c.out_numel * c.size) == 0;
    for (size_t h = 0; h < c.shape.heads; h++)
        same = same &&
               memcmp((char *)c.lse + h * positions * c.size,
                      (char *)whole->lse + h * whole->shape.positions * c.size,
                      positions * c.size) == 0;
    case_destroy(&c);
    return same;
}

START_TEST(later_positions)
{
    case_t whole = case_for(_i, 1, 150);
    run(&whole, 1);
    bool same = true;
    for (size_t positions = 1; positions <= 150; positions++)
        same = same && prefix_agrees(&whole, positions);
    case_destroy(&whole);
    ck_assert(same);
}
END_TEST

/* Under AddressSanitizer no freed block is kept for the next request. */
#ifndef __SANITIZE_ADDRESS__
START_TEST(no_system_memory_when_repeated)
{
    case_t c = case_for(_i, 2, 75);
    run(&c, 2);
    long requests = fsdp_memory_system_requests();
    for (int repeat = 0; repeat < 5; repeat++)
        run(&c, 2);
    long more = fsdp_memory_system_requests() - requests;
    case_destroy(&c);
    ck_assert_int_eq(more, 0);
}
END_TEST
#endif

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("attention, bits");
    TCase *tcase = tcase_create("bits");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, threads, 0, 4);
    tcase_add_loop_test(tcase, other_samples, 0, 4);
    tcase_add_loop_test(tcase, later_positions, 0, 2);
#ifndef __SANITIZE_ADDRESS__
    tcase_add_loop_test(tcase, no_system_memory_when_repeated, 0, 4);
#endif
    return mck_run(argc, argv, suite);
}
