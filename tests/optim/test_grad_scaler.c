/* The loss scale: what it makes of gradients, when steps are skipped, how it
 * grows and shrinks, and what it refuses. */
#include "mck.h"

#include <math.h>
#include <string.h>

#include "fsdp/grad_scaler.h"
#include "fsdp/memory.h"
#include "fsdp/ops.h"
#include "fsdp/random.h"
#include "given.h"
#include "twin/half.h"

static fsdp_mesh_t *mesh;
static fsdp_module_t *model;
static fsdp_optimizer_t *sgd;
static const double bad[] = {INFINITY, -INFINITY, NAN};

enum { LR_EXPONENT = -3 };

/* Whole numbers below 2^7 in size: sums, halves and eighths are exact. */
static double
whole_number(const char *name, size_t e)
{
    uint32_t word =
        fsdp_random_word(9, FSDP_RANDOM_TEST, 0, fsdp_hash_name(name), e);
    return (double)(word % 255) - 127;
}

static double
start(const char *name, size_t e)
{
    return whole_number(name, e + 100000);
}

static fsdp_optimizer_t *
new_sgd(fsdp_module_t *of)
{
    fsdp_sgd_options_t options = fsdp_sgd_options_default();
    options.lr = ldexp(1, LR_EXPONENT);
    return fsdp_sgd_create(of, &options);
}

static void
set_up(void)
{
    mesh = fsdp_mesh_create_1d();
    model = given_create(given_specs, GIVEN_SPECS, FSDP_FP32, mesh, GIVEN_ALL,
                         start);
    sgd = new_sgd(model);
}

static void
tear_down(void)
{
    fsdp_optimizer_destroy(&sgd);
    fsdp_module_destroy(&model);
    fsdp_mesh_destroy(&mesh);
}

/* A scaler whose first loss has been scaled. */
static fsdp_grad_scaler_t *
scaler_with(double scale, long interval)
{
    fsdp_grad_scaler_options_t o = fsdp_grad_scaler_options_default();
    o.init_scale = scale;
    o.growth_interval = interval;
    fsdp_grad_scaler_t *scaler = fsdp_grad_scaler_create(&o);
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *loss = fsdp_tape_new_tensor(tape, FSDP_FP32, 0, NULL);
    fsdp_tensor_set(loss, 0, 1.5);
    loss = fsdp_grad_scaler_scale(scaler, tape, loss);
    ck_assert_double_eq(fsdp_tensor_get(loss, 0), 1.5 * (float)scale);
    fsdp_tape_destroy(&tape);
    return scaler;
}

/* Has every element that this rank keeps the value `expected` of it?  `grad`:
 * look at gradients. */
static bool
all_are(bool grad, double (*expected)(const char *name, size_t e))
{
    bool good = true;
    for (int i = 0; i < GIVEN_SPECS; i++) {
        if (given_specs[i].use != GIVEN_USED)
            continue;
        fsdp_local_t local = fsdp_parameter_local(
            fsdp_module_find_parameter(model, given_specs[i].name));
        const float *x = grad ? local.grad : local.data;
        size_t begin = fsdp_layout_begin(&local.layout);
        for (size_t e = 0; e < local.numel; e++)
            good &= x[e] == (float)expected(given_specs[i].name, begin + e);
    }
    return good;
}

static bool
all_true(bool mine)
{
    return fsdp_comm_all_true(fsdp_comm_world(), mine);
}

/* ---- unscaling ---------------------------------------------------------- */

/* 1 / 3 in float32, times a gradient in float32: one product of 24 by 24 bits is
 * exact in double. */
static double
third(const char *name, size_t e)
{
    return (double)(float)(1.0 / 3) * whole_number(name, e);
}

START_TEST(gradients_times_the_reciprocal)
{
    fsdp_grad_scaler_t *scaler = scaler_with(3, 2000);
    given_backward(model, whole_number);
    ck_assert(fsdp_grad_scaler_unscale(scaler, sgd) == FSDP_OK);
    mck_assert(!fsdp_grad_scaler_found_inf(scaler, sgd));
    mck_assert(all_are(true, third));
    fsdp_grad_scaler_destroy(&scaler);
}
END_TEST

