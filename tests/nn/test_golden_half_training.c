/* Ranks: 1 */
/* A training step of an MLP in bfloat16, and the optimizers on bfloat16
 * parameters, against PyTorch's.  Of the step, ours and PyTorch's numbers must be
 * within the bounds that the roundings of each operator's output give; those of
 * the optimizers are the same bits. */
#include "mck.h"

#include "fsdp/mlp.h"
#include "nn/golden_half.h"
#include "tensor/half_optimizers.h"
#include "twin/numbers.h"

static void
set_up(void)
{
    half_bounds_begin(FSDP_BF16);
    twin_begin(FSDP_BF16);
    golden = golden_open("half");
}

static void
tear_down(void)
{
    fsdp_safetensors_close(&golden);
}

/* ---- a step of an MLP --------------------------------------------------- */

enum { BATCH = 6, IN = 8, HIDDEN = 8, OUT = 4 };

typedef struct mlp {
    bounded_t x[BATCH * IN], w0[HIDDEN * IN], b0[HIDDEN], w1[OUT * HIDDEN];
    bounded_t b1[OUT], h[BATCH * HIDDEN], logits[BATCH * OUT], loss;
    bounded_t dlogits[BATCH * OUT], dh[BATCH * HIDDEN];
    bounded_t dw0[HIDDEN * IN], db0[HIDDEN], dw1[OUT * HIDDEN], db1[OUT];
    int32_t *target;
} mlp_t;

/* y[N,O] = x[N,I] w[O,I]^T + b, stored. */
static void
affine(const bounded_t *x, const bounded_t *w, const bounded_t *b, size_t in,
       size_t out, bounded_t *y)
{
    bounded_t terms[16];
    for (size_t i = 0; i < BATCH * out; i++) {
        for (size_t k = 0; k < in; k++)
            terms[k] = b_mul(x[i / out * in + k], w[i % out * in + k]);
        terms[in] = b[i % out];
        y[i] = b_store(FSDP_BF16, b_sum(terms, in + 1));
    }
}

/* dw[O,I] = dy^T x, db[O]: not stored, as the caller compares them. */
static void
affine_grads(const bounded_t *x, const bounded_t *dy, size_t in, size_t out,
             bounded_t *dw, bounded_t *db)
{
    bounded_t terms[BATCH];
    for (size_t i = 0; i < out * in; i++) {
        for (size_t n = 0; n < BATCH; n++)
            terms[n] = b_mul(dy[n * out + i / in], x[n * in + i % in]);
        dw[i] = b_sum(terms, BATCH);
    }
    for (size_t o = 0; o < out; o++) {
        for (size_t n = 0; n < BATCH; n++)
            terms[n] = dy[n * out + o];
        db[o] = b_sum(terms, BATCH);
    }
}

static void
mlp_loss(mlp_t *m)
{
    bounded_t losses[BATCH], terms[OUT], scale = b_round(1.0 / BATCH, 0, 1);
    for (size_t n = 0; n < BATCH; n++) {
        const bounded_t *x = m->logits + n * OUT;
        bounded_t *dx = m->dlogits + n * OUT, max = x[0];
        size_t target = (size_t)m->target[n];
        for (size_t i = 1; i < OUT; i++)
            max = x[i].v > max.v ? x[i] : max;
        for (size_t i = 0; i < OUT; i++)
            terms[i] = b_exp(b_sub(x[i], max));
        bounded_t sum = b_sum(terms, OUT);
        for (size_t i = 0; i < OUT; i++) {
            bounded_t p = b_div(terms[i], sum);
            dx[i] = b_mul(i == target ? b_sub(p, b_exact(1)) : p, scale);
            /* PyTorch: the exponential of a logarithm, times a sum */
            dx[i].e += twin_gamma(16) * (1 + fabs(max.v)) * scale.v;
            dx[i] = b_store(FSDP_BF16, dx[i]);
        }
        losses[n] = b_add(b_sub(max, x[target]), b_log(sum));
    }
    m->loss = b_div(b_sum(losses, BATCH), b_exact(BATCH));
}

/* No hidden unit may be so near 0 that its sign is not known. */
static void
mlp_twin(mlp_t *m)
{
    bounded_t terms[OUT], a[BATCH * HIDDEN];
    affine(m->x, m->w0, m->b0, IN, HIDDEN, m->h);
    for (size_t i = 0; i < BATCH * HIDDEN; i++) {
        ck_assert(fabs(m->h[i].v) > m->h[i].e);
        a[i] = m->h[i].v > 0 ? m->h[i] : b_exact(0);
    }
    affine(a, m->w1, m->b1, HIDDEN, OUT, m->logits);
    mlp_loss(m);
    affine_grads(a, m->dlogits, HIDDEN, OUT, m->dw1, m->db1);
    for (size_t i = 0; i < BATCH * HIDDEN; i++) {
        for (size_t o = 0; o < OUT; o++)
            terms[o] = b_mul(m->dlogits[i / HIDDEN * OUT + o],
                             m->w1[o * HIDDEN + i % HIDDEN]);
        m->dh[i] =
            m->h[i].v > 0 ? b_store(FSDP_BF16, b_sum(terms, OUT)) : b_exact(0);
    }
    affine_grads(m->x, m->dh, IN, HIDDEN, m->dw0, m->db0);
}

static void
load_exact(const char *part, bounded_t *out)
{
    double *value = read("mlp", part);
    for (size_t i = 0; i < numel_of("mlp", part); i++)
        out[i] = b_exact(value[i]);
    fsdp_free(value);
}

