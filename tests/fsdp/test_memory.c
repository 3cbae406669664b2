/* What is in memory at most, in the forward and in the backward, and what stays
 * after a step.  PyTorch: test_fully_shard_memory.py. */
#include "fsdp.h"
#include "mck.h"
#include "twin.h"

enum { LAYERS = 5, ROWS = 2 };

/* As wide as there are ranks, so nothing is padded; all layers alike. */
static fsdp_module_t *
even_mlp(void)
{
    size_t width = 4 * (size_t)twin_size();
    fsdp_mlp_config_t config = {.num_layers = LAYERS};
    for (int i = 0; i <= LAYERS; i++)
        config.width[i] = width;
    return fsdp_mlp_create(&config);
}

static size_t
live(void)
{
    return fsdp_memory_live_bytes(FSDP_MEM_PARAM_SHARD) +
           fsdp_memory_live_bytes(FSDP_MEM_GRAD_SHARD) +
           fsdp_memory_live_bytes(FSDP_MEM_OPTIMIZER);
}

static size_t
peak(fsdp_memory_category_t category)
{
    return fsdp_memory_peak_bytes(category);
}

/* Whole parameters and gradients are those of one layer, whatever the depth.  In
 * buffers of collectives lie one gather in the forward; in the backward the next
 * layer's gather, and of one reduction its input, its output (a shard) and what
 * the W - 1 other ranks send to be added in order: three layers.  (PyTorch's
 * streams allow a gather more in the forward; NCCL needs no room to add in.) */
static void
check_peaks(size_t layer, bool backward, bool free_after_forward)
{
    size_t gathered = free_after_forward ? layer : LAYERS * layer;
    mck_assert(peak(FSDP_MEM_UNSHARDED_PARAM) == gathered);
    mck_assert(peak(FSDP_MEM_UNSHARDED_GRAD) == (backward ? layer : 0));
    size_t comm = peak(FSDP_MEM_COMM);
    if (twin_size() == 1)
        mck_assert(comm == (backward ? layer : 0));
    else if (backward)
        mck_assert(comm == (free_after_forward ? 3 : 2) * layer);
    else
        mck_assert(comm == layer);
}

START_TEST(peaks_of_a_step)
{
    bool free_after_forward = _i == 0;
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_options_t options = twin_options(mesh);
    options.reshard_after_forward =
        free_after_forward ? FSDP_RESHARD_TRUE : FSDP_RESHARD_FALSE;
    size_t width = 4 * (size_t)twin_size();
    size_t layer = (width * width + width) * sizeof(float);
    size_t shard = layer / (size_t)twin_size();
    fsdp_module_t *mlp = even_mlp();
    twin_shard(mlp, &options);
    mck_assert(live() == LAYERS * shard);

    fsdp_adamw_options_t adam = fsdp_adamw_options_default();
    fsdp_optimizer_t *optimizer = fsdp_adamw_create(mlp, &adam);
    for (int step = 0; step < 2; step++) {
        fsdp_tape_t *tape = fsdp_tape_create(NULL);
        fsdp_tensor_t *x =
            fsdp_tape_new_tensor(tape, FSDP_FP32, 2, (size_t[]){ROWS, width});
        fsdp_tensor_t *target =
            fsdp_tape_new_tensor(tape, FSDP_INT32, 1, (size_t[]){ROWS});
        fsdp_tensor_zero(x);
        fsdp_tensor_zero(target);
        fsdp_memory_reset_peaks();
        fsdp_tensor_t *loss = fsdp_mlp_loss(tape, mlp, x, target);
        check_peaks(layer, false, free_after_forward);
        fsdp_memory_reset_peaks();
        fsdp_backward(tape, loss);
        check_peaks(layer, true, free_after_forward);
        fsdp_tape_destroy(&tape);
        mck_assert(fsdp_memory_live_bytes(FSDP_MEM_UNSHARDED_PARAM) == 0);
        mck_assert(fsdp_memory_live_bytes(FSDP_MEM_COMM) == 0);
        fsdp_optimizer_step(optimizer);
        /* parameter, gradient, two moments */
        mck_assert(live() == 4 * LAYERS * shard);
        fsdp_optimizer_zero_grad(optimizer);
        mck_assert(live() == 3 * LAYERS * shard);
    }
    fsdp_optimizer_destroy(&optimizer);
    fsdp_module_destroy(&mlp);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("memory");
    TCase *tcase = tcase_create("peaks");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, peaks_of_a_step, 0, 2);
    return mck_run(argc, argv, suite);
}