/* One rounding in the gradient's own type, and what is infinite in it; its
 * largest number is not. */
START_TEST(gradients_of_every_type)
{
    const fsdp_dtype_t types[] = {FSDP_FP32, FSDP_FP64, FSDP_BF16, FSDP_FP16};
    const double most[] = {0x1.fffffep127, 0x1.fffffffffffffp1023, 0x1.fep127,
                           65504};
    for (int t = 0; t < 4; t++) {
        fsdp_module_t *whole =
            given_create(given_specs, 2, types[t], mesh, GIVEN_WHOLE, start);
        fsdp_optimizer_t *o = new_sgd(whole);
        fsdp_grad_scaler_t *scaler = scaler_with(3, 2000);
        given_backward(whole, whole_number);
        ck_assert(fsdp_grad_scaler_unscale(scaler, o) == FSDP_OK);
        fsdp_parameter_t *p = fsdp_module_find_parameter(whole, "table");
        bool good = true;
        for (size_t e = 0; e < fsdp_parameter_numel(p); e++)
            good &= fsdp_tensor_get(p->grad, e) ==
                    half_round(types[t], types[t] == FSDP_FP32
                                             ? (float)third("table", e)
                                             : third("table", e));
        mck_assert(good);
        for (int b = 0; b < 4; b++) {
            fsdp_grad_scaler_update(scaler);
            fsdp_tensor_set(p->grad, 5, b < 3 ? bad[b] : most[t]);
            ck_assert(fsdp_grad_scaler_unscale(scaler, o) == FSDP_OK);
            mck_assert(fsdp_grad_scaler_found_inf(scaler, o) == (b < 3));
        }
        fsdp_grad_scaler_destroy(&scaler);
        fsdp_optimizer_destroy(&o);
        fsdp_module_destroy(&whole);
    }
}
END_TEST

/* ---- agreement ---------------------------------------------------------- */

/* Every rank in turn has a bad number in each of the parameters that it has
 * something of (most have nothing of "scale" and "a.bias"): all ranks see it.
 * Its padding may hold anything. */
START_TEST(one_rank_tells_all)
{
    fsdp_grad_scaler_t *scaler = scaler_with(1, 2000);
    given_backward(model, whole_number);
    int world = fsdp_comm_size(fsdp_comm_world());
    for (int n = 0; n < world * GIVEN_SPECS; n++) {
        bool mine = n / GIVEN_SPECS == fsdp_comm_rank(fsdp_comm_world());
        int spec = n % GIVEN_SPECS;
        if (given_specs[spec].use != GIVEN_USED)
            continue;
        fsdp_local_t local = fsdp_parameter_local(
            fsdp_module_find_parameter(model, given_specs[spec].name));
        bool poked = mine && local.numel > 0;
        float *last = (float *)local.grad + local.numel - 1, was = 0;
        if (poked) {
            was = *last;
            *last = (float)bad[n % 3];
        } else if (mine && local.padded_numel > 0) {
            *(float *)local.grad = INFINITY; /* padding */
        }
        ck_assert(fsdp_grad_scaler_unscale(scaler, sgd) == FSDP_OK);
        bool any = !all_true(!poked);
        mck_assert(fsdp_grad_scaler_found_inf(scaler, sgd) == any);
        if (poked)
            *last = was;
        else if (mine && local.padded_numel > 0)
            *(float *)local.grad = 0;
        ck_assert(fsdp_grad_scaler_update_to(scaler, 1) == FSDP_OK);
    }
    mck_assert(all_are(true, whole_number));
    fsdp_grad_scaler_destroy(&scaler);
}
END_TEST

static double
infinite_at_one(const char *name, size_t e)
{
    return strcmp(name, "b.weight") == 0 && e == 27 ? INFINITY
                                                    : whole_number(name, e);
}

