/* SGD, AdamW, norms and clipping of parameters that are 16-bit themselves: every
 * rank's rows are those of the whole parameter, stepped by PyTorch's tensor
 * operations one after another, each a float32 expression rounded by arithmetic
 * on doubles. */
#include "mck.h"

#include <math.h>

#include "fsdp/memory.h"
#include "fsdp/optim.h"
#include "fsdp/random.h"
#include "given.h"
#include "twin/half.h"

enum { STEPS = 3 };
static const fsdp_dtype_t types[] = {FSDP_BF16, FSDP_FP16};
static fsdp_dtype_t dtype; /* under test */
static fsdp_mesh_t *mesh;
static int step_now;

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

/* Whole numbers of 7 bits over 32: both types have them. */
static double
number(const char *name, size_t e, uint32_t seed)
{
    uint32_t word =
        fsdp_random_word(seed, FSDP_RANDOM_TEST, 0, fsdp_hash_name(name), e);
    return ((double)(word % 255) - 127) / 32;
}

static double
value(const char *name, size_t e)
{
    return number(name, e, 1);
}

static double
grad(const char *name, size_t e)
{
    return number(name, e, 10 + (uint32_t)step_now);
}

/* ---- one element -------------------------------------------------------- */

static float
r(float x)
{
    return (float)half_round(dtype, x);
}

static float
alpha(double x)
{
    return r((float)x);
}

typedef struct element {
    float param, state[2];
} element_t;

static const fsdp_sgd_options_t sgd_options[] = {
    {.lr = 0.1},
    {.lr = 0.3, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01},
    {.lr = 0.1, .momentum = 0.7, .weight_decay = 0.1, .nesterov = true},
};
static const fsdp_adamw_options_t adamw_options[] = {
    {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-3},
    {.lr = 0.1, .beta1 = 0.3, .beta2 = 0.9, .eps = 0.01, .weight_decay = 0.1},
};
enum { SGDS = 3, ADAMWS = 2 };

static void
step_sgd(const fsdp_sgd_options_t *o, element_t *x, float g, int step)
{
    if (o->weight_decay != 0)
        g = r(g + alpha(o->weight_decay) * x->param);
    if (o->momentum != 0) {
        float *b = &x->state[0];
        if (step == 1) {
            *b = g;
        } else {
            *b = r(*b * (float)o->momentum);
            *b = r(*b + alpha(1 - o->dampening) * g);
        }
        g = o->nesterov ? r(g + alpha(o->momentum) * *b) : *b;
    }
    x->param = r(x->param + alpha(-o->lr) * g);
}

static void
step_adamw(const fsdp_adamw_options_t *o, element_t *x, float g, int step)
{
    float *m = &x->state[0], *v = &x->state[1], w = (float)(1 - o->beta1);
    x->param = r(x->param * (float)(1 - o->lr * o->weight_decay));
    *m = r(w < 0.5f ? *m + w * (g - *m) : g - (g - *m) * (1 - w));
    *v = r(*v * (float)o->beta2);
    *v = r(*v + (float)(1 - o->beta2) * g * g);
    float denom = r(sqrtf(*v));
    denom = r(denom / (float)sqrt(1 - pow(o->beta2, step)));
    denom = r(denom + alpha(o->eps));
    float size = (float)-(o->lr / (1 - pow(o->beta1, step)));
    x->param = r(x->param + size * *m / denom);
}

/* ---- all of them -------------------------------------------------------- */

static float
get(const void *data, size_t i)
{
    float x;
    fsdp_convert(dtype, (const uint16_t *)data + i, FSDP_FP32, &x, 1);
    return x;
}

