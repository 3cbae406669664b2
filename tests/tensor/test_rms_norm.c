/* Ranks: 1 */
/* RMSNorm against its twin, alone and beside other rows. */
#include "mck.h"

#include "fsdp/tensor.h"
#include "tensor/kernels.h"
#include "twin/rms_norm.h"

static const fsdp_dtype_t dtypes[] = {FSDP_FP32, FSDP_FP64};
static const size_t shapes[][2] = {
    {1, 1},   {3, 5},    {1, 16},   {5, 17},   {17, 31},
    {7, 257}, {130, 33}, {65, 129}, {33, 768}, {129, 3},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

typedef struct results {
    numbers_t y, rstd, dx, dweight;
} results_t;

static twin_rms_norm_t
make_twin(fsdp_dtype_t dtype, size_t rows, size_t channels, double scale)
{
    size_t n = rows * channels;
    return (twin_rms_norm_t){
        .rows = rows,
        .channels = channels,
        .eps = 1e-6,
        .x = numbers_random(dtype, n, 1, scale),
        .weight = numbers_random(dtype, channels, 2, 2),
        .dy = numbers_random(dtype, n, 4, 1),
        .y = twin_alloc(n, sizeof(bounded_t)),
        .dx = twin_alloc(n, sizeof(bounded_t)),
        .rstd = twin_alloc(rows, sizeof(bounded_t)),
        .dweight = twin_alloc(channels, sizeof(bounded_t)),
    };
}

static void
free_twin(twin_rms_norm_t *t)
{
    numbers_free(t->x);
    numbers_free(t->weight);
    numbers_free(t->dy);
    fsdp_free(t->y);
    fsdp_free(t->dx);
    fsdp_free(t->rstd);
    fsdp_free(t->dweight);
}

static results_t
make_results(fsdp_dtype_t dtype, size_t rows, size_t channels)
{
    return (results_t){
        numbers_make(dtype, rows * channels), numbers_make(dtype, rows),
        numbers_make(dtype, rows * channels), numbers_make(dtype, channels)};
}

static void
free_results(results_t *r)
{
    numbers_free(r->y);
    numbers_free(r->rstd);
    numbers_free(r->dx);
    numbers_free(r->dweight);
}

static void
run(const twin_rms_norm_t *t, results_t *r)
{
    const fsdp_kernels_t *k = fsdp_kernels(t->x.dtype);
    k->rms_norm(t->x.data, t->weight.data, r->y.data, r->rstd.data, t->rows,
                t->channels, t->eps);
    k->rms_norm_backward(t->x.data, t->weight.data, r->rstd.data, t->dy.data,
                         r->dx.data, r->dweight.data, t->rows, t->channels);
}

/* The backward's twin starts from the rstd that the kernel made. */
static void
check(fsdp_dtype_t dtype, size_t rows, size_t channels, double scale)
{
    twin_rms_norm_t t = make_twin(dtype, rows, channels, scale);
    results_t r = make_results(dtype, rows, channels);
    run(&t, &r);
    twin_begin(dtype);
    twin_rms_norm_forward(&t);
    bool good =
        numbers_agree("rstd", r.rstd, t.rstd) && numbers_agree("y", r.y, t.y);
    for (size_t i = 0; i < rows; i++)
        t.rstd[i] = b_exact(numbers_get(r.rstd, i));
    twin_rms_norm_backward(&t, t.rstd);
    good = good && numbers_agree("dx", r.dx, t.dx) &&
           numbers_agree("dweight", r.dweight, t.dweight);
    ck_assert_msg(good, "%zu x %zu, scale %g", rows, channels, scale);
    free_results(&r);
    free_twin(&t);
}

START_TEST(values)
{
    for (size_t s = 0; s < NUM_SHAPES; s++)
        for (int t = 0; t < 2; t++) {
            check(dtypes[t], shapes[s][0], shapes[s][1], 1);
            check(dtypes[t], shapes[s][0], shapes[s][1], 1e-3);
            check(dtypes[t], shapes[s][0], shapes[s][1], 1e10);
            check(dtypes[t], shapes[s][0], shapes[s][1], 1e-30);
        }
}
END_TEST

/* Without dweight, and with dx over dy: the same bits. */
START_TEST(optional_results)
{
    for (int t = 0; t < 2; t++) {
        twin_rms_norm_t twin = make_twin(dtypes[t], 70, 150, 1);
        results_t r = make_results(dtypes[t], 70, 150);
        run(&twin, &r);
        numbers_t dx = numbers_make(dtypes[t], 70 * 150);
        numbers_t dweight = numbers_make(dtypes[t], 150);
        const fsdp_kernels_t *k = fsdp_kernels(dtypes[t]);
        k->rms_norm_backward(twin.x.data, twin.weight.data, r.rstd.data,
                             twin.dy.data, dx.data, NULL, 70, 150);
        k->rms_norm_backward(twin.x.data, twin.weight.data, r.rstd.data,
                             twin.dy.data, twin.dy.data, dweight.data, 70, 150);
        ck_assert(numbers_same_bits(dx, r.dx));
        ck_assert(numbers_same_bits(twin.dy, r.dx));
        ck_assert(numbers_same_bits(dweight, r.dweight));
        numbers_free(dx);
        numbers_free(dweight);
        free_results(&r);
        free_twin(&twin);
    }
}
END_TEST

/* A row alone gives the bits that it has among 50. */
START_TEST(one_row_alone)
{
    for (int t = 0; t < 2; t++) {
        size_t c = 100, bytes = c * fsdp_dtype_size(dtypes[t]);
        twin_rms_norm_t all = make_twin(dtypes[t], 50, c, 1);
        twin_rms_norm_t one = make_twin(dtypes[t], 1, c, 1);
        results_t r = make_results(dtypes[t], 50, c);
        results_t s = make_results(dtypes[t], 1, c);
        bool same = true;
        run(&all, &r);
        for (size_t row = 0; row < 50; row += 7) {
            memcpy(one.x.data, (char *)all.x.data + row * bytes, bytes);
            memcpy(one.dy.data, (char *)all.dy.data + row * bytes, bytes);
            run(&one, &s);
            same &=
                memcmp(s.y.data, (char *)r.y.data + row * bytes, bytes) == 0;
            same &=
                memcmp(s.dx.data, (char *)r.dx.data + row * bytes, bytes) == 0;
        }
        ck_assert(same);
        free_results(&r);
        free_results(&s);
        free_twin(&all);
        free_twin(&one);
    }
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("rms_norm");
    TCase *tcase = tcase_create("rms_norm");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, values);
    tcase_add_test(tcase, optional_results);
    tcase_add_test(tcase, one_row_alone);
    return mck_run(argc, argv, suite);
}