static double
after_a_step(const char *name, size_t e)
{
    return start(name, e) - ldexp(whole_number(name, e), LR_EXPONENT - 10);
}

/* An infinity in the last row of one parameter: nobody steps and the scale is
 * halved.  Then gradients 2^10 too large under half of 2^11: all step. */
START_TEST(skips_on_all_or_none)
{
    fsdp_grad_scaler_t *scaler = scaler_with(0x1p11, 2000);
    bool stepped = true;
    given_backward(model, infinite_at_one);
    ck_assert(fsdp_grad_scaler_step(scaler, sgd, &stepped) == FSDP_OK);
    mck_assert(!stepped);
    mck_assert(all_are(false, start));
    ck_assert(fsdp_grad_scaler_update(scaler) == FSDP_OK);
    mck_assert(fsdp_grad_scaler_get_scale(scaler) == 0x1p10);

    fsdp_optimizer_zero_grad(sgd);
    given_backward(model, whole_number);
    ck_assert(fsdp_grad_scaler_step(scaler, sgd, &stepped) == FSDP_OK);
    mck_assert(stepped);
    mck_assert(all_are(false, after_a_step));
    ck_assert(fsdp_grad_scaler_update(scaler) == FSDP_OK);
    mck_assert(fsdp_grad_scaler_get_scale(scaler) == 0x1p10);
    fsdp_grad_scaler_destroy(&scaler);
}
END_TEST

/* Ranks of another group do not hear of it; without a group all would. */
START_TEST(within_the_communicator)
{
    int world = fsdp_comm_size(fsdp_comm_world());
    int rank = fsdp_comm_rank(fsdp_comm_world());
    if (world % 2 == 0) {
        fsdp_mesh_t *pairs = fsdp_mesh_create_2d(world / 2, 2);
        fsdp_grad_scaler_options_t o = fsdp_grad_scaler_options_default();
        o.init_scale = 1;
        o.comm = fsdp_mesh_shard_comm(pairs);
        fsdp_grad_scaler_t *scaler = fsdp_grad_scaler_create(&o);
        fsdp_tape_t *tape = fsdp_tape_create(NULL);
        fsdp_tensor_t *loss = fsdp_tape_new_tensor(tape, FSDP_FP32, 0, NULL);
        fsdp_tensor_zero(loss);
        fsdp_grad_scaler_scale(scaler, tape, loss);
        fsdp_tape_destroy(&tape);
        given_backward(model, whole_number);
        fsdp_local_t local =
            fsdp_parameter_local(fsdp_module_find_parameter(model, "c.weight"));
        if (rank == world - 1)
            *(float *)local.grad = NAN;
        ck_assert(fsdp_grad_scaler_unscale(scaler, sgd) == FSDP_OK);
        mck_assert(fsdp_grad_scaler_found_inf(scaler, sgd) ==
                   (rank >= world - 2));
        fsdp_grad_scaler_destroy(&scaler);
        fsdp_mesh_destroy(&pairs);
    }
}
END_TEST

/* A second optimizer whose gradients are finite steps; the scale shrinks once
 * for both. */
START_TEST(each_optimizer_by_itself)
{
    fsdp_module_t *other =
        given_create(given_specs, 2, FSDP_FP32, mesh, GIVEN_WHOLE, start);
    fsdp_optimizer_t *second = new_sgd(other);
    fsdp_grad_scaler_t *scaler = scaler_with(16, 2000);
    bool stepped[2];
    given_backward(model, infinite_at_one);
    given_backward(other, whole_number);
    ck_assert(fsdp_grad_scaler_step(scaler, sgd, &stepped[0]) == FSDP_OK);
    ck_assert(fsdp_grad_scaler_step(scaler, second, &stepped[1]) == FSDP_OK);
    mck_assert(!stepped[0] && stepped[1]);
    ck_assert(fsdp_grad_scaler_update(scaler) == FSDP_OK);
    mck_assert(fsdp_grad_scaler_get_scale(scaler) == 8);
    fsdp_grad_scaler_destroy(&scaler);
    fsdp_optimizer_destroy(&second);
    fsdp_module_destroy(&other);
}
END_TEST

