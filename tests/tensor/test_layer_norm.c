/* Ranks: 1 */
/* Layer norm against its twin, alone and beside other rows. */
#include "mck.h"

#include "fsdp/tensor.h"
#include "tensor/kernels.h"
#include "twin/layer_norm.h"

static const fsdp_dtype_t dtypes[] = {FSDP_FP32, FSDP_FP64};
static const size_t shapes[][2] = {
    {1, 1},   {3, 5},    {1, 16},   {5, 17},   {17, 31},
    {7, 257}, {130, 33}, {65, 129}, {33, 768}, {129, 3},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

typedef struct results {
    numbers_t y, mean, rstd, dx, dweight, dbias;
} results_t;

static twin_layer_norm_t
make_twin(fsdp_dtype_t dtype, size_t rows, size_t channels, double offset,
          double scale)
{
    size_t n = rows * channels;
    twin_layer_norm_t t = {
        .rows = rows,
        .channels = channels,
        .eps = 1e-5,
        .x = numbers_random(dtype, n, 1, scale),
        .weight = numbers_random(dtype, channels, 2, 2),
        .bias = numbers_random(dtype, channels, 3, 1),
        .dy = numbers_random(dtype, n, 4, 1),
        .y = twin_alloc(n, sizeof *t.y),
        .dx = twin_alloc(n, sizeof *t.dx),
        .mean = twin_alloc(rows, sizeof *t.mean),
        .rstd = twin_alloc(rows, sizeof *t.rstd),
        .dweight = twin_alloc(channels, sizeof *t.dweight),
        .dbias = twin_alloc(channels, sizeof *t.dbias),
    };
    for (size_t i = 0; i < n; i++)
        numbers_set(t.x, i, numbers_get(t.x, i) + offset);
    return t;
}

static void
free_twin(twin_layer_norm_t *t)
{
    numbers_t inputs[] = {t->x, t->weight, t->bias, t->dy};
    bounded_t *outputs[] = {t->y,    t->dx,      t->mean,
                            t->rstd, t->dweight, t->dbias};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        numbers_free(inputs[i]);
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        fsdp_free(outputs[i]);
}

static results_t
make_results(fsdp_dtype_t dtype, size_t rows, size_t channels)
{
    return (results_t){numbers_make(dtype, rows * channels),
                       numbers_make(dtype, rows),
                       numbers_make(dtype, rows),
                       numbers_make(dtype, rows * channels),
                       numbers_make(dtype, channels),
                       numbers_make(dtype, channels)};
}

static void
free_results(results_t *r)
{
    numbers_free(r->y);
    numbers_free(r->mean);
    numbers_free(r->rstd);
    numbers_free(r->dx);
    numbers_free(r->dweight);
    numbers_free(r->dbias);
}

static void
run(const twin_layer_norm_t *t, results_t *r)
{
    const fsdp_kernels_t *k = fsdp_kernels(t->x.dtype);
    k->layer_norm(t->x.data, t->weight.data, t->bias.data, r->y.data,
                  r->mean.data, r->rstd.data, t->rows, t->channels, t->eps);
    k->layer_norm_backward(
        t->x.data, t->weight.data, r->mean.data, r->rstd.data, t->dy.data,
        r->dx.data, r->dweight.data, r->dbias.data, t->rows, t->channels);
}

static void
check(fsdp_dtype_t dtype, size_t rows, size_t channels, double offset,
      double scale)
{
    twin_layer_norm_t t = make_twin(dtype, rows, channels, offset, scale);
    results_t r = make_results(dtype, rows, channels);
    run(&t, &r);
    twin_begin(dtype);
    twin_layer_norm_forward(&t);
    twin_layer_norm_backward(&t, r.mean, r.rstd);
    bool good = numbers_agree("mean", r.mean, t.mean) &&
                numbers_agree("rstd", r.rstd, t.rstd) &&
                numbers_agree("y", r.y, t.y) &&
                numbers_agree("dx", r.dx, t.dx) &&
                numbers_agree("dweight", r.dweight, t.dweight) &&
                numbers_agree("dbias", r.dbias, t.dbias);
    ck_assert_msg(good, "%zu x %zu, offset %g, scale %g", rows, channels,
                  offset, scale);
    free_results(&r);
    free_twin(&t);
}

/* Small and large numbers, and numbers far from zero. */
START_TEST(values)
{
    for (size_t s = 0; s < NUM_SHAPES; s++)
        for (int t = 0; t < 2; t++) {
            size_t rows = shapes[s][0], channels = shapes[s][1];
            check(dtypes[t], rows, channels, 0, 1);
            check(dtypes[t], rows, channels, 3, 1e-3);
            check(dtypes[t], rows, channels, -5, 100);
            check(dtypes[t], rows, channels, 0, 1e10);
            check(dtypes[t], rows, channels, 0, 1e-30);
        }
}
END_TEST

/* Constant rows: the variance is 0 and eps alone keeps rstd finite. */
START_TEST(constant_row)
{
    for (int t = 0; t < 2; t++) {
        twin_layer_norm_t twin = make_twin(dtypes[t], 2, 40, 0, 1);
        results_t r = make_results(dtypes[t], 2, 40);
        for (size_t i = 0; i < 80; i++)
            numbers_set(twin.x, i, 2);
        run(&twin, &r);
        for (size_t i = 0; i < 80; i++)
            ck_assert(numbers_get(r.y, i) == numbers_get(twin.bias, i % 40));
        double eps = twin_round(dtypes[t], 1e-5);
        double root = twin_round(dtypes[t], sqrt(eps));
        ck_assert(numbers_get(r.rstd, 0) == twin_round(dtypes[t], 1 / root));
        free_results(&r);
        free_twin(&twin);
    }
}
END_TEST

/* Either of dweight and dbias may be missing, and dx may overwrite dy. */
START_TEST(optional_results)
{
    for (int t = 0; t < 2; t++) {
        twin_layer_norm_t twin = make_twin(dtypes[t], 70, 150, 0, 1);
        results_t r = make_results(dtypes[t], 70, 150);
        results_t s = make_results(dtypes[t], 70, 150);
        run(&twin, &r);
        const fsdp_kernels_t *k = fsdp_kernels(dtypes[t]);
        for (int part = 0; part < 4; part++)
            k->layer_norm_backward(twin.x.data, twin.weight.data, r.mean.data,
                                   r.rstd.data, twin.dy.data,
                                   part < 3 ? s.dx.data : twin.dy.data,
                                   part & 1 ? s.dweight.data : NULL,
                                   part & 2 ? s.dbias.data : NULL, 70, 150);
        ck_assert(numbers_same_bits(s.dx, r.dx));
        ck_assert(numbers_same_bits(twin.dy, r.dx));
        ck_assert(numbers_same_bits(s.dweight, r.dweight));
        ck_assert(numbers_same_bits(s.dbias, r.dbias));
        free_results(&r);
        free_results(&s);
        free_twin(&twin);
    }
}
END_TEST

/* Row r of [x] alone gives the bits that it has among 50. */
START_TEST(one_row_alone)
{
    for (int t = 0; t < 2; t++) {
        size_t c = 100, bytes = c * fsdp_dtype_size(dtypes[t]);
        twin_layer_norm_t all = make_twin(dtypes[t], 50, c, 0, 1);
        twin_layer_norm_t one = make_twin(dtypes[t], 1, c, 0, 1);
        results_t r = make_results(dtypes[t], 50, c);
        results_t s = make_results(dtypes[t], 1, c);
        run(&all, &r);
        for (size_t row = 0; row < 50; row += 7) {
            memcpy(one.x.data, (char *)all.x.data + row * bytes, bytes);
            memcpy(one.dy.data, (char *)all.dy.data + row * bytes, bytes);
            run(&one, &s);
            ck_assert(memcmp(s.y.data, (char *)r.y.data + row * bytes, bytes) ==
                      0);
            ck_assert(
                memcmp(s.dx.data, (char *)r.dx.data + row * bytes, bytes) == 0);
        }
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
    Suite *suite = suite_create("layer_norm");
    TCase *tcase = tcase_create("layer_norm");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, values);
    tcase_add_test(tcase, constant_row);
    tcase_add_test(tcase, optional_results);
    tcase_add_test(tcase, one_row_alone);
    return mck_run(argc, argv, suite);
}
