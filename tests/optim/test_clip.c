/* Gradient norms and clipping: the same bits on any number of ranks and however
 * the model is cut, as sums without rounding say. */
#include "mck.h"

#include <math.h>
#include <string.h>

#include "fsdp/exact_sum.h"
#include "fsdp/fault.h"
#include "fsdp/memory.h"
#include "fsdp/optim.h"
#include "fsdp/random.h"
#include "given.h"

static const double types[] = {1, 2, INFINITY};
static const fsdp_dtype_t dtypes[] = {FSDP_FP32, FSDP_FP64};
static fsdp_mesh_t *mesh;

static void
set_up(void)
{
    mesh = fsdp_mesh_create_1d();
}

static void
tear_down(void)
{
    fsdp_mesh_destroy(&mesh);
}

static double
zero(const char *name, size_t e)
{
    (void)name;
    (void)e;
    return 0;
}

/* k 2^x with |k| < 2^19 and x from -15 to 15.  Squares are multiples of
 * 2^-30 and the sum of all is about 2^77: a __float128 of 113 bits adds them
 * without rounding, a double does not. */
static double
spread(const char *name, size_t e)
{
    uint32_t word =
        fsdp_random_word(7, FSDP_RANDOM_TEST, 0, fsdp_hash_name(name), e);
    return ldexp((double)(int32_t)(word & 0xfffff) - 524288,
                 (int)(word >> 20) % 31 - 15);
}

/* `spread`, but for one element. */
static double odd_value;

static double
one_odd(const char *name, size_t e)
{
    return strcmp(name, "b.weight") == 0 && e == 27 ? odd_value
                                                    : spread(name, e);
}

static size_t
numel(const given_spec_t *spec)
{
    size_t n = 1;
    for (int d = 0; d < spec->ndim; d++)
        n *= spec->shape[d];
    return n;
}

static double
to_dtype(fsdp_dtype_t dtype, __float128 x)
{
    return dtype == FSDP_FP64 ? (double)x : (double)(float)(double)x;
}

/* Adds |g|^p of elements [begin, end). */
static void
add_terms(__float128 *sum, const char *name, size_t begin, size_t end,
          double type, given_fn_t grad)
{
    for (size_t e = begin; e < end; e++) {
        __float128 g = fabs(grad(name, e));
        if (isinf(type))
            *sum = g > *sum ? g : *sum;
        else
            *sum += type == 2 ? g * g : g;
    }
}

static double
norm_of(__float128 sum, double type, fsdp_dtype_t dtype)
{
    double once = (double)sum;
    return to_dtype(dtype, type == 2 ? sqrt(once) : once);
}

static double
expected_norm(double type, fsdp_dtype_t dtype, given_fn_t grad)
{
    __float128 sum = 0;
    for (int i = 0; i < GIVEN_SPECS; i++)
        if (given_specs[i].use == GIVEN_USED)
            add_terms(&sum, given_specs[i].name, 0, numel(&given_specs[i]),
                      type, grad);
    return norm_of(sum, type, dtype);
}

static fsdp_module_t *
model_with(fsdp_dtype_t dtype, given_cut_t cut, given_fn_t grad)
{
    fsdp_module_t *model =
        given_create(given_specs, GIVEN_SPECS, dtype, mesh, cut, zero);
    given_backward(model, grad);
    return model;
}

static double
get(fsdp_dtype_t dtype, const void *x, size_t i)
{
    return dtype == FSDP_FP64 ? ((const double *)x)[i]
                              : (double)((const float *)x)[i];
}

/* PyTorch's clip_coef_clamped and grad.mul_(it), in C's own arithmetic. */
static double
clipped(fsdp_dtype_t dtype, double g, double total, double max_norm)
{
    if (dtype == FSDP_FP64) {
        double c = 1.0 / (total + 1e-6) * max_norm;
        return g * (c > 1 ? 1 : c);
    }
    float sum = (float)total + 1e-6f, inverse = 1.0f / sum;
    float c = inverse * (float)max_norm;
    return (float)g * (c > 1 ? 1.0f : c);
}

/* Are all gradients those of `grad`, clipped? */
static bool
grads_are(fsdp_module_t *model, given_fn_t grad, double total, double max_norm)
{
    for (int i = 0; i < GIVEN_SPECS; i++) {
        fsdp_parameter_t *p =
            fsdp_module_find_parameter(model, given_specs[i].name);
        fsdp_local_t local = fsdp_parameter_local(p);
        if ((local.grad != NULL) != (given_specs[i].use == GIVEN_USED))
            return false;
        size_t begin = fsdp_layout_begin(&local.layout);
        for (size_t e = 0; local.grad != NULL && e < local.numel; e++) {
            double want =
                clipped(p->dtype, grad(p->name, begin + e), total, max_norm);
            double got = get(p->dtype, local.grad, e);
            if (isnan(want) ? !isnan(got) : got != want)
                return false;
        }
    }
    return true;
}