/* ---- the scale ---------------------------------------------------------- */

/* One iteration on a model of one number. */
static void
iterate(fsdp_grad_scaler_t *scaler, fsdp_module_t *m, fsdp_optimizer_t *o,
        bool finite)
{
    fsdp_optimizer_zero_grad(o);
    given_backward(m, whole_number);
    fsdp_parameter_t *p = fsdp_module_find_parameter(m, "scale");
    if (!finite)
        fsdp_tensor_set(p->grad, 0, NAN);
    ck_assert(fsdp_grad_scaler_step(scaler, o, NULL) == FSDP_OK);
    ck_assert(fsdp_grad_scaler_update(scaler) == FSDP_OK);
}

/* Interval 3, 'f' a finite step, 'x' a skipped one: three f in a row double it,
 * an x halves it and begins the count anew. */
START_TEST(grows_and_shrinks)
{
    static const char what[] = "fffffxffffffxxff";
    static const int exponent[] = {4, 4, 5, 5, 5, 4, 4, 4,
                                   5, 5, 5, 6, 5, 4, 4, 4};
    static const long tracker[] = {1, 2, 0, 1, 2, 0, 1, 2,
                                   0, 1, 2, 0, 0, 0, 1, 2};
    fsdp_module_t *m =
        given_create(&given_specs[1], 1, FSDP_FP32, mesh, GIVEN_WHOLE, start);
    fsdp_optimizer_t *o = new_sgd(m);
    fsdp_grad_scaler_t *scaler = scaler_with(16, 3), *copy = scaler_with(1, 9);
    for (size_t i = 0; i < sizeof what - 1; i++) {
        if (i == 8) { /* from a checkpoint */
            fsdp_grad_scaler_state_t s = fsdp_grad_scaler_get_state(scaler);
            ck_assert(fsdp_grad_scaler_set_state(copy, &s) == FSDP_OK);
        }
        iterate(i < 8 ? scaler : copy, m, o, what[i] == 'f');
        fsdp_grad_scaler_state_t s =
            fsdp_grad_scaler_get_state(i < 8 ? scaler : copy);
        mck_assert(s.scale == ldexp(1, exponent[i]));
        mck_assert(s.growth_tracker == tracker[i]);
    }
    fsdp_grad_scaler_destroy(&scaler);
    fsdp_grad_scaler_destroy(&copy);
    fsdp_optimizer_destroy(&o);
    fsdp_module_destroy(&m);
}
END_TEST

/* 2^127 cannot be doubled; 2^-127, whose reciprocal is the largest power of two
 * of float32, cannot be halved. */
START_TEST(stays_a_number)
{
    fsdp_module_t *m =
        given_create(&given_specs[1], 1, FSDP_FP32, mesh, GIVEN_WHOLE, start);
    fsdp_optimizer_t *o = new_sgd(m);
    fsdp_grad_scaler_t *high = scaler_with(0x1p127, 1);
    iterate(high, m, o, true);
    mck_assert(fsdp_grad_scaler_get_scale(high) == 0x1p127);
    fsdp_grad_scaler_t *low = scaler_with(0x1p-127, 1);
    iterate(low, m, o, false);
    mck_assert(fsdp_grad_scaler_get_scale(low) == 0x1p-127);
    fsdp_grad_scaler_destroy(&high);
    fsdp_grad_scaler_destroy(&low);
    fsdp_optimizer_destroy(&o);
    fsdp_module_destroy(&m);
}
END_TEST

START_TEST(defaults)
{
    fsdp_grad_scaler_options_t o = fsdp_grad_scaler_options_default();
    ck_assert(o.init_scale == 65536 && o.growth_factor == 2 &&
              o.backoff_factor == 0.5 && o.growth_interval == 2000 &&
              o.enabled && o.comm == NULL);
    fsdp_grad_scaler_t *scaler = fsdp_grad_scaler_create(NULL);
    ck_assert(fsdp_grad_scaler_get_scale(scaler) == 65536);
    ck_assert(fsdp_grad_scaler_is_enabled(scaler));
    fsdp_grad_scaler_destroy(&scaler);
}
END_TEST

