/* Ranks: 1 */
/* Every operator on bfloat16 and float16.  Each result must be a number within
 * the bound of the float32 arithmetic, rounded once: half_is() leaves room for
 * nothing else, and seldom for more than one number. */
#include "mck.h"

#include "nn/half_bounds.h"
#include "twin/half.h"
#include "twin/numbers.h"

static const fsdp_dtype_t types[] = {FSDP_BF16, FSDP_FP16};
enum { TYPES = 2 };

/* ---- all operators ------------------------------------------------------ */

static void
round_values(fsdp_dtype_t dtype, double *value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        value[i] = half_round(dtype, value[i]);
}

static nn_case_t
random_case(const nn_case_t *operator, fsdp_dtype_t dtype, uint32_t seed)
{
    nn_case_t c = *operator;
    nn_case_randomize(&c, seed);
    for (int k = 0; k < nn_case_arrays(&c); k++)
        round_values(dtype, c.array[k].value, nn_array_numel(&c.array[k]));
    nn_case_run(&c, dtype); /* the output's size */
    nn_case_random_upstream(&c, seed + 100);
    round_values(dtype, c.upstream, c.out_numel);
    return c;
}

static bool
agrees(const nn_case_t *c, const char *part, fsdp_dtype_t dtype,
       const double *got, const bounded_t *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (half_is(dtype, got[i], want[i]))
            continue;
        fprintf(stderr, "%s, %s of %s, element %zu: %.9g, not %.9g +- %g\n",
                fsdp_dtype_name(dtype), part, c->name, i, got[i], want[i].v,
                want[i].e);
        return false;
    }
    return true;
}

static bool
follows_twin(const nn_case_t *operator, fsdp_dtype_t dtype, uint32_t seed)
{
    operator_bounds_t bounds = half_bounds(operator->name);
    if (bounds == NULL) /* see as_float32_rounded */
        return true;
    nn_case_t c = random_case(operator, dtype, seed);
    nn_case_run(&c, dtype);
    bounded_t *out = twin_alloc(c.out_numel, sizeof *out);
    bounded_t *grad[NN_MAX_ARRAYS] = {NULL};
    for (int k = 0; k < nn_case_arrays(&c); k++)
        grad[k] = twin_alloc(nn_array_numel(&c.array[k]), sizeof *grad[k]);
    bounds(&c, out, grad);

    /* The one loss that is float32 by itself. */
    bool wide = strcmp(c.name, "linear_cross_entropy") == 0;
    bool good = wide ? twin_is(c.out[0], out[0])
                     : agrees(&c, "out", dtype, c.out, out, c.out_numel);
    for (int k = 0; k < nn_case_arrays(&c); k++) {
        good &= agrees(&c, c.array[k].name, dtype, c.array[k].grad, grad[k],
                       nn_array_numel(&c.array[k]));
        fsdp_free(grad[k]);
    }
    fsdp_free(out);
    nn_case_free(&c);
    return good;
}

START_TEST(operators_round_once)
{
    fsdp_dtype_t dtype = types[_i];
    half_bounds_begin(dtype);
    twin_begin(dtype);
    bool good = true;
    for (const nn_case_t *c = nn_operators; c->name != NULL; c++)
        for (uint32_t seed = 1000; seed < 41000; seed += 1000)
            good &= follows_twin(c, dtype, seed);
    ck_assert(good);
}
END_TEST

/* ---- all operators, against float32 ------------------------------------- */

static bool
begins_with(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

static bool
is_rounded(const nn_case_t *c, fsdp_dtype_t dtype, const double *got,
           const double *wide, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] != half_round(dtype, wide[i])) {
            fprintf(stderr, "%s, %s: element %zu is %.9g, not %.9g rounded\n",
                    fsdp_dtype_name(dtype), c->name, i, got[i], wide[i]);
            return false;
        }
    return true;
}

/* Results are those of float32 on the same numbers, rounded: of every case that
 * is one operator, gradients but for the attentions', which see their rounded
 * output. */
static bool
rounds_float32(const nn_case_t *operator, fsdp_dtype_t dtype)
{
    const char *name = operator->name;
    if (begins_with(name, "added_to_itself") ||
        begins_with(name, "linear_cross_entropy"))
        return true;
    bool grads = strstr(name, "attention") == NULL &&
                 !begins_with(name, "squared"); /* adds two gradients */
    nn_case_t c = random_case(operator, dtype, 7000);
    nn_case_t wide = random_case(operator, dtype, 7000);
    nn_case_run(&c, dtype);
    nn_case_run(&wide, FSDP_FP32);
    bool good = is_rounded(&c, dtype, c.out, wide.out, c.out_numel);
    for (int k = 0; grads && k < nn_case_arrays(&c); k++)
        good &= is_rounded(&c, dtype, c.array[k].grad, wide.array[k].grad,
                           nn_array_numel(&c.array[k]));
    nn_case_free(&c);
    nn_case_free(&wide);
    return good;
}

