/* Ranks: 1 */
/* The models and their losses on bfloat16 and float16, and the memory that the
 * operators take. */
#include "mck.h"

#include "fsdp/mlp.h"
#include "nn/nn_case.h"
#include "nn/small_gpt2.h"
#include "twin/half.h"
#include "twin/numbers.h"

static const fsdp_dtype_t types[] = {FSDP_BF16, FSDP_FP16};
enum { TYPES = 2 };

/* ---- the head ----------------------------------------------------------- */

enum { ROWS = 300, CHANNELS = 24, CLASSES = 40 };

typedef struct head_run {
    double loss, dx[ROWS * CHANNELS], dw[CLASSES * CHANNELS];
    double dlogits[ROWS * CLASSES];
} head_run_t;

/* In one operator, or as a model's linear layer, .float() and loss. */
static void
run_head(bool whole, fsdp_dtype_t dtype, double factor, head_run_t *r)
{
    static double x[ROWS * CHANNELS], w[CLASSES * CHANNELS];
    static int32_t target[ROWS];
    for (size_t i = 0; i < ROWS * CHANNELS; i++)
        x[i] = 3 * twin_random(1, i);
    for (size_t i = 0; i < CLASSES * CHANNELS; i++)
        w[i] = twin_random(2, i);
    for (size_t i = 0; i < ROWS; i++)
        target[i] = i % 7 == 3 ? -100 : (int32_t)(i * 5 % CLASSES);
    fsdp_parameter_t *p = fsdp_parameter_create(
        "w", dtype, 2, (size_t[]){CLASSES, CHANNELS}, FSDP_INIT_ZEROS, 0, 0);
    nn_set_parameter(p, w);
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *in = nn_probe(
        tape, nn_tensor(tape, dtype, 2, (size_t[]){ROWS, CHANNELS}, x), r->dx);
    fsdp_tensor_t *t = nn_int32(tape, 1, (size_t[]){ROWS}, target), *loss;
    if (whole) {
        loss = fsdp_linear_cross_entropy(tape, in, p, t, -100);
    } else {
        fsdp_tensor_t *logits = fsdp_linear(tape, in, p, NULL);
        logits = nn_probe(tape, logits, r->dlogits);
        logits = fsdp_cast(tape, logits, FSDP_FP32);
        loss = fsdp_cross_entropy(tape, logits, t, -100);
    }
    ck_assert_int_eq(loss->dtype, FSDP_FP32);
    r->loss = fsdp_tensor_get(loss, 0);
    fsdp_backward(tape, fsdp_scale(tape, loss, factor));
    fsdp_tape_destroy(&tape);
    for (size_t i = 0; i < CLASSES * CHANNELS; i++)
        r->dw[i] = fsdp_tensor_get(p->grad, i);
    fsdp_parameter_destroy(&p);
}

/* The weight's gradient, a sum over rows in chunks in one of the two: from the
 * gradients of the logits. */
static bool
dweight_follows(fsdp_dtype_t dtype, const head_run_t *r)
{
    bounded_t *terms = twin_alloc(ROWS, sizeof *terms);
    bool good = true;
    for (size_t i = 0; i < CLASSES * CHANNELS; i++) {
        for (size_t n = 0; n < ROWS; n++) {
            double x = half_round(
                dtype, 3 * twin_random(1, n * CHANNELS + i % CHANNELS));
            terms[n] = b_mul(b_exact(r->dlogits[n * CLASSES + i / CHANNELS]),
                             b_exact(x));
        }
        good &= half_is(dtype, r->dw[i], b_sum(terms, ROWS));
    }
    fsdp_free(terms);
    return good;
}

/* A loss scale of 2^12 and the 1 / 257 of a mean: float16 keeps gradients that
 * it would lose if they were rounded before they are scaled. */
START_TEST(head_is_linear_float_loss)
{
    static head_run_t whole, parts;
    fsdp_dtype_t dtype = types[_i];
    twin_begin(dtype);
    const double factor[] = {1, 4096, 0x1p-6};
    for (int k = 0; k < 3; k++) {
        run_head(true, dtype, factor[k], &whole);
        run_head(false, dtype, factor[k], &parts);
        ck_assert_double_eq(whole.loss, parts.loss);
        ck_assert_mem_eq(whole.dx, parts.dx, sizeof whole.dx);
        memcpy(whole.dlogits, parts.dlogits, sizeof parts.dlogits);
        ck_assert(dweight_follows(dtype, &whole));
        ck_assert(dweight_follows(dtype, &parts));
    }
}
END_TEST