/* ---- with clipping ------------------------------------------------------ */

/* The norm is that of the unscaled gradients, and the step does not unscale them
 * again. */
START_TEST(unscale_then_clip)
{
    fsdp_grad_scaler_t *scaler = scaler_with(0x1p10, 2000);
    double scaled, norm;
    bool stepped = false;
    given_backward(model, whole_number);
    ck_assert(fsdp_grad_norm(model, 2, &scaled) == FSDP_OK);
    ck_assert(fsdp_grad_scaler_unscale(scaler, sgd) == FSDP_OK);
    ck_assert(fsdp_clip_grad_norm(model, 1e9, &norm) == FSDP_OK);
    mck_assert(norm == scaled / 0x1p10);
    ck_assert(fsdp_grad_scaler_step(scaler, sgd, &stepped) == FSDP_OK);
    mck_assert(stepped);
    mck_assert(all_are(false, after_a_step));
    fsdp_grad_scaler_destroy(&scaler);
}
END_TEST

/* The scale goes through a backward: gradients are so many times larger. */
START_TEST(scales_gradients)
{
    double grad[2];
    for (int k = 0; k < 2; k++) {
        fsdp_grad_scaler_options_t o = fsdp_grad_scaler_options_default();
        o.enabled = k == 1;
        fsdp_grad_scaler_t *scaler = fsdp_grad_scaler_create(&o);
        fsdp_parameter_t *p = fsdp_parameter_create(
            "w", FSDP_FP32, 2, (size_t[]){1, 1}, FSDP_INIT_ONES, 0, 0);
        fsdp_tape_t *tape = fsdp_tape_create(NULL);
        fsdp_tensor_t *x =
            fsdp_tape_new_tensor(tape, FSDP_FP32, 2, (size_t[]){1, 1});
        fsdp_tensor_set(x, 0, 0.75);
        fsdp_tensor_t *y = fsdp_linear(tape, x, p, NULL);
        fsdp_backward(tape, fsdp_grad_scaler_scale(scaler, tape, y));
        grad[k] = fsdp_tensor_get(p->grad, 0);
        fsdp_tape_destroy(&tape);
        fsdp_parameter_destroy(&p);
        fsdp_grad_scaler_destroy(&scaler);
    }
    ck_assert_double_eq(grad[0], 0.75);
    ck_assert_double_eq(grad[1], 0.75 * 65536);
}
END_TEST

/* ---- refusals ----------------------------------------------------------- */

START_TEST(order_of_calls)
{
    fsdp_grad_scaler_t *scaler = fsdp_grad_scaler_create(NULL);
    given_backward(model, whole_number);
    ck_assert(fsdp_grad_scaler_unscale(scaler, sgd) == FSDP_ERR_USAGE);
    ck_assert(fsdp_grad_scaler_step(scaler, sgd, NULL) == FSDP_ERR_USAGE);
    ck_assert(fsdp_grad_scaler_update(scaler) == FSDP_ERR_USAGE);
    fsdp_grad_scaler_destroy(&scaler);

    scaler = scaler_with(1, 2000);
    ck_assert(fsdp_grad_scaler_update(scaler) == FSDP_ERR_USAGE);
    ck_assert(fsdp_grad_scaler_unscale(scaler, sgd) == FSDP_OK);
    ck_assert(fsdp_grad_scaler_unscale(scaler, sgd) == FSDP_ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(fsdp_error_message(), "a second time"));
    ck_assert(fsdp_grad_scaler_step(scaler, sgd, NULL) == FSDP_OK);
    ck_assert(fsdp_grad_scaler_step(scaler, sgd, NULL) == FSDP_ERR_USAGE);
    ck_assert(fsdp_grad_scaler_unscale(scaler, sgd) == FSDP_ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(fsdp_error_message(), "after the step"));
    ck_assert(fsdp_grad_scaler_update(scaler) == FSDP_OK);
    ck_assert(fsdp_grad_scaler_update(scaler) == FSDP_ERR_USAGE);
    ck_assert(fsdp_grad_scaler_unscale(scaler, sgd) == FSDP_OK);
    fsdp_grad_scaler_destroy(&scaler);
}
END_TEST

