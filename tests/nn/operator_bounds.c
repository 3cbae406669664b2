#include "nn/operator_bounds.h"

#include <string.h>

#include "twin/attention.h"
#include "twin/gelu.h"
#include "twin/grouped.h"
#include "twin/half.h"
#include "twin/layer_norm.h"
#include "twin/rms_norm.h"
#include "twin/rotary.h"
#include "twin/silu.h"

static fsdp_dtype_t stored;

void
operator_bounds_begin(fsdp_dtype_t dtype)
{
    twin_begin(dtype);
    stored = dtype;
}

static bounded_t *
exact_array(const double *value, size_t n)
{
    bounded_t *b = twin_alloc(n, sizeof *b);
    for (size_t i = 0; i < n; i++)
        b[i] = b_exact(value[i]);
    return b;
}

/* Element (i, p) of a matrix, stored so or transposed. */
typedef struct matrix {
    const bounded_t *data;
    size_t stride;
    bool transposed;
} matrix_t;

static bounded_t
element(matrix_t m, size_t i, size_t p)
{
    return m.data[m.transposed ? p * m.stride + i : i * m.stride + p];
}

/* c[m,n] = sum over k of a b + last[n]; last may be NULL. */
static void
product(size_t m, size_t n, size_t k, matrix_t a, matrix_t b,
        const bounded_t *last, bounded_t *c)
{
    bounded_t *terms = twin_alloc(k + 1, sizeof *terms);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            for (size_t p = 0; p < k; p++)
                terms[p] = b_mul(element(a, i, p), element(b, p, j));
            if (last != NULL)
                terms[k] = last[j];
            c[i * n + j] = b_sum(terms, last != NULL ? k + 1 : k);
        }
    fsdp_free(terms);
}

static void
sum_rows(const bounded_t *x, size_t rows, size_t columns, bounded_t *out)
{
    bounded_t *terms = twin_alloc(rows, sizeof *terms);
    for (size_t j = 0; j < columns; j++) {
        for (size_t i = 0; i < rows; i++)
            terms[i] = x[i * columns + j];
        out[j] = b_sum(terms, rows);
    }
    fsdp_free(terms);
}

/* ---- linear, conv1d ----------------------------------------------------- */

static void
affine(const nn_case_t *c, bool out_in, bounded_t *out, bounded_t *const *grad)
{
    const nn_array_t *x = &c->array[0], *w = &c->array[1], *b = &c->array[2];
    size_t in = x->shape[x->ndim - 1], o = w->shape[out_in ? 0 : 1];
    size_t rows = nn_array_numel(x) / in;
    bounded_t *bx = exact_array(x->value, rows * in);
    bounded_t *bw = exact_array(w->value, in * o);
    bounded_t *dy = exact_array(c->upstream, rows * o);
    bounded_t *bias = b->name != NULL ? exact_array(b->value, o) : NULL;
    size_t stride = out_in ? in : o;

    product(rows, o, in, (matrix_t){bx, in, false},
            (matrix_t){bw, stride, out_in}, bias, out);
    product(rows, in, o, (matrix_t){dy, o, false},
            (matrix_t){bw, stride, !out_in}, NULL, grad[0]);
    if (out_in)
        product(o, in, rows, (matrix_t){dy, o, true}, (matrix_t){bx, in, false},
                NULL, grad[1]);
    else
        product(in, o, rows, (matrix_t){bx, in, true}, (matrix_t){dy, o, false},
                NULL, grad[1]);
    if (bias != NULL)
        sum_rows(dy, rows, o, grad[2]);
    fsdp_free(bx);
    fsdp_free(bw);
    fsdp_free(dy);
    fsdp_free(bias);
}

static void
linear(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    affine(c, true, out, grad);
}

static void
conv1d(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    affine(c, false, out, grad);
}

/* ---- embedding ---------------------------------------------------------- */

