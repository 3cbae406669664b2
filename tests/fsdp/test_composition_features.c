/* Ranks: 2 4 8 */
/* Tensor parallelism with what else fully_shard() can do: mixed precision, gradients
 * added up without synchronisation, AdamW and clipping; against one process that is
 * told the degree, bit by bit.  And FSDP1, which cannot. */
#include <string.h>

#include "composition.h"

enum { STEPS = 2, MICROS = 3 };

#define NO_POLICY                                                              \
    {                                                                          \
        FSDP_DTYPE_NONE, FSDP_DTYPE_NONE, FSDP_DTYPE_NONE, true                \
    }

typedef struct feature {
    bool no_sync;
    double max_norm; /* 0: no clipping */
} feature_t;

/* Forwards and backwards of this rank, the last of which synchronises. */
static void
run_micros(const tp_case_t *c, const feature_t *f, fsdp_module_t *mine,
           uint32_t salt, double *loss)
{
    for (size_t j = 0; j < MICROS; j++) {
        bool sync = !f->no_sync || j + 1 == MICROS;
        ck_assert(fsdp_module_set_requires_gradient_sync(mine, sync, true) ==
                  FSDP_OK);
        loss[j] = case_run(c->model, mine, c->tp, salt + tp_batch(c, j));
    }
}

/* The norm of all parts, and gradients scaled by it: it is beyond
 * the largest, or this would show nothing. */
static void
clip(const feature_t *f, fsdp_module_t *mine, baseline_t *b)
{
    double norm = -1, want = -2;
    if (f->max_norm == 0)
        return;
    ck_assert(fsdp_clip_grad_norm(mine, f->max_norm, &norm) == FSDP_OK);
    ck_assert(fsdp_clip_grad_norm(b->master, f->max_norm, &want) == FSDP_OK);
    mck_assert(norm == want && norm > f->max_norm);
    mck_assert(local_agrees(mine, b, true));
}

static void
check(const tp_case_t *c, const feature_t *f)
{
    fsdp_mesh_t *data, *mesh = tp_mesh(c, &data);
    fsdp_module_t *mine = tp_sharded(c, mesh, data);
    baseline_t *b = tp_baseline(c);
    averaging_t a = {(size_t)c->replicas, (size_t)c->shards};
    fsdp_adamw_options_t adamw = fsdp_adamw_options_default();
    adamw.lr = 0.0625;
    fsdp_optimizer_t *optimizer[2] = {fsdp_adamw_create(mine, &adamw),
                                      fsdp_adamw_create(b->master, &adamw)};
    for (uint32_t step = 0; step < STEPS; step++) {
        double loss[MICROS];
        run_micros(c, f, mine, 32 * step, loss);
        mck_assert(tp_baseline_run(c, b, 32 * step, MICROS, loss));
        if (f->no_sync)
            reduce_accumulated(b, a, MICROS);
        else
            reduce_grads(b, a, MICROS);
        mck_assert(local_agrees(mine, b, true));
        clip(f, mine, b);
        for (int i = 0; i < 2; i++) {
            fsdp_optimizer_step(optimizer[i]);
            fsdp_optimizer_zero_grad(optimizer[i]);
        }
        mck_assert(local_agrees(mine, b, false));
    }
    for (int i = 0; i < 2; i++)
        fsdp_optimizer_destroy(&optimizer[i]);
    fsdp_module_destroy(&mine);
    baseline_destroy(&b);
    fsdp_mesh_destroy(&data);
    fsdp_mesh_destroy(&mesh);
}

/* dp x tp, and replicas x dp x tp where there are four ranks or eight. */
static void
check_meshes(case_model_t model, fsdp_mixed_precision_policy_t policy,
             feature_t feature)
{
    int w = world_size(), cases = 0;
    for (int tp = w == 8 ? 4 : 2; tp <= w && tp <= 4; tp++)
        if (w % tp == 0)
            check(&(tp_case_t){model, 1, w / tp, tp,
                               cases++ % 2 ? FSDP_RESHARD_FALSE
                                           : FSDP_RESHARD_AUTO,
                               policy},
                  &feature);
    if (w % 4 == 0)
        check(&(tp_case_t){model, 2, w / 4, 2, FSDP_RESHARD_AUTO, policy},
              &feature);
}

/* Gathered and computed with in 16 bits, reduced in 32. */
START_TEST(mixed_precision)
{
    fsdp_mixed_precision_policy_t policy = {FSDP_BF16, FSDP_FP32,
                                            FSDP_DTYPE_NONE, true};
    check_meshes((case_model_t)_i, policy, (feature_t){false, 0});
}
END_TEST

START_TEST(without_synchronisation)
{
    check_meshes((case_model_t)_i, (fsdp_mixed_precision_policy_t)NO_POLICY,
                 (feature_t){true, 0});
}
END_TEST

/* The accumulator is in the type of the reduction. */
START_TEST(mixed_precision_without_synchronisation)
{
    fsdp_mixed_precision_policy_t policy = {FSDP_BF16, FSDP_FP32,
                                            FSDP_DTYPE_NONE, true};
    check_meshes((case_model_t)_i, policy, (feature_t){true, 0});
}
END_TEST

/* Each part counts once in the norm, and what all tp ranks have, once too. */
START_TEST(clipping)
{
    check_meshes((case_model_t)_i, (fsdp_mixed_precision_policy_t)NO_POLICY,
                 (feature_t){_i % 2 == 0, 0x1p-7});
}
END_TEST

START_TEST(fsdp1_refuses_parts)
{
    int w = world_size();
    fsdp_tensor_parallel_t tp = {w, fsdp_comm_world(), FSDP_ORDER_TREE};
    fsdp_module_t *m = case_create(CASE_MLP, w, FSDP_FP32);
    ck_assert(case_parallelize(CASE_MLP, m, &tp) == FSDP_OK);
    fsdp1_options_t options = fsdp1_options_default();
    fsdp_mesh_t *mesh = options.mesh = fsdp_mesh_create_1d();
    fsdp_status_t status = fsdp_fully_sharded_data_parallel(m, &options);
    mck_assert(status == FSDP_ERR_USAGE);
    ck_assert(strstr(fsdp_error_message(), "layers.0.weight") != NULL);
    ck_assert(strstr(fsdp_error_message(), "fully_shard()") != NULL);
    fsdp_module_destroy(&m);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("composition_features");
    TCase *tcase = tcase_create("features");
    tcase_set_timeout(tcase, 300);
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, mixed_precision, CASE_MLP, CASE_GPT2_TIED);
    tcase_add_loop_test(tcase, without_synchronisation, CASE_GPT2_TIED,
                        CASE_MODELS);
    tcase_add_loop_test(tcase, mixed_precision_without_synchronisation, 0,
                        CASE_MODELS);
    tcase_add_loop_test(tcase, clipping, 0, CASE_MODELS);
    tcase_add_test(tcase, fsdp1_refuses_parts);
    return mck_run(argc, argv, suite);
}