START_TEST(as_float32_rounded)
{
    bool good = true;
    for (const nn_case_t *c = nn_operators; c->name != NULL; c++)
        good &= rounds_float32(c, types[_i]);
    ck_assert(good);
}
END_TEST

/* ---- one rounding, by hand ---------------------------------------------- */

/* 1 + u, one place above 1: its square is 1 + 2 u + u^2, where u^2 is lost by
 * any rounding before the bias takes 1 + 2 u away. */
START_TEST(bias_meets_the_whole_product)
{
    fsdp_dtype_t dtype = types[_i];
    double u = half_last_place(dtype, 1), x = 1 + u, b = -(1 + 2 * u);
    const nn_case_t *affine[] = {&nn_operators[0], &nn_operators[2]};
    for (size_t k = 0; k < 2; k++) {
        nn_case_t c = *affine[k];
        c.array[0].ndim = 2;
        for (int a = 0; a < 3; a++)
            c.array[a].shape[0] = c.array[a].shape[1] = 1;
        nn_case_randomize(&c, 1);
        c.array[0].value[0] = c.array[1].value[0] = x;
        c.array[2].value[0] = b;
        nn_case_run(&c, dtype);
        ck_assert_double_eq(c.out[0], u * u);
        nn_case_free(&c);
    }
}
END_TEST

/* A table's row that 1 and four times u / 4 (half of what 1 can take) meet: one
 * rounding gives 1 + u, one after each addition 1. */
START_TEST(embedding_gradients_meet_before_rounding)
{
    fsdp_dtype_t dtype = types[_i];
    double u = half_last_place(dtype, 1);
    for (const nn_case_t *o = nn_operators; o->name != NULL; o++) {
        if (strstr(o->name, "embedding") == NULL)
            continue;
        nn_case_t c = *o;
        c.array[0].shape[0] = c.array[0].shape[1] = 1;
        c.integers_shape[0] = 5;
        c.integers_shape[1] = 1;
        memset(c.integers, 0, sizeof c.integers);
        nn_case_randomize(&c, 1);
        c.upstream = twin_alloc(5, sizeof *c.upstream);
        for (int i = 0; i < 5; i++)
            c.upstream[i] = i == 0 ? 1 : u / 4;
        nn_case_run(&c, dtype);
        ck_assert_double_eq(c.array[0].grad[0], 1 + u);
        nn_case_free(&c);
    }
}
END_TEST

/* ---- gradients of several uses ------------------------------------------ */

/* Uses are added in the data's type: 1, then u / 2 twice, each lost to an even
 * 1.  Values and parameters alike. */
START_TEST(uses_add_in_their_type)
{
    fsdp_dtype_t dtype = types[_i];
    double u = half_last_place(dtype, 1), one = 1, dx = 0;
    double weight[3] = {u / 2, u / 2, 1}; /* the last use comes first */
    fsdp_parameter_t *p = fsdp_parameter_create("w", dtype, 2, (size_t[]){1, 1},
                                                FSDP_INIT_ONES, 0, 0);
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x =
        nn_probe(tape, nn_tensor(tape, dtype, 2, (size_t[]){1, 1}, &one), &dx);
    fsdp_tensor_t *sum = NULL;
    for (int i = 0; i < 3; i++) {
        fsdp_tensor_t *y =
            nn_weighted_sum(tape, fsdp_linear(tape, x, p, NULL), &weight[i]);
        sum = sum == NULL ? y : fsdp_add(tape, sum, y);
    }
    fsdp_backward(tape, sum);
    fsdp_tape_destroy(&tape);
    ck_assert_double_eq(dx, 1);
    ck_assert_int_eq(p->grad->dtype, dtype);
    ck_assert_double_eq(fsdp_tensor_get(p->grad, 0), 1);
    fsdp_parameter_destroy(&p);
}
END_TEST

/* ---- cast --------------------------------------------------------------- */

START_TEST(cast_goes_back)
{
    const fsdp_dtype_t all[] = {FSDP_FP32, FSDP_FP64, FSDP_BF16, FSDP_FP16};
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++) {
            double value[9], up[9], dx[9] = {0};
            for (size_t i = 0; i < 9; i++) {
                value[i] = half_round(all[from], twin_random(3, i));
                up[i] = half_round(all[to], twin_random(4, i));
            }
            fsdp_tape_t *tape = fsdp_tape_create(NULL);
            size_t shape[2] = {3, 3};
            fsdp_tensor_t *x =
                nn_probe(tape, nn_tensor(tape, all[from], 2, shape, value), dx);
            fsdp_tensor_t *y = fsdp_cast(tape, x, all[to]);
            ck_assert_int_eq(y->dtype, all[to]);
            ck_assert((y == x) == (from == to));
            for (size_t i = 0; i < 9; i++)
                ck_assert_double_eq(fsdp_tensor_get(y, i),
                                    half_round(all[to], value[i]));
            fsdp_backward(tape, nn_weighted_sum(tape, y, up));
            fsdp_tape_destroy(&tape);
            for (size_t i = 0; i < 9; i++)
                ck_assert_double_eq(dx[i], half_round(all[from], up[i]));
        }
}
END_TEST

