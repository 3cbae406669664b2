/* Three steps of SGD and of AdamW, with clipping, as PyTorch made them in
 * float64: from its gradients to its norms, parameters and states. */
#include "mck.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/optim.h"
#include "fsdp/safetensors.h"
#include "given.h"

enum { SPECS = 6, STEPS = 3, NUMEL = 35 + 7 + 42 + 6 + 18 + 3 };

/* The MLP of data/golden: widths 5, 7, 6, 3. */
static const given_spec_t specs[SPECS] = {
    {"layers.0.weight", 2, {7, 5}, GIVEN_USED},
    {"layers.0.bias", 1, {7}, GIVEN_USED},
    {"layers.1.weight", 2, {6, 7}, GIVEN_USED},
    {"layers.1.bias", 1, {6}, GIVEN_USED},
    {"layers.2.weight", 2, {3, 6}, GIVEN_USED},
    {"layers.2.bias", 1, {3}, GIVEN_USED},
};

static fsdp_mesh_t *mesh;
static fsdp_safetensors_t *file;
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

static void
open_golden(const char *name)
{
    char path[4096];
    const char *folder = getenv("FSDP_DATA_DIR");
    FSDP_CHECK(folder != NULL, "FSDP_DATA_DIR is not set");
    snprintf(path, sizeof path, "%s/golden/%s.safetensors", folder, name);
    fsdp_status_t status = fsdp_safetensors_open(path, &file);
    FSDP_CHECK(status == FSDP_OK, "%s", fsdp_error_message());
}

/* Element e of the tensor of that name. */
static double
golden(size_t e, const char *format, int step, const char *name)
{
    char full[128];
    double x;
    if (step > 0)
        snprintf(full, sizeof full, format, step, name);
    else
        snprintf(full, sizeof full, format, name);
    const fsdp_safetensors_entry_t *entry = fsdp_safetensors_find(file, full);
    FSDP_CHECK(entry != NULL && entry->dtype == FSDP_FP64, "no %s", full);
    FSDP_CHECK(fsdp_safetensors_read(file, entry, e, 1, &x) == FSDP_OK, "%s",
               fsdp_error_message());
    return x;
}

static double
init(const char *name, size_t e)
{
    return golden(e, "init.%s", 0, name);
}

static double
grad(const char *name, size_t e)
{
    return golden(e, "step%d.grad.%s", step_now, name);
}

/* -- what a rounding may do --
 *
 * Both sides round the same formulas, PyTorch with fused steps and a norm in
 * another order of summation.  The clipped gradient is c g, where c hangs on a
 * sum of NUMEL squares: at most NUMEL + 9 roundings.  A step of SGD or AdamW
 * adds at most 20.  So after step s each result is off by at most gamma_k, k =
 * s (2 (NUMEL + 9) + 20), times the same formula with all terms taken by their
 * magnitude (the second moment has the square of the gradient: hence the 2), on
 * either side: another 2.  No divisor in them cancels. */
typedef struct magnitude {
    double param, state[2];
} magnitude_t;

static double
bound(double magnitude, int step)
{
    double k = step * (2.0 * (NUMEL + 9) + 20), u = DBL_EPSILON / 2;
    return 2 * k * u / (1 - k * u) * magnitude;
}

static void
grow_sgd(const fsdp_sgd_options_t *o, double g, magnitude_t *m)
{
    double d = g + o->weight_decay * m->param;
    m->state[0] = step_now == 1 ? d : o->momentum * m->state[0] + d;
    m->param +=
        o->lr * (o->nesterov ? d + o->momentum * m->state[0] : m->state[0]);
}

static void
grow_adamw(const fsdp_adamw_options_t *o, double g, magnitude_t *m)
{
    double t = step_now;
    m->state[0] += (1 - o->beta1) * (g + m->state[0]);
    m->state[1] = o->beta2 * m->state[1] + (1 - o->beta2) * g * g;
    double denom = sqrt(m->state[1] / (1 - pow(o->beta2, t))) + o->eps;
    m->param *= 1 + o->lr * o->weight_decay;
    m->param += o->lr / (1 - pow(o->beta1, t)) * m->state[0] / denom;
}

/* -- a run -- */

typedef struct run {
    fsdp_module_t *model;
    fsdp_optimizer_t *optimizer;
    fsdp_sgd_options_t sgd;
    fsdp_adamw_options_t adam;
    bool adamw;
    magnitude_t size[SPECS][64];
} run_t;

