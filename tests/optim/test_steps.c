/* SGD and AdamW on shards: every rank's rows are those of the whole parameter,
 * stepped by the twin of PyTorch's tensor operations, bit for bit. */
#include "mck.h"

#include <math.h>

#include "fsdp/optim.h"
#include "given.h"
#include "twin/optimizers.h"

enum { STEPS = 4, MAX_STATES = 2 };
static const fsdp_dtype_t dtypes[] = {FSDP_FP32, FSDP_FP64};
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

static double
value(const char *name, size_t e)
{
    return twin_random((uint32_t)fsdp_hash_name(name), e);
}

static double
grad(const char *name, size_t e)
{
    return twin_random((uint32_t)fsdp_hash_name(name) + (uint32_t)step_now, e);
}

static numbers_t
fill(fsdp_dtype_t dtype, const fsdp_parameter_t *p, given_fn_t fn)
{
    numbers_t x = numbers_make(dtype, fsdp_parameter_numel(p));
    for (size_t e = 0; e < x.n; e++)
        numbers_set(x, e, fn != NULL ? fn(p->name, e) : 0);
    return x;
}

/* The whole parameter and its states, as they should be. */
typedef struct want {
    fsdp_parameter_t *parameter;
    bool used;
    numbers_t param, state[MAX_STATES];
} want_t;

/* A run: what is being tested, and how its twin makes a step. */
typedef struct run {
    fsdp_module_t *model;
    fsdp_optimizer_t *optimizer;
    int num_states;
    want_t want[GIVEN_SPECS];
    bool adamw;
    twin_sgd_t sgd;
    twin_adamw_t adam;
} run_t;

static void
open_run(run_t *run, fsdp_dtype_t dtype, given_cut_t cut)
{
    run->model =
        given_create(given_specs, GIVEN_SPECS, dtype, mesh, cut, value);
    for (int i = 0; i < GIVEN_SPECS; i++) {
        want_t *w = &run->want[i];
        w->parameter =
            fsdp_module_find_parameter(run->model, given_specs[i].name);
        w->used = given_specs[i].use == GIVEN_USED;
        w->param = fill(dtype, w->parameter, value);
        for (int s = 0; s < MAX_STATES; s++)
            w->state[s] = fill(dtype, w->parameter, NULL);
    }
    if (run->adamw) {
        twin_adamw_t o = run->adam;
        run->optimizer = fsdp_adamw_create(
            run->model, &(fsdp_adamw_options_t){o.lr, o.beta1, o.beta2, o.eps,
                                                o.weight_decay});
        run->num_states = 2;
        return;
    }
    twin_sgd_t o = run->sgd;
    run->optimizer = fsdp_sgd_create(
        run->model, &(fsdp_sgd_options_t){o.lr, o.momentum, o.dampening,
                                          o.weight_decay, o.nesterov});
    run->num_states = o.momentum != 0 ? 1 : 0;
}

static void
close_run(run_t *run)
{
    for (int i = 0; i < GIVEN_SPECS; i++) {
        numbers_free(run->want[i].param);
        for (int s = 0; s < MAX_STATES; s++)
            numbers_free(run->want[i].state[s]);
    }
    fsdp_optimizer_destroy(&run->optimizer);
    fsdp_module_destroy(&run->model);
}

static void
step_twin(run_t *run, int step)
{
    for (int i = 0; i < GIVEN_SPECS; i++) {
        want_t *w = &run->want[i];
        if (!w->used)
            continue;
        numbers_t g = fill(w->param.dtype, w->parameter, grad);
        if (run->adamw)
            torch_adamw(run->adam, w->param, g, w->state[0], w->state[1], step);
        else
            torch_sgd(run->sgd, w->param, g, w->state[0], step == 1);
        numbers_free(g);
    }
}

/* Are these the bits of this rank's rows of `whole`? */
static bool
rows_are(const want_t *w, const void *rows, numbers_t whole)
{
    fsdp_local_t local = fsdp_parameter_local(w->parameter);
    size_t size = fsdp_dtype_size(whole.dtype);
    size_t begin = fsdp_layout_begin(&local.layout);
    return memcmp(rows, (const char *)whole.data + begin * size,
                  local.numel * size) == 0;
}

/* Behind the rows of a shard stand zeros. */
static bool
padding_is_zero(const want_t *w, const void *rows)
{
    fsdp_local_t local = fsdp_parameter_local(w->parameter);
    size_t size = fsdp_dtype_size(w->parameter->dtype);
    const char *byte = rows;
    for (size_t i = local.numel * size; i < local.padded_numel * size; i++)
        if (byte[i] != 0)
            return false;
    return true;
}

