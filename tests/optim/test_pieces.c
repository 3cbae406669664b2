/* Ranks: 1 */
/* A parameter in a file, with its gradient and states: the same bits as in
 * memory, and never more resident than a piece of each. */
#include "mck.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fsdp/grad_scaler.h"
#include "fsdp/offload.h"
#include "fsdp/optim.h"
#include "twin/numbers.h"

enum { ROWS = 1801, COLUMNS = 2003, STEPS = 2, AROUND = 4 << 20 };
#define PIECE ((size_t)FSDP_OFFLOAD_PIECE_BYTES)
static const size_t shape[2] = {ROWS, COLUMNS};
static const size_t numel = (size_t)ROWS * COLUMNS; /* 3.4 pieces of floats */

static fsdp_offload_t *store;

static void
set_up(void)
{
    ck_assert_int_eq(fsdp_offload_open(".", &store), FSDP_OK);
}

static void
tear_down(void)
{
    fsdp_offload_close(&store);
}

/* What one of two equal models has; one is in a file, the other in memory. */
typedef struct half {
    fsdp_module_t *model;
    fsdp_parameter_t *parameter;
    fsdp_optimizer_t *optimizer;
    void *data, *grad;
} half_t;

static fsdp_values_t
pass(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    (void)self;
    (void)tape;
    return inputs;
}

static half_t
open_half(fsdp_offload_t *place, fsdp_dtype_t dtype)
{
    size_t bytes = numel * fsdp_dtype_size(dtype);
    half_t h = {.model = fsdp_module_create("", "Pass", pass, NULL, 0),
                .data = fsdp_offload_calloc(place, FSDP_MEM_PARAM_SHARD, bytes),
                .grad = fsdp_offload_calloc(place, FSDP_MEM_GRAD_SHARD, bytes)};
    h.parameter = fsdp_module_add_parameter(
        h.model,
        fsdp_parameter_create("w", dtype, 2, shape, FSDP_INIT_NORMAL, 1, 3));
    fsdp_parameter_init_range(h.parameter, 0, numel, h.data);
    fsdp_offload_release(h.data, bytes);
    h.parameter->data = h.data;
    h.parameter->grad = fsdp_tensor_borrow(dtype, 2, shape, h.grad);
    return h;
}

static void
close_half(half_t *h)
{
    fsdp_optimizer_destroy(&h->optimizer);
    h->parameter->data = NULL;
    fsdp_module_destroy(&h->model);
    fsdp_offload_free(h->data);
    fsdp_offload_free(h->grad);
}

static void
set_grad(half_t *h, uint32_t seed)
{
    fsdp_tensor_t *grad = h->parameter->grad;
    for (size_t i = 0; i < numel; i++)
        fsdp_tensor_set(grad, i, twin_random(seed, i));
    fsdp_offload_release(h->grad, fsdp_tensor_bytes(grad));
}

/* ---- resident memory ----------------------------------------------------- */

static size_t
status_of(const char *key)
{
    char line[256];
    size_t kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            sscanf(line + strlen(key), ": %zu", &kb);
    fclose(f);
    return kb * 1024;
}

/* Lets VmHWM begin anew; false where the system does not. */
static bool
reset_high_water(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    bool done = f != NULL && fputs("5", f) >= 0;
    return f != NULL && fclose(f) == 0 && done;
}

/* ---- the tests ----------------------------------------------------------- */

static void
make_optimizers(half_t half[2], bool adamw)
{
    fsdp_sgd_options_t sgd = {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01};
    fsdp_adamw_options_t adam = fsdp_adamw_options_default();
    for (int k = 0; k < 2; k++)
        half[k].optimizer = adamw ? fsdp_adamw_create(half[k].model, &adam)
                                  : fsdp_sgd_create(half[k].model, &sgd);
}

static void
same_bits(half_t half[2], bool adamw, fsdp_dtype_t dtype)
{
    size_t bytes = numel * fsdp_dtype_size(dtype);
    ck_assert(memcmp(half[0].data, half[1].data, bytes) == 0);
    ck_assert(memcmp(half[0].grad, half[1].grad, bytes) == 0);
    for (int s = 0; s < (adamw ? 2 : 1); s++) {
        void *state[2];
        for (int k = 0; k < 2; k++)
            state[k] =
                fsdp_optimizer_state(half[k].optimizer, half[k].parameter, s);
        ck_assert(memcmp(state[0], state[1], bytes) == 0);
        ck_assert_ptr_null(fsdp_offload_of(state[0]));
        ck_assert_ptr_eq(fsdp_offload_of(state[1]), store);
        fsdp_offload_release(state[1], bytes);
    }
    fsdp_offload_release(half[1].data, bytes);
    fsdp_offload_release(half[1].grad, bytes);
}

