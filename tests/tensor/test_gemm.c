/* Ranks: 1 */
/* Matrix products against plain loops, and the promise that the bits of a row
 * or a column do not depend on what stands beside it. */
#include "mck.h"

#include "fsdp/tensor.h"
#include "tensor/kernels.h"
#include "twin/gemm.h"
#include "twin/numbers.h"

static const fsdp_dtype_t dtypes[] = {FSDP_FP32, FSDP_FP64};

/* One product and its operands, row strides a little larger than needed. */
typedef struct product {
    twin_gemm_t g;
    numbers_t a, b, c;
} product_t;

static product_t
make_product(fsdp_dtype_t dtype, int transposes, size_t m, size_t n, size_t k,
             double alpha, double beta)
{
    bool trans_a = transposes & 1, trans_b = transposes & 2;
    product_t p = {.g = {.trans_a = trans_a,
                         .trans_b = trans_b,
                         .m = m,
                         .n = n,
                         .k = k,
                         .lda = (trans_a ? m : k) + 3,
                         .ldb = (trans_b ? k : n) + 1,
                         .ldc = n + 2,
                         .alpha = twin_round(dtype, alpha),
                         .beta = twin_round(dtype, beta)}};
    p.a = numbers_random(dtype, (trans_a ? k : m) * p.g.lda, 1, 1);
    p.b = numbers_random(dtype, (trans_b ? n : k) * p.g.ldb, 2, 1);
    p.c = beta == 0 ? numbers_make(dtype, m * p.g.ldc)
                    : numbers_random(dtype, m * p.g.ldc, 3, 1);
    return p;
}

static void
free_product(product_t *p)
{
    numbers_free(p->a);
    numbers_free(p->b);
    numbers_free(p->c);
}

static void *
at(numbers_t x, size_t i)
{
    return (char *)x.data + i * fsdp_dtype_size(x.dtype);
}

/* Rows [i, i + rows) and columns [j, j + columns) of the product, into c. */
static void
multiply_part(const product_t *p, size_t i, size_t rows, size_t j,
              size_t columns, numbers_t c)
{
    const twin_gemm_t *g = &p->g;
    fsdp_kernels(p->a.dtype)
        ->gemm(g->trans_a, g->trans_b, rows, columns, g->k, g->alpha,
               at(p->a, g->trans_a ? i : i * g->lda), g->lda,
               at(p->b, g->trans_b ? j * g->ldb : j), g->ldb, g->beta,
               at(c, i * g->ldc + j), g->ldc);
}

/* The n columns of each row; what is between them must be as it was. */
static bool
agrees(const product_t *p, numbers_t before)
{
    const twin_gemm_t *g = &p->g;
    bounded_t *want = twin_alloc(g->m * g->ldc, sizeof *want);
    for (size_t i = 0; i < g->m * g->ldc; i++)
        want[i] = b_exact(numbers_get(before, i));
    twin_gemm(g, p->a, p->b, before, want);
    bool good = numbers_agree("gemm", p->c, want);
    fsdp_free(want);
    return good;
}

static void
check_product(fsdp_dtype_t dtype, int transposes, size_t m, size_t n, size_t k,
              double alpha, double beta)
{
    product_t p = make_product(dtype, transposes, m, n, k, alpha, beta);
    numbers_t before = numbers_copy(p.c);
    twin_begin(dtype);
    multiply_part(&p, 0, m, 0, n, p.c);
    bool good = agrees(&p, before);
    ck_assert_msg(good, "%zu x %zu x %zu, transposes %d", m, n, k, transposes);
    numbers_free(before);
    free_product(&p);
}

START_TEST(products)
{
    static const size_t sizes[][3] = {
        {1, 1, 1},    {3, 5, 17},   {17, 1, 257},  {1, 257, 3},
        {5, 17, 300}, {47, 48, 49}, {257, 3, 513}, {64, 10, 32},
        {0, 4, 4},    {4, 0, 4},    {4, 4, 0},     {255, 49, 1},
    };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int t = 0; t < 8; t++) {
            const size_t *z = sizes[s];
            check_product(dtypes[t / 4], t % 4, z[0], z[1], z[2], 1, 0);
            check_product(dtypes[t / 4], t % 4, z[0], z[1], z[2], 1, 1);
            check_product(dtypes[t / 4], t % 4, z[0], z[1], z[2], -0.3, 0.7);
        }
}
END_TEST

/* One element more or less than whole tiles of 256 x 384 or 256 x 768. */
START_TEST(tile_borders)
{
    static const size_t sizes[][3] = {
        {255, 383, 7}, {256, 384, 8}, {257, 385, 9},  {513, 769, 3},
        {1, 1537, 5},  {2049, 2, 5},  {1025, 767, 2}, {300, 3073, 2},
    };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int t = 0; t < 8; t++)
            check_product(dtypes[t / 4], t % 4, sizes[s][0], sizes[s][1],
                          sizes[s][2], 1, 0);
}
END_TEST