static void
check_norms(fsdp_dtype_t dtype, given_cut_t cut)
{
    fsdp_module_t *model = model_with(dtype, cut, spread);
    for (int t = 0; t < 3; t++) {
        double norm = -1, want = expected_norm(types[t], dtype, spread);
        ck_assert(fsdp_grad_norm(model, types[t], &norm) == FSDP_OK);
        mck_assert(norm == want);
        mck_assert(grads_are(model, spread, norm, INFINITY));
    }
    fsdp_module_destroy(&model);
}

START_TEST(exact_on_any_number_of_ranks)
{
    for (int d = 0; d < 2; d++)
        for (int cut = 0; cut < GIVEN_CUTS; cut++)
            check_norms(dtypes[d], (given_cut_t)cut);
}
END_TEST

static void
check_clipping(fsdp_dtype_t dtype, given_cut_t cut, double type,
               double max_norm)
{
    fsdp_module_t *model = model_with(dtype, cut, spread);
    double norm = -1, want = expected_norm(type, dtype, spread);
    ck_assert(fsdp_clip_grad_norm_type(model, max_norm, type, &norm) ==
              FSDP_OK);
    mck_assert(norm == want);
    mck_assert(grads_are(model, spread, want, max_norm));
    fsdp_module_destroy(&model);
}

/* Clipped by a lot, by a little, not at all, to nothing. */
START_TEST(clips_as_pytorch)
{
    for (int d = 0; d < 2; d++)
        for (int cut = 0; cut < GIVEN_CUTS; cut++)
            for (int t = 0; t < 3; t++) {
                double norm = expected_norm(types[t], FSDP_FP64, spread);
                check_clipping(dtypes[d], (given_cut_t)cut, types[t], 0.7);
                check_clipping(dtypes[d], (given_cut_t)cut, types[t],
                               norm * 0.99);
                check_clipping(dtypes[d], (given_cut_t)cut, types[t],
                               norm * 1.01);
                check_clipping(dtypes[d], (given_cut_t)cut, types[t], 0);
            }
}
END_TEST

static double
one_alone(const char *name, size_t e)
{
    return strcmp(name, "a.weight") == 0 && e == 14 ? odd_value : 0;
}

/* The coefficient is rounded four times; each shows for some of these. */
START_TEST(coefficient_rounds_as_pytorch)
{
    for (int i = 1; i <= 30; i++) {
        double norm, max_norm = 0.013 * i;
        odd_value = (float)(0.01 * i * i);
        fsdp_module_t *model = model_with(FSDP_FP32, GIVEN_ALL, one_alone);
        ck_assert(fsdp_clip_grad_norm(model, max_norm, &norm) == FSDP_OK);
        mck_assert(norm == odd_value);
        mck_assert(grads_are(model, one_alone, norm, max_norm));
        fsdp_module_destroy(&model);
    }
}
END_TEST

START_TEST(type_two_by_default)
{
    fsdp_module_t *model = model_with(FSDP_FP32, GIVEN_ALL, spread);
    double want = expected_norm(2, FSDP_FP32, spread);
    ck_assert(fsdp_clip_grad_norm(model, 3.0, NULL) == FSDP_OK);
    mck_assert(grads_are(model, spread, want, 3.0));
    fsdp_module_destroy(&model);
}
END_TEST

/* PyTorch's error_if_nonfinite=False: an infinite norm makes all finite
 * gradients 0 and the infinite one NaN; a NaN makes all NaN. */
static void
check_odd(given_cut_t cut, double type)
{
    fsdp_module_t *model = model_with(FSDP_FP32, cut, one_odd);
    double norm = 0;
    ck_assert(fsdp_clip_grad_norm_type(model, 1, type, &norm) == FSDP_OK);
    mck_assert(isnan(odd_value) ? isnan(norm) : norm == INFINITY);
    mck_assert(grads_are(model, one_odd, norm, 1));
    fsdp_module_destroy(&model);
}

START_TEST(infinite_and_nan)
{
    static const double odd[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++)
        for (int cut = 0; cut < GIVEN_CUTS; cut++)
            for (int t = 0; t < 3; t++) {
                odd_value = odd[i];
                check_odd((given_cut_t)cut, types[t]);
            }
}
END_TEST