static bool
near(const char *what, const char *name, double got, double want, double error)
{
    if (fabs(got - want) <= error)
        return true;
    fprintf(stderr, "step %d, %s of %s: %.17g, not %.17g +- %g\n", step_now,
            what, name, got, want, error);
    return false;
}

/* Our rows of parameter i, and of its states, against PyTorch's. */
static bool
parameter_is_near(run_t *run, int i)
{
    const char *name = specs[i].name, *state;
    char format[64];
    bool good = true;
    fsdp_parameter_t *p = fsdp_module_find_parameter(run->model, name);
    fsdp_local_t local = fsdp_parameter_local(p);
    size_t begin = fsdp_layout_begin(&local.layout);
    for (size_t e = 0; e < local.numel; e++) {
        const magnitude_t *m = &run->size[i][begin + e];
        good &= near("value", name, ((double *)local.data)[e],
                     golden(begin + e, "step%d.param.%s", step_now, name),
                     bound(m->param, step_now));
        for (int s = 0;
             (state = fsdp_optimizer_state_name(run->optimizer, s)) != NULL;
             s++) {
            double *ours = fsdp_optimizer_state(run->optimizer, p, s);
            snprintf(format, sizeof format, "step%%d.%s.%%s", state);
            good &= near(state, name, ours[e],
                         golden(begin + e, format, step_now, name),
                         bound(m->state[s], step_now));
        }
    }
    return good;
}

/* The magnitudes, from PyTorch's own numbers. */
static void
grow(run_t *run, double coefficient)
{
    for (int i = 0; i < SPECS; i++) {
        fsdp_parameter_t *p =
            fsdp_module_find_parameter(run->model, specs[i].name);
        for (size_t e = 0; e < fsdp_parameter_numel(p); e++) {
            magnitude_t *m = &run->size[i][e];
            double g = fabs(grad(p->name, e)) * coefficient;
            if (step_now == 1)
                m->param = fabs(init(p->name, e));
            if (run->adamw)
                grow_adamw(&run->adam, g, m);
            else
                grow_sgd(&run->sgd, g, m);
        }
    }
}

static void
check_step(run_t *run, double lr, double max_norm, int *clipped)
{
    double norm, want = golden(0, "step%d.grad_norm%s", step_now, "");
    run->sgd.lr = run->adam.lr = lr;
    given_backward(run->model, grad);
    ck_assert(fsdp_clip_grad_norm(run->model, max_norm, &norm) == FSDP_OK);
    mck_assert(near("norm", "all", norm, want, bound(want, 1)));
    *clipped += norm > max_norm;
    grow(run, fmin(1, max_norm / norm));

    fsdp_optimizer_set_lr(run->optimizer, lr);
    fsdp_optimizer_step(run->optimizer);
    fsdp_optimizer_zero_grad(run->optimizer);
    for (int i = 0; i < SPECS; i++)
        mck_assert(parameter_is_near(run, i));
}

static void
check_run(run_t *run, const double lr[STEPS], given_cut_t cut)
{
    int clipped = 0;
    run->model = given_create(specs, SPECS, FSDP_FP64, mesh, cut, init);
    run->optimizer = run->adamw ? fsdp_adamw_create(run->model, &run->adam)
                                : fsdp_sgd_create(run->model, &run->sgd);
    double max_norm = golden(0, "hyper.%s", 0, "max_norm");
    for (step_now = 1; step_now <= STEPS; step_now++)
        check_step(run, lr[step_now - 1], max_norm, &clipped);
    ck_assert(clipped > 0 && clipped < STEPS);
    fsdp_optimizer_destroy(&run->optimizer);
    fsdp_module_destroy(&run->model);
}

static void
check_golden(const char *name, const run_t *as)
{
    static run_t run;
    double lr[STEPS];
    open_golden(name);
    for (int s = 0; s < STEPS; s++)
        lr[s] = golden((size_t)s, "hyper.%s", 0, "lr");
    for (int cut = 0; cut < GIVEN_CUTS; cut++) {
        run = *as;
        check_run(&run, lr, (given_cut_t)cut);
    }
    fsdp_safetensors_close(&file);
}

START_TEST(sgd)
{
    static const run_t run = {
        .sgd = {.momentum = 0.9, .weight_decay = 0.01, .nesterov = true}};
    check_golden("mlp_sgd", &run);
}
END_TEST

START_TEST(adamw)
{
    static const run_t run = {
        .adamw = true,
        .adam = {
            .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1}};
    check_golden("mlp_adamw", &run);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("golden");
    TCase *tcase = tcase_create("golden");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 0);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, sgd);
    tcase_add_test(tcase, adamw);
    return mck_run(argc, argv, suite);
}