/* The gradient and the parameter after p - g / 8, two operations. */
static bool
check_parameter(const fsdp_parameter_t *p, const bounded_t *grad)
{
    size_t n = fsdp_parameter_numel(p);
    bounded_t *after = twin_alloc(n, sizeof *after);
    double *got = twin_alloc(n, sizeof *got), *init;
    char *part = fsdp_format("init.%s", p->name);
    init = read("mlp", part);
    fsdp_free(part);
    for (size_t i = 0; i < n; i++) {
        got[i] = fsdp_tensor_get(p->grad, i);
        bounded_t stored = b_store(FSDP_BF16, grad[i]);
        after[i] = b_sub(b_exact(init[i]), b_mul(b_exact(0.125), stored));
    }
    part = fsdp_format("grad.%s", p->name);
    bool good = both("mlp", part, got, grad, grad);
    fsdp_free(part);
    fsdp_half_sgd(FSDP_BF16, p->data, p->grad->data, NULL, n, 0.125, 0, 0, 0,
                  false, true);
    fsdp_convert(FSDP_BF16, p->data, FSDP_FP64, got, n);
    part = fsdp_format("param.%s", p->name);
    good &= both("mlp", part, got, after, after);
    fsdp_free(part);
    fsdp_free(init);
    fsdp_free(got);
    fsdp_free(after);
    return good;
}

static fsdp_module_t *
load_mlp(fsdp_parameter_t *parameter[4])
{
    fsdp_mlp_config_t config = {
        .num_layers = 2, .width = {IN, HIDDEN, OUT}, .dtype = FSDP_BF16};
    fsdp_module_t *module = fsdp_mlp_create(&config);
    fsdp_module_parameters(module, parameter, 4);
    for (int k = 0; k < 4; k++) {
        char *part = fsdp_format("init.%s", parameter[k]->name);
        double *value = read("mlp", part);
        nn_set_parameter(parameter[k], value);
        fsdp_free(value);
        fsdp_free(part);
    }
    return module;
}

START_TEST(mlp_step)
{
    mlp_t m;
    load_exact("x", m.x);
    load_exact("init.layers.0.weight", m.w0);
    load_exact("init.layers.0.bias", m.b0);
    load_exact("init.layers.1.weight", m.w1);
    load_exact("init.layers.1.bias", m.b1);
    m.target = golden_read(golden, "mlp.target", FSDP_INT32);
    mlp_twin(&m);

    fsdp_parameter_t *p[4];
    fsdp_module_t *module = load_mlp(p);
    double *x = read("mlp", "x"), *loss = read("mlp", "loss");
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *in = nn_tensor(tape, FSDP_BF16, 2, (size_t[]){BATCH, IN}, x);
    fsdp_tensor_t *target = nn_int32(tape, 1, (size_t[]){BATCH}, m.target);
    fsdp_tensor_t *got = fsdp_mlp_loss(tape, module, in, target);
    ck_assert(twin_is(fsdp_tensor_get(got, 0), m.loss));
    ck_assert(twin_is(loss[0], m.loss));
    fsdp_backward(tape, got);
    fsdp_tape_destroy(&tape);
    const bounded_t *grad[4] = {m.dw0, m.db0, m.dw1, m.db1};
    bool good = true;
    for (int k = 0; k < 4; k++)
        good &= check_parameter(p[k], grad[k]);
    ck_assert(good);
    fsdp_free(x);
    fsdp_free(loss);
    fsdp_free(m.target);
    fsdp_module_destroy(&module);
}
END_TEST

/* ---- optimizers --------------------------------------------------------- */

enum { N = 64 };

static void
read_step(const char *of, const char *part, int step, uint16_t *out)
{
    char *name = fsdp_format("%s%d", part, step);
    double *value = read(of, name);
    fsdp_convert(FSDP_FP64, value, FSDP_BF16, out, N);
    fsdp_free(value);
    fsdp_free(name);
}

static bool
is_step(const char *of, const char *part, int step, const uint16_t *got)
{
    uint16_t want[N];
    read_step(of, part, step, want);
    return memcmp(want, got, sizeof want) == 0;
}

static void
read_init(const char *of, uint16_t *param)
{
    double *value = read(of, "init");
    fsdp_convert(FSDP_FP64, value, FSDP_BF16, param, N);
    fsdp_free(value);
}

START_TEST(sgd)
{
    uint16_t param[N], buffer[N] = {0}, grad[N];
    read_init("sgd", param);
    for (int step = 1; step <= 3; step++) {
        read_step("sgd", "grad", step, grad);
        fsdp_half_sgd(FSDP_BF16, param, grad, buffer, N, 0.1, 0.9, 0, 0.1, true,
                      step == 1);
        ck_assert(is_step("sgd", "param", step, param));
        ck_assert(is_step("sgd", "momentum_buffer", step, buffer));
    }
}
END_TEST

/* PyTorch may fuse products and sums in float32 (see tensor/kernels/
 * optimizers.c), which moves a result only if it lies that near the middle of
 * two numbers: none of these does. */
START_TEST(adamw)
{
    uint16_t param[N], exp_avg[N] = {0}, exp_avg_sq[N] = {0}, grad[N];
    read_init("adamw", param);
    for (int step = 1; step <= 3; step++) {
        read_step("adamw", "grad", step, grad);
        fsdp_half_adamw(FSDP_BF16, param, grad, exp_avg, exp_avg_sq, N, 0.01,
                        0.9, 0.999, 1e-3, 0.1, step);
        ck_assert(is_step("adamw", "param", step, param));
        ck_assert(is_step("adamw", "exp_avg", step, exp_avg));
        ck_assert(is_step("adamw", "exp_avg_sq", step, exp_avg_sq));
    }
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("golden half training");
    TCase *tcase = tcase_create("golden half training");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, mlp_step);
    tcase_add_test(tcase, sgd);
    tcase_add_test(tcase, adamw);
    return mck_run(argc, argv, suite);
}