static void
embedding(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    size_t rows = c->array[0].shape[0], channels = c->array[0].shape[1];
    size_t n = c->out_numel / channels;
    bounded_t *terms = twin_alloc(n, sizeof *terms);
    for (size_t i = 0; i < c->out_numel; i++)
        out[i] = b_exact(
            c->array[0].value[(size_t)c->integers[i / channels] * channels +
                              i % channels]);
    for (size_t i = 0; i < rows * channels; i++) {
        size_t count = 0;
        for (size_t r = 0; r < n; r++)
            if ((size_t)c->integers[r] == i / channels)
                terms[count++] =
                    b_exact(c->upstream[r * channels + i % channels]);
        grad[0][i] = b_sum(terms, count);
    }
    fsdp_free(terms);
}

/* ---- layer norm --------------------------------------------------------- */

static numbers_t
numbers_of(const double *value, size_t n)
{
    numbers_t x = numbers_make(FSDP_FP64, n);
    memcpy(x.data, value, n * sizeof *value);
    return x;
}

/* dweight = sum over rows of dy xhat, from the mean and rstd that were made. */
static void
layer_norm_dweight(const twin_layer_norm_t *t, bounded_t *dweight)
{
    bounded_t *terms = twin_alloc(t->rows, sizeof *terms);
    for (size_t i = 0; i < t->channels; i++) {
        for (size_t r = 0; r < t->rows; r++) {
            size_t at = r * t->channels + i;
            terms[r] = b_mul(b_exact(numbers_get(t->dy, at)),
                             twin_xhat(t, at, t->mean[r], t->rstd[r]));
        }
        dweight[i] = b_sum(terms, t->rows);
    }
    fsdp_free(terms);
}

static void
layer_norm(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    size_t channels = nn_array_numel(&c->array[1]);
    size_t n = nn_array_numel(&c->array[0]), rows = n / channels;
    twin_layer_norm_t t = {.rows = rows,
                           .channels = channels,
                           .eps = 1e-5,
                           .x = numbers_of(c->array[0].value, n),
                           .weight = numbers_of(c->array[1].value, channels),
                           .bias = numbers_of(c->array[2].value, channels),
                           .dy = numbers_of(c->upstream, n),
                           .y = out,
                           .dx = grad[0],
                           .mean = twin_alloc(rows, sizeof(bounded_t)),
                           .rstd = twin_alloc(rows, sizeof(bounded_t))};
    bounded_t *dy = exact_array(c->upstream, n);
    twin_layer_norm_forward(&t);
    for (size_t r = 0; r < rows; r++)
        twin_layer_norm_dx(&t, r, t.mean[r], t.rstd[r]);
    layer_norm_dweight(&t, grad[1]);
    sum_rows(dy, rows, channels, grad[2]);
    fsdp_free(dy);
    fsdp_free(t.mean);
    fsdp_free(t.rstd);
    numbers_free(t.x);
    numbers_free(t.weight);
    numbers_free(t.bias);
    numbers_free(t.dy);
}

static void
rms_norm(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    size_t channels = nn_array_numel(&c->array[1]);
    size_t n = nn_array_numel(&c->array[0]), rows = n / channels;
    twin_rms_norm_t t = {.rows = rows,
                         .channels = channels,
                         .eps = 1e-6,
                         .x = numbers_of(c->array[0].value, n),
                         .weight = numbers_of(c->array[1].value, channels),
                         .dy = numbers_of(c->upstream, n),
                         .y = out,
                         .dx = grad[0],
                         .dweight = grad[1],
                         .rstd = twin_alloc(rows, sizeof(bounded_t))};
    twin_rms_norm_forward(&t);
    twin_rms_norm_backward(&t, t.rstd);
    fsdp_free(t.rstd);
    numbers_free(t.x);
    numbers_free(t.weight);
    numbers_free(t.dy);
}

/* ---- elementwise -------------------------------------------------------- */

