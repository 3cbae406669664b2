/* Ranks: 1 */
/* Attention with grouped queries: forward and dq have the very bits of packed
 * attention with the key heads repeated; dk and dv are within the twin's bound;
 * nothing depends on threads. */
#include "mck.h"

#include "fsdp/tensor.h"
#include "tensor/kernels.h"
#include "twin/bounded.h"
#include "twin/grouped.h"
#include "twin/numbers.h"

enum { Q, K, V, DOUT, INPUTS };
enum { OUT, LSE, DQ, DK, DV, OUTPUTS };

typedef struct grouped {
    fsdp_attention_shape_t shape;
    fsdp_dropout_key_t key;
    twin_grouped_t twin;
    numbers_t in[INPUTS], out[OUTPUTS];
    double *exact[3];
} grouped_t;

static grouped_t
make(fsdp_dtype_t dtype, size_t batch, size_t positions, size_t heads,
     size_t kv_heads, size_t depth, double p)
{
    size_t rows = batch * positions, n = rows * heads * depth;
    size_t kv = rows * kv_heads * depth;
    size_t in[] = {n, kv, kv, n}, out[] = {n, rows * heads, n, kv, kv};
    grouped_t g = {
        .shape = {.batch = batch,
                  .positions = positions,
                  .channels = heads * depth,
                  .heads = heads,
                  .kv_heads = kv_heads},
        .key = {.p = p, .seed = 3, .step = 2, .layer = 5},
        .twin = {batch, positions, heads, kv_heads, depth, NULL, NULL, NULL},
    };
    for (uint32_t i = 0; i < INPUTS; i++)
        g.in[i] = numbers_random(dtype, in[i], i + 1, 2);
    for (int i = 0; i < OUTPUTS; i++)
        g.out[i] = numbers_make(dtype, out[i]);
    for (int i = 0; i < 3; i++) {
        g.exact[i] = twin_alloc(in[i], sizeof(double));
        for (size_t j = 0; j < in[i]; j++)
            g.exact[i][j] = numbers_get(g.in[i], j);
    }
    g.twin.q = g.exact[Q];
    g.twin.k = g.exact[K];
    g.twin.v = g.exact[V];
    return g;
}

static void
destroy(grouped_t *g)
{
    for (int i = 0; i < INPUTS; i++)
        numbers_free(g->in[i]);
    for (int i = 0; i < OUTPUTS; i++)
        numbers_free(g->out[i]);
    for (int i = 0; i < 3; i++)
        fsdp_free(g->exact[i]);
}

static void
run(grouped_t *g)
{
    const fsdp_kernels_t *k = fsdp_kernels(g->in[Q].dtype);
    k->grouped_attention(g->shape, g->in[Q].data, g->in[K].data, g->in[V].data,
                         g->out[OUT].data, g->out[LSE].data, &g->key);
    k->grouped_attention_backward(
        g->shape, g->in[Q].data, g->in[K].data, g->in[V].data, g->out[OUT].data,
        g->out[LSE].data, g->in[DOUT].data, g->out[DQ].data, g->out[DK].data,
        g->out[DV].data, &g->key);
}

/* ---- packed attention --------------------------------------------------- */

static bool
same_as_packed(const grouped_t *g)
{
    fsdp_dtype_t dtype = g->in[Q].dtype;
    size_t n = g->in[Q].n, heads = g->shape.heads, depth = g->twin.depth;
    double *packed = twin_alloc(3 * n, sizeof *packed);
    numbers_t qkv = numbers_make(dtype, 3 * n),
              dqkv = numbers_make(dtype, 3 * n);
    numbers_t out = numbers_make(dtype, n);
    numbers_t lse = numbers_make(dtype, g->out[LSE].n);
    fsdp_attention_shape_t shape = g->shape;
    shape.kv_heads = 0;
    twin_grouped_pack(&g->twin, packed);
    for (size_t i = 0; i < 3 * n; i++)
        numbers_set(qkv, i, packed[i]);
    const fsdp_kernels_t *k = fsdp_kernels(dtype);
    k->attention(shape, qkv.data, out.data, lse.data, &g->key);
    k->attention_backward(shape, qkv.data, out.data, lse.data, g->in[DOUT].data,
                          dqkv.data, &g->key);
    bool same = numbers_same_bits(out, g->out[OUT]) &&
                numbers_same_bits(lse, g->out[LSE]);
    for (size_t i = 0; i < n; i++) {
        size_t row = i / (heads * depth), h = i / depth % heads;
        same &=
            numbers_get(dqkv, twin_packed_at(&g->twin, row, 0, h, i % depth)) ==
            numbers_get(g->out[DQ], i);
    }
    fsdp_free(packed);
    numbers_free(qkv);
    numbers_free(dqkv);
    numbers_free(out);
    numbers_free(lse);
    return same;
}