static bool
all_as_wanted(run_t *run, bool stepped)
{
    for (int i = 0; i < GIVEN_SPECS; i++) {
        const want_t *w = &run->want[i];
        void *data = fsdp_parameter_local(w->parameter).data;
        if (!rows_are(w, data, w->param))
            return false;
        for (int s = 0; s < run->num_states; s++) {
            void *state = fsdp_optimizer_state(run->optimizer, w->parameter, s);
            if ((state != NULL) != (stepped && w->used))
                return false;
            if (state != NULL &&
                !(rows_are(w, state, w->state[s]) && padding_is_zero(w, state)))
                return false;
        }
    }
    return true;
}

/* A step without a gradient, which changes nothing and counts for nothing,
 * stands between the second and the third. */
static void
check(run_t run, fsdp_dtype_t dtype, given_cut_t cut)
{
    open_run(&run, dtype, cut);
    mck_assert(run.optimizer != NULL);
    mck_assert(all_as_wanted(&run, false));
    for (int step = 1; step <= STEPS; step++) {
        step_now = step;
        given_backward(run.model, grad);
        fsdp_optimizer_step(run.optimizer);
        step_twin(&run, step);
        mck_assert(all_as_wanted(&run, true));
        fsdp_optimizer_zero_grad(run.optimizer);
        if (step == 2)
            fsdp_optimizer_step(run.optimizer);
        mck_assert(all_as_wanted(&run, true));
    }
    close_run(&run);
}

static void
check_all(run_t run)
{
    for (int d = 0; d < 2; d++)
        for (int cut = 0; cut < GIVEN_CUTS; cut++)
            check(run, dtypes[d], (given_cut_t)cut);
}

START_TEST(sgd)
{
    static const twin_sgd_t options[] = {
        {.lr = 0.1},
        {.lr = 0.01, .weight_decay = 0.1},
        {.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01},
        {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.02, .nesterov = true},
    };
    for (int i = 0; i < 4; i++)
        check_all((run_t){.sgd = options[i]});
}
END_TEST

START_TEST(adamw)
{
    static const twin_adamw_t options[] = {
        {1e-3, 0.9, 0.999, 1e-8, 0.01},
        {1e-2, 0.8, 0.95, 1e-6, 0},
    };
    for (int i = 0; i < 2; i++)
        check_all((run_t){.adamw = true, .adam = options[i]});
}
END_TEST

/* The rate that is set is the rate that is used. */
START_TEST(learning_rate)
{
    run_t run = {.sgd = {.lr = 0.5}};
    open_run(&run, FSDP_FP32, GIVEN_ALL);
    ck_assert(fsdp_optimizer_get_lr(run.optimizer) == 0.5);
    fsdp_optimizer_set_lr(run.optimizer, 0.125);
    ck_assert(fsdp_optimizer_get_lr(run.optimizer) == 0.125);
    step_now = 1;
    given_backward(run.model, grad);
    fsdp_optimizer_step(run.optimizer);
    run.sgd.lr = 0.125;
    step_twin(&run, 1);
    mck_assert(all_as_wanted(&run, true));
    close_run(&run);
}
END_TEST

/* Each rank keeps ceil(rows / W) rows of each state, and only after a step. */
static void
check_memory(run_t run, int num_states)
{
    size_t size = (size_t)fsdp_comm_size(fsdp_comm_world()), numel = 0;
    for (int i = 0; i < GIVEN_SPECS; i++) {
        const given_spec_t *spec = &given_specs[i];
        size_t row = 1;
        for (int d = 1; d < spec->ndim; d++)
            row *= spec->shape[d];
        if (spec->use == GIVEN_USED)
            numel += (spec->shape[0] + size - 1) / size * row;
    }
    open_run(&run, FSDP_FP32, GIVEN_ALL);
    mck_assert(fsdp_memory_live_bytes(FSDP_MEM_OPTIMIZER) == 0);
    for (int step = 1; step <= 2; step++) {
        given_backward(run.model, grad);
        fsdp_optimizer_step(run.optimizer);
        mck_assert(fsdp_memory_live_bytes(FSDP_MEM_OPTIMIZER) ==
                   numel * 4 * (size_t)num_states);
    }
    close_run(&run);
    mck_assert(fsdp_memory_live_bytes(FSDP_MEM_OPTIMIZER) == 0);
}