START_TEST(without_gradients)
{
    fsdp_module_t *model = given_create(given_specs, GIVEN_SPECS, FSDP_FP32,
                                        mesh, GIVEN_ALL, zero);
    for (int t = 0; t < 3; t++) {
        double norm = -1;
        ck_assert(fsdp_clip_grad_norm_type(model, 1, types[t], &norm) ==
                  FSDP_OK);
        mck_assert(norm == 0);
    }
    fsdp_module_destroy(&model);
}
END_TEST

/* One all-reduce for all parameters of all groups, none if nothing is cut. */
START_TEST(one_all_reduce)
{
    fsdp_comm_t *comm = fsdp_comm_world();
    for (int cut = 0; cut < GIVEN_CUTS; cut++)
        for (int t = 0; t < 3; t++) {
            double norm;
            fsdp_module_t *model =
                model_with(FSDP_FP32, (given_cut_t)cut, spread);
            fsdp_comm_reset_counters(comm);
            fsdp_clip_grad_norm_type(model, 1, types[t], &norm);
            uint64_t calls = fsdp_comm_counter(comm, FSDP_ALL_REDUCE).calls;
            uint64_t words = isinf(types[t]) ? 1 : FSDP_EXACT_WORDS;
            if (cut == GIVEN_WHOLE) {
                mck_assert(calls == 0);
            } else {
                bool one_of_all = fsdp_ledger_latest(comm, 0)->count == words;
                mck_assert(calls == 1);
                mck_assert(one_of_all);
            }
            fsdp_module_destroy(&model);
        }
}
END_TEST

/* The norm of the rank's own rows, as the broken system would have it. */
static double
own_norm(fsdp_module_t *model, double type, given_fn_t grad)
{
    __float128 sum = 0;
    for (int i = 0; i < GIVEN_SPECS; i++) {
        fsdp_parameter_t *p =
            fsdp_module_find_parameter(model, given_specs[i].name);
        fsdp_local_t local = fsdp_parameter_local(p);
        size_t begin = fsdp_layout_begin(&local.layout);
        if (given_specs[i].use == GIVEN_USED)
            add_terms(&sum, p->name, begin, begin + local.numel, type, grad);
    }
    return norm_of(sum, type, FSDP_FP64);
}

START_TEST(fault_of_local_norm)
{
    fsdp_module_t *model = model_with(FSDP_FP64, GIVEN_ALL, spread);
    for (int t = 0; t < 3; t++) {
        double right, wrong, own = own_norm(model, types[t], spread);
        ck_assert(fsdp_fault_choose("local-norm@2") == FSDP_OK);
        fsdp_fault_set_step(1);
        fsdp_grad_norm(model, types[t], &right);
        fsdp_fault_set_step(2);
        fsdp_grad_norm(model, types[t], &wrong);
        fsdp_fault_choose_none();
        mck_assert(right == expected_norm(types[t], FSDP_FP64, spread));
        mck_assert(wrong == own);
    }
    fsdp_module_destroy(&model);
}
END_TEST

START_TEST(refusals)
{
    fsdp_module_t *model = model_with(FSDP_FP32, GIVEN_ALL, spread);
    static const double bad[] = {0, 3, -1, -INFINITY, NAN};
    double norm = -5;
    for (int i = 0; i < 5; i++) {
        ck_assert(fsdp_grad_norm(model, bad[i], &norm) == FSDP_ERR_USAGE);
        ck_assert(fsdp_clip_grad_norm_type(model, 1, bad[i], &norm) ==
                  FSDP_ERR_USAGE);
    }
    ck_assert(fsdp_clip_grad_norm(model, -1, &norm) == FSDP_ERR_USAGE);
    ck_assert(fsdp_clip_grad_norm(model, NAN, &norm) == FSDP_ERR_USAGE);
    ck_assert(norm == -5);
    mck_assert(grads_are(model, spread, 1, INFINITY));
    fsdp_module_destroy(&model);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("clip");
    TCase *tcase = tcase_create("clip");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 0);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, exact_on_any_number_of_ranks);
    tcase_add_test(tcase, clips_as_pytorch);
    tcase_add_test(tcase, coefficient_rounds_as_pytorch);
    tcase_add_test(tcase, type_two_by_default);
    tcase_add_test(tcase, infinite_and_nan);
    tcase_add_test(tcase, without_gradients);
    tcase_add_test(tcase, one_all_reduce);
    tcase_add_test(tcase, fault_of_local_norm);
    tcase_add_test(tcase, refusals);
    return mck_run(argc, argv, suite);
}