/* _i: bit 0 the type, bit 1 dropout */
START_TEST(forward_is_packed_attention)
{
    const size_t positions[] = {1, 13, 64, 65, 130}, depths[] = {2, 5, 16};
    const size_t kv_heads[] = {1, 2, 3, 6};
    for (size_t i = 0; i < 5 * 3 * 4; i++) {
        grouped_t g =
            make(_i & 1 ? FSDP_FP64 : FSDP_FP32, 2, positions[i / 12], 6,
                 kv_heads[i % 4], depths[i / 4 % 3], _i & 2 ? 0.3 : 0);
        run(&g);
        bool same = same_as_packed(&g);
        destroy(&g);
        ck_assert_msg(same, "T %zu D %zu G %zu", positions[i / 12],
                      depths[i / 4 % 3], kv_heads[i % 4]);
    }
}
END_TEST

/* ---- twin --------------------------------------------------------------- */

static bool
agrees(const grouped_t *g)
{
    fsdp_dtype_t dtype = g->in[Q].dtype;
    twin_begin(dtype);
    twin_arithmetic_t arithmetic = {twin_u, twin_tiny,
                                    dtype == FSDP_FP64 ? 32 : 64, 0};
    double *value[OUTPUTS], *bound[OUTPUTS];
    double *dout = twin_alloc(g->in[DOUT].n, sizeof *dout);
    for (int i = 0; i < OUTPUTS; i++) {
        value[i] = twin_alloc(g->out[i].n, sizeof(double));
        bound[i] = twin_alloc(g->out[i].n, sizeof(double));
    }
    for (size_t i = 0; i < g->in[DOUT].n; i++)
        dout[i] = numbers_get(g->in[DOUT], i);
    twin_grouped_forward(&g->twin, &arithmetic, value, bound);
    twin_grouped_backward(&g->twin, &arithmetic, dout, value, bound);
    bool good = true;
    for (int i = 0; i < OUTPUTS; i++) {
        for (size_t j = 0; j < g->out[i].n; j++)
            good &= twin_is(numbers_get(g->out[i], j),
                            (bounded_t){value[i][j], bound[i][j]});
        good &= numbers_guarded(g->out[i]);
        fsdp_free(value[i]);
        fsdp_free(bound[i]);
    }
    fsdp_free(dout);
    return good;
}

START_TEST(agrees_with_twin)
{
    const size_t positions[] = {1, 2, 13, 64, 65, 129};
    const size_t kv_heads[] = {1, 2, 4};
    for (size_t i = 0; i < 6 * 3; i++) {
        grouped_t g = make(_i ? FSDP_FP64 : FSDP_FP32, 2, positions[i / 3], 4,
                           kv_heads[i % 3], 6, 0);
        run(&g);
        bool good = agrees(&g);
        destroy(&g);
        ck_assert_msg(good, "T %zu G %zu", positions[i / 3], kv_heads[i % 3]);
    }
}
END_TEST

START_TEST(threads)
{
    grouped_t one = make(_i & 1 ? FSDP_FP64 : FSDP_FP32, 3, 150, 6, 2, 10,
                         _i & 2 ? 0.3 : 0);
    run(&one);
    bool same = true;
    for (int t = 2; t <= 4; t++) {
        grouped_t many = make(one.in[Q].dtype, 3, 150, 6, 2, 10, one.key.p);
        fsdp_set_num_threads(t);
        run(&many);
        fsdp_set_num_threads(1);
        for (int i = 0; i < OUTPUTS; i++)
            same &= numbers_same_bits(one.out[i], many.out[i]);
        destroy(&many);
    }
    destroy(&one);
    ck_assert(same);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("grouped attention");
    TCase *tcase = tcase_create("grouped");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, forward_is_packed_attention, 0, 4);
    tcase_add_loop_test(tcase, agrees_with_twin, 0, 2);
    tcase_add_loop_test(tcase, threads, 0, 4);
    return mck_run(argc, argv, suite);
}