static void
elementwise(const nn_case_t *c, bounded_t (*forward)(double x),
            bounded_t (*backward)(double x, double dy), bounded_t *out,
            bounded_t *const *grad)
{
    for (size_t i = 0; i < c->out_numel; i++) {
        out[i] = forward(c->array[0].value[i]);
        grad[0][i] = backward(c->array[0].value[i], c->upstream[i]);
    }
}

static void
gelu_tanh(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    elementwise(c, twin_gelu_tanh, twin_gelu_tanh_backward, out, grad);
}

static void
gelu_erf(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    elementwise(c, twin_gelu_erf, twin_gelu_erf_backward, out, grad);
}

static void
silu(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    elementwise(c, twin_silu, twin_silu_backward, out, grad);
}

static void
multiply(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    for (size_t i = 0; i < c->out_numel; i++) {
        bounded_t x = b_exact(c->array[0].value[i]);
        bounded_t y = b_exact(c->array[1].value[i]);
        bounded_t dy = b_exact(c->upstream[i]);
        out[i] = b_mul(x, y);
        grad[0][i] = b_mul(dy, y);
        grad[1][i] = b_mul(dy, x);
    }
}

/* Two heads; angles of base 10000. */
static void
rotary(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    const size_t *shape = c->array[0].shape;
    twin_rotary_t t = {.rows = shape[0] * shape[1],
                       .positions = shape[1],
                       .heads = 2,
                       .depth = shape[2] / 2,
                       .theta = 10000};
    twin_rotary(&t, c->array[0].value, false, out);
    twin_rotary(&t, c->upstream, true, grad[0]);
}

static bounded_t
relu_of(double x)
{
    return b_exact(x > 0 ? x : 0);
}

static bounded_t
relu_backward_of(double x, double dy)
{
    return b_exact(x > 0 ? dy : 0);
}

static void
relu(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    elementwise(c, relu_of, relu_backward_of, out, grad);
}

static void
residual(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    for (size_t i = 0; i < c->out_numel; i++) {
        out[i] =
            b_add(b_exact(c->array[0].value[i]), b_exact(c->array[1].value[i]));
        grad[0][i] = grad[1][i] = b_exact(c->upstream[i]);
    }
}

/* ---- attention ---------------------------------------------------------- */

void
operator_bounds_attention(const nn_case_t *c, const double *factor,
                          bounded_t *out, bounded_t *const *grad)
{
    const size_t *shape = c->array[0].shape;
    twin_attention_t a = {.batch = shape[0],
                          .positions = shape[1],
                          .channels = shape[2] / 3,
                          .heads = 3,
                          .qkv = c->array[0].value,
                          .factor = factor};
    twin_arithmetic_t arithmetic = {twin_u, twin_tiny, 64, 0};
    size_t n = nn_array_numel(&c->array[0]), stats = n; /* more than B H T */
    double *o = twin_alloc(c->out_numel, sizeof *o);
    double *o_bound = twin_alloc(c->out_numel, sizeof *o);
    double *lse = twin_alloc(stats, sizeof *lse);
    double *lse_bound = twin_alloc(stats, sizeof *lse);
    double *d = twin_alloc(n, sizeof *d), *d_bound = twin_alloc(n, sizeof *d);
    twin_attention_forward(&a, o, lse);
    twin_attention_forward_bound(&a, &arithmetic, o_bound, lse_bound);
    for (size_t i = 0; i < c->out_numel; i++) {
        out[i] = (bounded_t){o[i], o_bound[i]};
        o_bound[i] = b_store(stored, out[i]).e; /* the backward reads it */
    }
    twin_attention_backward(&a, c->upstream, d);
    twin_attention_backward_bound(&a, &arithmetic, c->upstream, o_bound,
                                  lse_bound, d_bound);
    for (size_t i = 0; i < n; i++)
        grad[0][i] = (bounded_t){d[i], d_bound[i]};
    fsdp_free(o);
    fsdp_free(o_bound);
    fsdp_free(lse);
    fsdp_free(lse_bound);
    fsdp_free(d);
    fsdp_free(d_bound);
}