/* This rank's rows of the parameter after `steps` steps. */
static bool
follows(fsdp_optimizer_t *optimizer, fsdp_parameter_t *p, int kind, int steps)
{
    fsdp_local_t local = fsdp_parameter_local(p);
    size_t begin = fsdp_layout_begin(&local.layout);
    for (size_t e = 0; e < local.numel; e++) {
        element_t x = {.param = (float)value(p->name, begin + e)};
        for (int s = 1; s <= steps; s++) {
            step_now = s;
            float g = (float)grad(p->name, begin + e);
            if (kind < SGDS)
                step_sgd(&sgd_options[kind], &x, g, s);
            else
                step_adamw(&adamw_options[kind - SGDS], &x, g, s);
        }
        bool good = get(local.data, e) == x.param;
        for (int s = 0; fsdp_optimizer_state_name(optimizer, s) != NULL; s++)
            good &= get(fsdp_optimizer_state(optimizer, p, s), e) == x.state[s];
        if (!good) {
            fprintf(stderr, "%s, kind %d, step %d, %s[%zu]: %g, not %g\n",
                    fsdp_dtype_name(dtype), kind, steps, p->name, begin + e,
                    (double)get(local.data, e), (double)x.param);
            return false;
        }
    }
    return true;
}

static void
run(int kind, given_cut_t cut)
{
    fsdp_module_t *model =
        given_create(given_specs, GIVEN_SPECS, dtype, mesh, cut, value);
    fsdp_optimizer_t *optimizer =
        kind < SGDS ? fsdp_sgd_create(model, &sgd_options[kind])
                    : fsdp_adamw_create(model, &adamw_options[kind - SGDS]);
    for (int step = 1; step <= STEPS; step++) {
        step_now = step;
        given_backward(model, grad);
        fsdp_optimizer_step(optimizer);
        fsdp_optimizer_zero_grad(optimizer);
        bool good = true;
        for (int i = 0; i < GIVEN_SPECS; i++)
            if (given_specs[i].use == GIVEN_USED)
                good &= follows(
                    optimizer,
                    fsdp_module_find_parameter(model, given_specs[i].name),
                    kind, step);
        mck_assert(good);
    }
    fsdp_optimizer_destroy(&optimizer);
    fsdp_module_destroy(&model);
}

START_TEST(steps_round_after_each_operation)
{
    dtype = types[_i];
    for (int kind = 0; kind < SGDS + ADAMWS; kind++)
        run(kind, kind % 2 == 0 ? GIVEN_ALL : GIVEN_WHOLE);
}
END_TEST

/* ---- clipping ----------------------------------------------------------- */

static size_t
numel(const given_spec_t *spec)
{
    size_t n = 1;
    for (int d = 0; d < spec->ndim; d++)
        n *= spec->shape[d];
    return n;
}

/* Squares are multiples of 2^-10 and their sum below 2^20: exact. */
static double
exact_norm(void)
{
    double sum = 0;
    for (int i = 0; i < GIVEN_SPECS; i++)
        for (size_t e = 0;
             given_specs[i].use == GIVEN_USED && e < numel(&given_specs[i]);
             e++)
            sum += pow(grad(given_specs[i].name, e), 2);
    return sqrt(sum);
}

START_TEST(clips_in_their_type)
{
    dtype = types[_i];
    const double max_norm = 0.3;
    step_now = 1;
    fsdp_module_t *model =
        given_create(given_specs, GIVEN_SPECS, dtype, mesh, GIVEN_ALL, value);
    given_backward(model, grad);
    double norm;
    ck_assert(fsdp_clip_grad_norm(model, max_norm, &norm) == FSDP_OK);
    float total = (float)half_round(dtype, exact_norm());
    mck_assert((float)norm == total);
    float coefficient = r(1 / r(total + alpha(1e-6)));
    coefficient = r(coefficient * (float)max_norm);
    bool good = true;
    for (int i = 0; i < GIVEN_SPECS; i++) {
        if (given_specs[i].use != GIVEN_USED)
            continue;
        fsdp_local_t local = fsdp_parameter_local(
            fsdp_module_find_parameter(model, given_specs[i].name));
        size_t begin = fsdp_layout_begin(&local.layout);
        for (size_t e = 0; e < local.numel; e++)
            good &=
                get(local.grad, e) ==
                r(coefficient * (float)grad(given_specs[i].name, begin + e));
    }
    mck_assert(good);
    fsdp_module_destroy(&model);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("half steps");
    TCase *tcase = tcase_create("half steps");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 0);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, steps_round_after_each_operation, 0, 2);
    tcase_add_loop_test(tcase, clips_in_their_type, 0, 2);
    return mck_run(argc, argv, suite);
}