/* ---- parameters lent in another type ------------------------------------ */

/* What a mixed-precision policy does: the parameter is float32, its data 16-bit.
 * The operators go by the data. */
START_TEST(data_dtype_is_what_counts)
{
    fsdp_dtype_t dtype = types[_i];
    uint16_t table[6];
    double value[6] = {0.5, -1, 2, 0.25, 8, -4}, up[6] = {1, 2, 3, 4, 5, 6};
    fsdp_convert(FSDP_FP64, value, dtype, table, 6);
    fsdp_parameter_t *p = fsdp_parameter_create(
        "w", FSDP_FP32, 2, (size_t[]){3, 2}, FSDP_INIT_ZEROS, 0, 0);
    p->data_dtype = dtype;
    p->data = table;
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *index =
        nn_int32(tape, 2, (size_t[]){1, 3}, (int32_t[]){2, 0, 1});
    fsdp_tensor_t *y = fsdp_embedding(tape, index, p);
    fsdp_tensor_t *z = fsdp_position_embedding(tape, index, p);
    ck_assert_int_eq(y->dtype, dtype);
    ck_assert_double_eq(fsdp_tensor_get(y, 0), 8);
    ck_assert_double_eq(fsdp_tensor_get(z, 0), 0.5);
    fsdp_backward(tape, nn_weighted_sum(tape, fsdp_add(tape, y, z), up));
    fsdp_tape_destroy(&tape);
    ck_assert_int_eq(p->grad->dtype, dtype);
    ck_assert_double_eq(fsdp_tensor_get(p->grad, 0), 1 + 3);
    p->data = NULL;
    fsdp_parameter_destroy(&p);
}
END_TEST

/* ---- threads ------------------------------------------------------------ */

/* Operators with enough work for several blocks of every loop. */
static nn_case_t
large_case(const nn_case_t *operator)
{
    nn_case_t c = *operator;
    bool one_array = c.array[1].name == NULL && c.integers_name == NULL;
    if (strncmp(c.name, "linear", 6) == 0 && c.integers_name == NULL) {
        c.array[0].shape[1] = 150;
        c.array[0].shape[2] = c.array[1].shape[1] = 200;
        c.array[1].shape[0] = c.array[2].shape[0] = 170;
    } else if (strcmp(c.name, "linear_cross_entropy") == 0) {
        c.array[0].shape[1] = c.array[1].shape[1] = 300;
        c.array[1].shape[0] = 4001;
    } else if (strcmp(c.name, "layer_norm") == 0) {
        c.array[0].shape[1] = 150;
        c.array[0].shape[2] = 300;
        c.array[1].shape[0] = c.array[2].shape[0] = 300;
    } else if (strncmp(c.name, "attention", 9) == 0) {
        c.array[0].shape[1] = 150;
    } else if (strcmp(c.name, "embedding") == 0) {
        c.array[0].shape[1] = 9000;
    } else if (one_array && strcmp(c.name, "reshape") != 0) {
        c.array[0].shape[1] = 40000;
    }
    return c;
}

static bool
same_bits(const nn_case_t *operator, fsdp_dtype_t dtype)
{
    nn_case_t large = large_case(operator);
    nn_case_t one = random_case(&large, dtype, 50);
    nn_case_t three = random_case(&large, dtype, 50);
    fsdp_set_num_threads(1);
    nn_case_run(&one, dtype);
    fsdp_set_num_threads(3);
    nn_case_run(&three, dtype);
    fsdp_set_num_threads(1);
    bool good =
        memcmp(one.out, three.out, one.out_numel * sizeof *one.out) == 0;
    for (int k = 0; k < nn_case_arrays(&one); k++)
        good &= memcmp(one.array[k].grad, three.array[k].grad,
                       nn_array_numel(&one.array[k]) * sizeof(double)) == 0;
    nn_case_free(&one);
    nn_case_free(&three);
    return good;
}

START_TEST(threads_change_nothing)
{
    for (const nn_case_t *c = nn_operators; c->name != NULL; c++)
        ck_assert_msg(same_bits(c, types[_i]), "%s", c->name);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("half");
    TCase *tcase = tcase_create("half");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 0);
    tcase_add_loop_test(tcase, operators_round_once, 0, TYPES);
    tcase_add_loop_test(tcase, as_float32_rounded, 0, TYPES);
    tcase_add_loop_test(tcase, bias_meets_the_whole_product, 0, TYPES);
    tcase_add_loop_test(tcase, embedding_gradients_meet_before_rounding, 0,
                        TYPES);
    tcase_add_loop_test(tcase, uses_add_in_their_type, 0, TYPES);
    tcase_add_test(tcase, cast_goes_back);
    tcase_add_loop_test(tcase, data_dtype_is_what_counts, 0, TYPES);
    tcase_add_loop_test(tcase, threads_change_nothing, 0, TYPES);
    return mck_run(argc, argv, suite);
}