/* Computes parts of `p` into a copy of its C and compares all bits. */
static void
check_part(const product_t *p, numbers_t before, size_t i, size_t rows,
           size_t j, size_t columns)
{
    const twin_gemm_t *g = &p->g;
    numbers_t c = numbers_copy(before);
    multiply_part(p, i, rows, j, columns, c);
    for (size_t r = i; r < i + rows; r++) {
        bool same = memcmp(at(c, r * g->ldc + j), at(p->c, r * g->ldc + j),
                           columns * fsdp_dtype_size(c.dtype)) == 0;
        ck_assert_msg(same,
                      "%s, transposes %d%d, %zu x %zu x %zu: row %zu differs "
                      "when computed with rows %zu + %zu, columns %zu + %zu",
                      fsdp_dtype_name(c.dtype), g->trans_a, g->trans_b, g->m,
                      g->n, g->k, r, i, rows, j, columns);
    }
    numbers_free(c);
}

/* Every slice of the lengths given, at every place. */
static void
check_slices(fsdp_dtype_t dtype, int transposes, size_t m, size_t n, size_t k,
             double alpha, double beta)
{
    static const size_t lengths[] = {1, 2, 3, 5, 7, 16, 33};
    product_t p = make_product(dtype, transposes, m, n, k, alpha, beta);
    numbers_t before = numbers_copy(p.c);
    multiply_part(&p, 0, m, 0, n, p.c);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        for (size_t i = 0; i + lengths[l] <= m; i++)
            check_part(&p, before, i, lengths[l], 0, n);
        for (size_t j = 0; j + lengths[l] <= n; j++)
            check_part(&p, before, 0, m, j, lengths[l]);
    }
    numbers_free(before);
    free_product(&p);
}

START_TEST(slices_have_the_same_bits)
{
    for (int t = 0; t < 8; t++) {
        check_slices(dtypes[t / 4], t % 4, 41, 37, 300, 1, 0);
        check_slices(dtypes[t / 4], t % 4, 41, 37, 530, 1, 1);
        check_slices(dtypes[t / 4], t % 4, 37, 35, 257, 0.3, 0.7);
        check_slices(dtypes[t / 4], t % 4, 34, 48, 64, 1, 0);
    }
}
END_TEST

/* The same over the borders of tiles. */
START_TEST(slices_over_tiles)
{
    for (int t = 0; t < 8; t++) {
        product_t p = make_product(dtypes[t / 4], t % 4, 600, 820, 260, 1, 0);
        numbers_t before = numbers_copy(p.c);
        multiply_part(&p, 0, 600, 0, 820, p.c);
        check_part(&p, before, 250, 13, 0, 820);
        check_part(&p, before, 199, 202, 0, 820);
        check_part(&p, before, 599, 1, 0, 820);
        check_part(&p, before, 0, 600, 380, 9);
        check_part(&p, before, 0, 600, 273, 547);
        check_part(&p, before, 100, 300, 400, 400);
        numbers_free(before);
        free_product(&p);
    }
}
END_TEST

START_TEST(threads_do_not_show)
{
    for (int t = 0; t < 8; t++) {
        product_t p = make_product(dtypes[t / 4], t % 4, 700, 900, 270, 1, 0);
        multiply_part(&p, 0, 700, 0, 900, p.c);
        for (int threads = 2; threads <= 4; threads++) {
            numbers_t c = numbers_make(p.c.dtype, p.c.n);
            fsdp_set_num_threads(threads);
            multiply_part(&p, 0, 700, 0, 900, c);
            fsdp_set_num_threads(1);
            bool same = numbers_same_bits(c, p.c);
            ck_assert_msg(same, "%d threads", threads);
            numbers_free(c);
        }
        free_product(&p);
    }
}
END_TEST

/* A NaN or an infinity in a row of A stays in that row of C. */
START_TEST(nan_stays_in_its_row)
{
    for (int t = 0; t < 8; t++) {
        product_t p = make_product(dtypes[t / 4], t % 4, 20, 30, 40, 1, 0);
        twin_gemm_t *g = &p.g;
        numbers_set(p.a, g->trans_a ? 7 * g->lda + 11 : 11 * g->lda + 7, NAN);
        multiply_part(&p, 0, 20, 0, 30, p.c);
        for (size_t i = 0; i < 20; i++)
            for (size_t j = 0; j < 30; j++)
                ck_assert_int_eq(isnan(numbers_get(p.c, i * g->ldc + j)) != 0,
                                 i == 11);
        free_product(&p);
    }
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("gemm");
    TCase *tcase = tcase_create("gemm");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, products);
    tcase_add_test(tcase, tile_borders);
    tcase_add_test(tcase, slices_have_the_same_bits);
    tcase_add_test(tcase, slices_over_tiles);
    tcase_add_test(tcase, threads_do_not_show);
    tcase_add_test(tcase, nan_stays_in_its_row);
    return mck_run(argc, argv, suite);
}