static void
attention(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    operator_bounds_attention(c, NULL, out, grad);
}

/* q, k and v side by side, a key head repeated for each query head that reads
 * it: then it is attention as above, and the copies' gradients are one sum. */
static void
grouped_attention(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    const size_t *q = c->array[0].shape, *k = c->array[1].shape;
    twin_grouped_t g = {.batch = q[0],
                        .positions = q[1],
                        .heads = 6,
                        .kv_heads = 2,
                        .depth = q[2] / 6,
                        .q = c->array[0].value,
                        .k = c->array[1].value,
                        .v = c->array[2].value};
    twin_arithmetic_t arithmetic = {
        .unit = twin_u, .tiny = twin_tiny, .tile = 64};
    size_t n = q[0] * q[1] * q[2], kv = k[0] * k[1] * k[2];
    size_t sizes[] = {n, n, n, kv, kv}; /* out, lse (less), dq, dk, dv */
    double *value[5], *bound[5];
    for (int i = 0; i < 5; i++) {
        value[i] = twin_alloc(sizes[i], sizeof(double));
        bound[i] = twin_alloc(sizes[i], sizeof(double));
    }
    twin_grouped_forward(&g, &arithmetic, value, bound);
    for (size_t i = 0; i < n; i++) {
        out[i] = (bounded_t){value[0][i], bound[0][i]};
        bound[0][i] = b_store(stored, out[i]).e; /* the backward reads it */
    }
    twin_grouped_backward(&g, &arithmetic, c->upstream, value, bound);
    for (int a = 0; a < 3; a++)
        for (size_t i = 0; i < sizes[2 + a]; i++)
            grad[a][i] = (bounded_t){value[2 + a][i], bound[2 + a][i]};
    for (int i = 0; i < 5; i++) {
        fsdp_free(value[i]);
        fsdp_free(bound[i]);
    }
}

/* ---- losses ------------------------------------------------------------- */

/* One row; what the maximum is does not matter, only that it is rounded. */
static bounded_t
cross_entropy_row(const bounded_t *x, size_t classes, size_t target,
                  bounded_t scale, bounded_t *dlogits)
{
    bounded_t max = x[0];
    for (size_t i = 1; i < classes; i++)
        max = x[i].v > max.v ? x[i] : max;
    bounded_t *terms = twin_alloc(classes, sizeof *terms);
    for (size_t i = 0; i < classes; i++)
        terms[i] = b_exp(b_sub(x[i], max));
    bounded_t sum = b_sum(terms, classes);
    for (size_t i = 0; i < classes; i++)
        dlogits[i] = b_mul(terms[i], b_div(scale, sum));
    dlogits[target] =
        b_mul(b_sub(b_div(terms[target], sum), b_exact(1)), scale);
    fsdp_free(terms);
    return b_add(b_sub(max, x[target]), b_log(sum));
}

/* The mean, and the gradient of `scale` count times it. */
static bounded_t
mean_cross_entropy(const nn_case_t *c, const bounded_t *logits, size_t rows,
                   size_t classes, double scale, bounded_t *dlogits)
{
    bounded_t *losses = twin_alloc(rows, sizeof *losses);
    size_t count = 0;
    for (size_t r = 0; r < rows; r++)
        count += c->integers[r] != FSDP_IGNORE_INDEX;
    bounded_t s = b_round(scale / (double)count, 0, 1);
    for (size_t r = 0; r < rows; r++) {
        losses[r] = b_exact(0);
        for (size_t i = 0; i < classes; i++)
            dlogits[r * classes + i] = b_exact(0);
        if (c->integers[r] != FSDP_IGNORE_INDEX)
            losses[r] = cross_entropy_row(logits + r * classes, classes,
                                          (size_t)c->integers[r], s,
                                          dlogits + r * classes);
    }
    bounded_t mean = b_div(b_sum(losses, rows), b_exact((double)count));
    fsdp_free(losses);
    return mean;
}