START_TEST(memory)
{
    check_memory((run_t){.sgd = {.lr = 1}}, 0);
    check_memory((run_t){.sgd = {.lr = 1, .momentum = 0.5}}, 1);
    check_memory((run_t){.adamw = true, .adam = {.lr = 1, .eps = 1}}, 2);
}
END_TEST

START_TEST(names_and_defaults)
{
    fsdp_sgd_options_t s = fsdp_sgd_options_default();
    fsdp_adamw_options_t a = fsdp_adamw_options_default();
    ck_assert(s.lr == 1e-3 && s.momentum == 0 && s.dampening == 0);
    ck_assert(s.weight_decay == 0 && !s.nesterov);
    ck_assert(a.lr == 1e-3 && a.beta1 == 0.9 && a.beta2 == 0.999);
    ck_assert(a.eps == 1e-8 && a.weight_decay == 0.01);

    fsdp_module_t *model = given_create(given_specs, GIVEN_SPECS, FSDP_FP32,
                                        mesh, GIVEN_ALL, value);
    fsdp_optimizer_t *plain = fsdp_sgd_create(model, &s);
    s.momentum = 0.9;
    fsdp_optimizer_t *heavy = fsdp_sgd_create(model, &s);
    fsdp_optimizer_t *adam = fsdp_adamw_create(model, &a);
    ck_assert(fsdp_optimizer_state_name(plain, 0) == NULL);
    ck_assert_str_eq(fsdp_optimizer_state_name(heavy, 0), "momentum_buffer");
    ck_assert(fsdp_optimizer_state_name(heavy, 1) == NULL);
    ck_assert_str_eq(fsdp_optimizer_state_name(adam, 0), "exp_avg");
    ck_assert_str_eq(fsdp_optimizer_state_name(adam, 1), "exp_avg_sq");
    ck_assert(fsdp_optimizer_state_name(adam, 2) == NULL);
    ck_assert(fsdp_optimizer_state_name(adam, -1) == NULL);
    fsdp_optimizer_destroy(&plain);
    fsdp_optimizer_destroy(&heavy);
    fsdp_optimizer_destroy(&adam);
    ck_assert(adam == NULL);
    fsdp_optimizer_destroy(&adam);
    fsdp_module_destroy(&model);
}
END_TEST

/* What PyTorch raises a ValueError for. */
START_TEST(refusals)
{
    static const fsdp_sgd_options_t sgds[] = {
        {.lr = -1},
        {.lr = NAN},
        {.lr = 1, .momentum = -0.1},
        {.lr = 1, .weight_decay = -0.1},
        {.lr = 1, .nesterov = true},
        {.lr = 1, .momentum = 0.9, .dampening = 0.1, .nesterov = true},
    };
    static const fsdp_adamw_options_t adams[] = {
        {-1, 0.9, 0.9, 1e-8, 0},  {1, 1, 0.9, 1e-8, 0},
        {1, -0.1, 0.9, 1e-8, 0},  {1, 0.9, 1, 1e-8, 0},
        {1, 0.9, -0.1, 1e-8, 0},  {1, 0.9, NAN, 1e-8, 0},
        {1, 0.9, 0.9, -1e-8, 0},  {1, 0.9, 0.9, 1e-8, -1},
        {NAN, 0.9, 0.9, 1e-8, 0},
    };
    fsdp_module_t *model = given_create(given_specs, GIVEN_SPECS, FSDP_FP32,
                                        mesh, GIVEN_ALL, value);
    for (size_t i = 0; i < sizeof sgds / sizeof *sgds; i++) {
        ck_assert(fsdp_sgd_create(model, &sgds[i]) == NULL);
        ck_assert(strncmp(fsdp_error_message(), "SGD: ", 5) == 0);
    }
    for (size_t i = 0; i < sizeof adams / sizeof *adams; i++) {
        ck_assert(fsdp_adamw_create(model, &adams[i]) == NULL);
        ck_assert(strncmp(fsdp_error_message(), "AdamW: ", 7) == 0);
    }
    fsdp_module_destroy(&model);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("steps");
    TCase *tcase = tcase_create("steps");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 0);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, sgd);
    tcase_add_test(tcase, adamw);
    tcase_add_test(tcase, learning_rate);
    tcase_add_test(tcase, memory);
    tcase_add_test(tcase, names_and_defaults);
    tcase_add_test(tcase, refusals);
    return mck_run(argc, argv, suite);
}