START_TEST(bad_options)
{
    static const double scale[] = {0, -1, NAN, INFINITY, 1e39, 1e-46};
    static const double growth[] = {1, 0.5, NAN, INFINITY};
    static const double backoff[] = {1, 0, -0.5, NAN};
    fsdp_grad_scaler_t *scaler = fsdp_grad_scaler_create(NULL);
    for (int i = 0; i < 6 + 4 + 4 + 1; i++) {
        fsdp_grad_scaler_options_t o = fsdp_grad_scaler_options_default();
        if (i < 6)
            o.init_scale = scale[i];
        else if (i < 10)
            o.growth_factor = growth[i - 6];
        else if (i < 14)
            o.backoff_factor = backoff[i - 10];
        else
            o.growth_interval = 0;
        ck_assert_ptr_null(fsdp_grad_scaler_create(&o));
        fsdp_grad_scaler_state_t s = {o.init_scale, o.growth_factor,
                                      o.backoff_factor, o.growth_interval, 0};
        ck_assert(fsdp_grad_scaler_set_state(scaler, &s) == FSDP_ERR_USAGE);
        if (i < 6)
            ck_assert(fsdp_grad_scaler_update_to(scaler, scale[i]) ==
                      FSDP_ERR_USAGE);
    }
    ck_assert(fsdp_grad_scaler_get_scale(scaler) == 65536);
    fsdp_grad_scaler_destroy(&scaler);
}
END_TEST

static double
infinite_start(const char *name, size_t e)
{
    return start(name, e) - ldexp(infinite_at_one(name, e), LR_EXPONENT);
}

/* Not enabled it is not there: the step takes the infinity as it is. */
START_TEST(not_enabled)
{
    fsdp_grad_scaler_options_t o = fsdp_grad_scaler_options_default();
    o.enabled = false;
    o.init_scale = -1; /* not looked at, as in PyTorch */
    fsdp_grad_scaler_t *scaler = fsdp_grad_scaler_create(&o);
    bool stepped = false;
    ck_assert(!fsdp_grad_scaler_is_enabled(scaler));
    ck_assert(fsdp_grad_scaler_get_scale(scaler) == 1);
    given_backward(model, infinite_at_one);
    for (int i = 0; i < 2; i++)
        ck_assert(fsdp_grad_scaler_unscale(scaler, sgd) == FSDP_OK);
    ck_assert(fsdp_grad_scaler_step(scaler, sgd, &stepped) == FSDP_OK);
    ck_assert(fsdp_grad_scaler_update(scaler) == FSDP_OK);
    ck_assert(fsdp_grad_scaler_update_to(scaler, 5) == FSDP_OK);
    mck_assert(stepped);
    mck_assert(all_are(false, infinite_start));
    fsdp_grad_scaler_destroy(&scaler);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("grad scaler");
    TCase *tcase = tcase_create("grad scaler");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 0);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, gradients_times_the_reciprocal);
    tcase_add_test(tcase, gradients_of_every_type);
    tcase_add_test(tcase, one_rank_tells_all);
    tcase_add_test(tcase, skips_on_all_or_none);
    tcase_add_test(tcase, within_the_communicator);
    tcase_add_test(tcase, each_optimizer_by_itself);
    tcase_add_test(tcase, grows_and_shrinks);
    tcase_add_test(tcase, stays_a_number);
    tcase_add_test(tcase, defaults);
    tcase_add_test(tcase, unscale_then_clip);
    tcase_add_test(tcase, scales_gradients);
    tcase_add_test(tcase, order_of_calls);
    tcase_add_test(tcase, bad_options);
    tcase_add_test(tcase, not_enabled);
    return mck_run(argc, argv, suite);
}