static void
cross_entropy(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    size_t rows = c->array[0].shape[0], classes = c->array[0].shape[1];
    bounded_t *logits = exact_array(c->array[0].value, rows * classes);
    out[0] =
        mean_cross_entropy(c, logits, rows, classes, c->upstream[0], grad[0]);
    fsdp_free(logits);
}

static void
store_all(bounded_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = b_store(stored, x[i]);
}

/* float32 and float64 multiply by the upstream gradient at the end, 16-bit types
 * within the cross-entropy. */
static void
linear_cross_entropy(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    size_t rows = c->array[0].shape[0], channels = c->array[0].shape[1];
    size_t classes = c->array[1].shape[0];
    bool late = stored == FSDP_BF16 || stored == FSDP_FP16;
    bounded_t up = b_exact(c->upstream[0]);
    bounded_t *x = exact_array(c->array[0].value, rows * channels);
    bounded_t *w = exact_array(c->array[1].value, classes * channels);
    bounded_t *logits = twin_alloc(rows * classes, sizeof *logits);
    bounded_t *dlogits = twin_alloc(rows * classes, sizeof *dlogits);
    product(rows, classes, channels, (matrix_t){x, channels, false},
            (matrix_t){w, channels, true}, NULL, logits);
    store_all(logits, rows * classes);
    out[0] = mean_cross_entropy(c, logits, rows, classes,
                                late ? c->upstream[0] : 1, dlogits);
    store_all(dlogits, rows * classes);
    product(rows, channels, classes, (matrix_t){dlogits, classes, false},
            (matrix_t){w, channels, false}, NULL, grad[0]);
    product(classes, channels, rows, (matrix_t){dlogits, classes, true},
            (matrix_t){x, channels, false}, NULL, grad[1]);
    for (size_t i = 0; i < rows * channels && !late; i++)
        grad[0][i] = b_mul(grad[0][i], up);
    for (size_t i = 0; i < classes * channels && !late; i++)
        grad[1][i] = b_mul(grad[1][i], up);
    fsdp_free(x);
    fsdp_free(w);
    fsdp_free(logits);
    fsdp_free(dlogits);
}

static void
mse_loss(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    size_t n = nn_array_numel(&c->array[0]);
    bounded_t *squares = twin_alloc(n, sizeof *squares);
    bounded_t scale = b_round(2 * c->upstream[0] / (double)n, 0, 1);
    for (size_t i = 0; i < n; i++) {
        bounded_t d =
            b_sub(b_exact(c->array[0].value[i]), b_exact(c->array[1].value[i]));
        squares[i] = b_mul(d, d);
        grad[0][i] = b_mul(scale, d);
        grad[1][i] = (bounded_t){-grad[0][i].v, grad[0][i].e};
    }
    out[0] = b_div(b_sum(squares, n), b_exact((double)n));
    fsdp_free(squares);
}

/* ---- by name ------------------------------------------------------------ */

static const struct {
    const char *name;
    operator_bounds_t bounds;
} all[] = {
    {"linear", linear},
    {"linear_no_bias", linear},
    {"conv1d", conv1d},
    {"embedding", embedding},
    {"layer_norm", layer_norm},
    {"layer_norm_hard", layer_norm},
    {"gelu_tanh", gelu_tanh},
    {"gelu_erf", gelu_erf},
    {"relu", relu},
    {"attention", attention},
    {"rms_norm", rms_norm},
    {"rms_norm_hard", rms_norm},
    {"silu", silu},
    {"multiply", multiply},
    {"rotary", rotary},
    {"grouped_attention", grouped_attention},
    {"residual", residual},
    {"cross_entropy", cross_entropy},
    {"linear_cross_entropy", linear_cross_entropy},
    {"mse_loss", mse_loss},
};

operator_bounds_t
operator_bounds(const char *name)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i].bounds;
    return NULL;
}