static void
train(fsdp_dtype_t dtype, bool adamw, double norm_type)
{
    half_t half[2] = {open_half(NULL, dtype), open_half(store, dtype)};
    make_optimizers(half, adamw);
    for (uint32_t step = 1; step <= STEPS; step++) {
        double norm[2], clipped[2];
        for (int k = 0; k < 2; k++) {
            set_grad(&half[k], step);
            fsdp_grad_norm(half[k].model, norm_type, &norm[k]);
            fsdp_clip_grad_norm_type(half[k].model, 0.5, norm_type,
                                     &clipped[k]);
            fsdp_optimizer_step(half[k].optimizer);
        }
        ck_assert(norm[0] == norm[1] && clipped[0] == clipped[1]);
        ck_assert(norm[0] > 0.5);
        same_bits(half, adamw, dtype);
    }
    size_t states = adamw ? 2 : 1;
    ck_assert_uint_eq(fsdp_offload_live_bytes(FSDP_MEM_OPTIMIZER),
                      states * numel * fsdp_dtype_size(dtype));
    close_half(&half[0]);
    close_half(&half[1]);
}

START_TEST(same_bits_as_in_memory)
{
    train(FSDP_FP32, true, 2);
    train(FSDP_FP32, false, INFINITY);
    train(FSDP_FP64, true, 1);
}
END_TEST

/* The gradients times 1 / 3; from the second step on one of them is infinite,
 * in the last piece. */
START_TEST(unscaled_as_in_memory)
{
    half_t half[2] = {open_half(NULL, FSDP_FP32), open_half(store, FSDP_FP32)};
    make_optimizers(half, false);
    for (uint32_t step = 1; step <= 2; step++) {
        for (int k = 0; k < 2; k++) {
            fsdp_grad_scaler_options_t o = fsdp_grad_scaler_options_default();
            o.init_scale = 3;
            fsdp_grad_scaler_t *scaler = fsdp_grad_scaler_create(&o);
            fsdp_tape_t *tape = fsdp_tape_create(NULL);
            fsdp_tensor_t *loss =
                fsdp_tape_new_tensor(tape, FSDP_FP32, 0, NULL);
            fsdp_tensor_set(loss, 0, 1);
            fsdp_grad_scaler_scale(scaler, tape, loss);
            fsdp_tape_destroy(&tape);
            set_grad(&half[k], step);
            if (step > 1)
                fsdp_tensor_set(half[k].parameter->grad, numel - 1, INFINITY);
            fsdp_grad_scaler_unscale(scaler, half[k].optimizer);
            ck_assert(fsdp_grad_scaler_found_inf(scaler, half[k].optimizer) ==
                      (step > 1));
            fsdp_grad_scaler_destroy(&scaler);
        }
        ck_assert(memcmp(half[0].grad, half[1].grad, 4 * numel) == 0);
        ck_assert(((float *)half[1].grad)[5] ==
                  (float)twin_random(step, 5) * (1.0f / 3));
        fsdp_offload_release(half[1].grad, 4 * numel);
    }
    close_half(&half[0]);
    close_half(&half[1]);
}
END_TEST

/* A step has four vectors of 14 MB at work, the norm and the clipping one. */
START_TEST(a_piece_of_each_is_resident)
{
    half_t h = open_half(store, FSDP_FP32);
    fsdp_adamw_options_t adam = fsdp_adamw_options_default();
    h.optimizer = fsdp_adamw_create(h.model, &adam);
    for (uint32_t step = 1; step <= STEPS; step++) {
        double norm;
        set_grad(&h, step);
        size_t before = status_of("VmRSS");
        bool known = reset_high_water();
        fsdp_clip_grad_norm(h.model, 0.5, &norm);
        if (known)
            ck_assert_uint_le(status_of("VmHWM"), before + PIECE + AROUND);
        ck_assert_uint_le(status_of("VmRSS"), before + AROUND);
        fsdp_optimizer_step(h.optimizer);
        if (known)
            ck_assert_uint_le(status_of("VmHWM"),
                              before + 4 * (PIECE + AROUND / 2));
        ck_assert_uint_le(status_of("VmRSS"), before + AROUND);
    }
    close_half(&h);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("pieces");
    TCase *tcase = tcase_create("offloaded");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, same_bits_as_in_memory);
    tcase_add_test(tcase, unscaled_as_in_memory);
    tcase_add_test(tcase, a_piece_of_each_is_resident);
    return mck_run(argc, argv, suite);
}
