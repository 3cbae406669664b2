/* Ranks: 1 */
/* Every operator, forward and backward, against the values of PyTorch in
 * data/golden/operators.safetensors, in float64 and float32.  Inputs are numbers
 * of both types.  The golden value comes from float64 arithmetic, whose error
 * has the bound of ours in that type: twin_is() allows for both. */
#include "mck.h"

#include "nn/golden.h"
#include "nn/nn_case.h"
#include "nn/operator_bounds.h"
#include "twin/numbers.h"

enum { GOLDEN_CASES = 20 };

static fsdp_safetensors_t *golden;

static double *
read_part(const nn_case_t *c, const char *part)
{
    char *name = fsdp_format("%s.%s", c->name, part);
    double *data = golden_read(golden, name, FSDP_FP64);
    fsdp_free(name);
    return data;
}

/* Shape and values of an array, from the file. */
static void
load_array(const nn_case_t *c, nn_array_t *a)
{
    char *name = fsdp_format("%s.%s", c->name, a->name);
    const fsdp_safetensors_entry_t *entry = golden_entry(golden, name);
    fsdp_free(name);
    a->ndim = entry->ndim;
    for (int d = 0; d < entry->ndim; d++)
        a->shape[d] = entry->shape[d];
    a->value = read_part(c, a->name);
    a->grad = twin_alloc(nn_array_numel(a), sizeof *a->grad);
}

static void
load_integers(nn_case_t *c)
{
    if (c->integers_name == NULL)
        return;
    char *name = fsdp_format("%s.%s", c->name, c->integers_name);
    const fsdp_safetensors_entry_t *entry = golden_entry(golden, name);
    int32_t *data = golden_read(golden, name, FSDP_INT32);
    c->integers_ndim = entry->ndim;
    for (int d = 0; d < entry->ndim; d++)
        c->integers_shape[d] = entry->shape[d];
    ck_assert(entry->numel <= sizeof c->integers / sizeof *c->integers);
    memcpy(c->integers, data, entry->numel * sizeof *data);
    fsdp_free(data);
    fsdp_free(name);
}

static nn_case_t
load_case(const nn_case_t *operator)
{
    nn_case_t c = *operator;
    for (int k = 0; k < nn_case_arrays(&c); k++)
        load_array(&c, &c.array[k]);
    load_integers(&c);
    c.upstream = read_part(&c, "grad_out");
    return c;
}

/* `want` has bounds; its values are replaced by PyTorch's. */
static bool
agrees(const nn_case_t *c, const char *part, const double *got, bounded_t *want,
       size_t n)
{
    double *values = read_part(c, part);
    bool good = true;
    for (size_t i = 0; i < n && good; i++) {
        want[i].v = values[i];
        good = twin_is(got[i], want[i]);
        if (!good)
            fprintf(stderr, "%s.%s, element %zu: %.17g, PyTorch %.17g +- %g\n",
                    c->name, part, i, got[i], want[i].v, want[i].e);
    }
    fsdp_free(values);
    return good;
}

static bool
check_case(const nn_case_t *operator, operator_bounds_t bounds,
           fsdp_dtype_t dtype)
{
    nn_case_t c = load_case(operator);
    nn_case_run(&c, dtype);
    bounded_t *out = twin_alloc(c.out_numel, sizeof *out);
    bounded_t *grad[NN_MAX_ARRAYS] = {NULL};
    int arrays = nn_case_arrays(&c);
    for (int k = 0; k < arrays; k++)
        grad[k] = twin_alloc(nn_array_numel(&c.array[k]), sizeof *grad[k]);
    bounds(&c, out, grad);

    bool good = agrees(&c, "out", c.out, out, c.out_numel);
    for (int k = 0; k < arrays; k++) {
        nn_array_t *a = &c.array[k];
        char *part = fsdp_format("grad.%s", a->name);
        good &= agrees(&c, part, a->grad, grad[k], nn_array_numel(a));
        fsdp_free(part);
        fsdp_free(grad[k]);
    }
    fsdp_free(out);
    nn_case_free(&c);
    return good;
}

static void
check_all(fsdp_dtype_t dtype)
{
    twin_begin(dtype);
    operator_bounds_begin(dtype);
    golden = golden_open("operators");
    bool good = true;
    int cases = 0;
    for (const nn_case_t *c = nn_operators; c->name != NULL; c++) {
        operator_bounds_t bounds = operator_bounds(c->name);
        if (bounds == NULL) /* PyTorch has no such operator */
            continue;
        good &= check_case(c, bounds, dtype);
        cases++;
    }
    fsdp_safetensors_close(&golden);
    ck_assert(good);
    ck_assert_int_eq(cases, GOLDEN_CASES);
}

START_TEST(in_float64)
{
    check_all(FSDP_FP64);
}
END_TEST

START_TEST(in_float32)
{
    check_all(FSDP_FP32);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("golden operators");
    TCase *tcase = tcase_create("operators");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, in_float64);
    tcase_add_test(tcase, in_float32);
    return mck_run(argc, argv, suite);
}