/* ---- types of results, models ------------------------------------------- */

static fsdp_module_t *
small_mlp(fsdp_dtype_t dtype)
{
    fsdp_mlp_config_t config = {
        .num_layers = 3, .width = {6, 7, 5, 3}, .dtype = dtype, .seed = 4};
    return fsdp_mlp_create(&config);
}

/* The losses of both models are float32, every gradient is of the parameters'
 * type, and finite. */
static void
check_model(fsdp_module_t *model, fsdp_dtype_t dtype, fsdp_tape_t *tape,
            fsdp_tensor_t *loss)
{
    fsdp_parameter_t *p[64];
    ck_assert_int_eq(loss->dtype, FSDP_FP32);
    ck_assert(isfinite(fsdp_tensor_get(loss, 0)));
    fsdp_backward(tape, loss);
    fsdp_tape_destroy(&tape);
    size_t count = fsdp_module_parameters(model, p, 64);
    for (size_t k = 0; k < count; k++) {
        ck_assert_int_eq(p[k]->grad->dtype, dtype);
        for (size_t i = 0; i < fsdp_parameter_numel(p[k]); i++)
            ck_assert(isfinite(fsdp_tensor_get(p[k]->grad, i)));
    }
    fsdp_module_destroy(&model);
}

START_TEST(models_have_float_losses)
{
    fsdp_dtype_t dtype = types[_i];
    double x[24];
    for (size_t i = 0; i < 24; i++)
        x[i] = twin_random(402, i);
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_module_t *model = small_mlp(dtype);
    check_model(model, dtype, tape,
                fsdp_mlp_loss(
                    tape, model, nn_tensor(tape, dtype, 2, (size_t[]){4, 6}, x),
                    nn_int32(tape, 1, (size_t[]){4}, (int32_t[]){2, 0, 1, 2})));
    fsdp_gpt2_config_t config = fsdp_gpt2_config_default();
    config.n_layer = 2;
    config.n_head = 2;
    config.n_embd = 8;
    config.vocab_size = 11;
    config.n_positions = 6;
    config.dtype = dtype;
    config.attn_pdrop = config.embd_pdrop = config.resid_pdrop = 0.25;
    size_t shape[2] = {2, 5};
    tape = fsdp_tape_create(NULL);
    model = fsdp_gpt2_create(&config);
    fsdp_tensor_t *in = nn_int32(tape, 2, shape, tokens);
    ck_assert_int_eq(fsdp_gpt2_logits(tape, model, in)->dtype, dtype);
    check_model(
        model, dtype, tape,
        fsdp_gpt2_loss(tape, model, in, nn_int32(tape, 2, shape, targets)));
}
END_TEST

/* ---- memory ------------------------------------------------------------- */

/* A second run asks the system for nothing, and what an operator keeps for the
 * backward is 16-bit: two tensors of 2 bytes an element live after a GELU. */
START_TEST(memory_is_counted_and_reused)
{
    enum { N = 5000 };
    static double value[N];
    long before = 0;
    for (int round = 0; round < 2; round++) {
        before = fsdp_memory_system_requests();
        size_t live = fsdp_memory_live_bytes(FSDP_MEM_ACTIVATION);
        fsdp_tape_t *tape = fsdp_tape_create(NULL);
        fsdp_tensor_t *x =
            nn_tensor(tape, types[_i], 2, (size_t[]){1, N}, value);
        fsdp_memory_reset_peaks();
        fsdp_gelu_tanh(tape, x);
        ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_ACTIVATION) - live,
                          2 * N * 2);
        ck_assert_uint_eq(fsdp_memory_peak_bytes(FSDP_MEM_ACTIVATION) - live,
                          2 * N * 2 + 2 * N * 4);
        fsdp_tape_destroy(&tape);
    }
    long more = fsdp_memory_system_requests() - before;
#ifdef __SANITIZE_ADDRESS__
    more = 0; /* no block is kept for the next request then */
#endif
    ck_assert_int_eq(more, 0);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("half models");
    TCase *tcase = tcase_create("half models");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 0);
    tcase_add_loop_test(tcase, head_is_linear_float_loss, 0, TYPES);
    tcase_add_loop_test(tcase, models_have_float_losses, 0, TYPES);
    tcase_add_loop_test(tcase, memory_is_counted_and_reused, 0, TYPES);
    return mck_run(argc, argv, suite);
}
