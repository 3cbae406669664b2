#include "verify/trace/other_attention.h"

#include <math.h>
#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/status.h"

typedef struct saved {
    attention_change_t change;
    size_t batch, positions, heads, kv_heads, depth;
} saved_t;

/** Queries, keys or values: rows [B T] of `width`, of which a head has `depth`
 *  elements. */
typedef struct rows {
    double *data;
    size_t width;
} rows_t;

static double *
head_of(rows_t x, size_t row, size_t head, size_t depth)
{
    return x.data + row * x.width + head * depth;
}

/* Three tensors, or one with all three side by side. */
static void
split(const saved_t *s, fsdp_tensor_t *const tensor[], int count, rows_t x[3])
{
    size_t channels = s->heads * s->depth;
    for (int i = 0; i < 3; i++)
        x[i] = count == 3
                   ? (rows_t){tensor[i]->data, tensor[i]->shape[2]}
                   : (rows_t){(double *)tensor[0]->data + (size_t)i * channels,
                              3 * channels};
}

/* ---- a position and a head ------------------------------------------------------ */

static size_t
key_head(const saved_t *s, size_t h)
{
    return s->change.dealt_keys ? h % s->kv_heads
                                : h / (s->heads / s->kv_heads);
}

/* How many positions the t-th sees. */
static size_t
seen_from(const saved_t *s, size_t t)
{
    size_t seen = s->change.next ? t + 2 : t + 1;
    return s->change.everywhere || seen > s->positions ? s->positions : seen;
}

static double
factor_of(const saved_t *s)
{
    double depth = (double)s->depth;
    switch (s->change.scale) {
    case ATTENTION_UNSCALED:
        return 1;
    case ATTENTION_BY_DEPTH:
        return 1 / depth;
    case ATTENTION_BY_ROOT_OF_CHANNELS:
        return 1 / sqrt(depth * (double)s->heads);
    default:
        return 1 / sqrt(depth);
    }
}

static double
dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* y += alpha x */
static void
add(double *y, double alpha, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += alpha * x[i];
}

/* How much position t looks at each that it sees. */
static void
look(const saved_t *s, const rows_t x[3], size_t b, size_t t, size_t h,
     double *p)
{
    size_t first = b * s->positions, n = seen_from(s, t), d = s->depth;
    double largest = -INFINITY, sum = 0;
    for (size_t j = 0; j < n; j++) {
        p[j] =
            factor_of(s) * dot(head_of(x[0], first + t, h, d),
                               head_of(x[1], first + j, key_head(s, h), d), d);
        largest = fmax(largest, p[j]);
    }
    for (size_t j = 0; j < n; j++)
        sum += p[j] = exp(p[j] - largest);
    for (size_t j = 0; j < n; j++)
        p[j] /= sum;
}

/** What is done with a position and a head; p and work have T elements. */
typedef void (*visit_t)(const saved_t *s, const rows_t x[3], rows_t out,
                        const rows_t grad[3], size_t b, size_t t, size_t h,
                        double *p, double *work);

static void
visit_all(const saved_t *s, const rows_t x[3], rows_t out, const rows_t grad[3],
          visit_t visit)
{
    double *p = fsdp_alloc(FSDP_MEM_BASELINE, 2 * s->positions * sizeof *p);
    for (size_t b = 0; b < s->batch; b++)
        for (size_t t = 0; t < s->positions; t++)
            for (size_t h = 0; h < s->heads; h++) {
                look(s, x, b, t, h, p);
                visit(s, x, out, grad, b, t, h, p, p + s->positions);
            }
    fsdp_free(p);
}

static void
visit_forward(const saved_t *s, const rows_t x[3], rows_t out,
              const rows_t grad[3], size_t b, size_t t, size_t h, double *p,
              double *work)
{
    size_t first = b * s->positions, d = s->depth;
    double *y = head_of(out, first + t, h, d);
    (void)grad;
    (void)work;
    memset(y, 0, d * sizeof *y);
    for (size_t j = 0; j < seen_from(s, t); j++)
        add(y, p[j], head_of(x[2], first + j, key_head(s, h), d), d);
}

/* With g the gradient of the output: of a value p g, of a score
 * p (g v - the mean of g v), weighted by p. */
static void
visit_backward(const saved_t *s, const rows_t x[3], rows_t out,
               const rows_t grad[3], size_t b, size_t t, size_t h, double *p,
               double *work)
{
    size_t first = b * s->positions, d = s->depth, n = seen_from(s, t);
    const double *g = head_of(out, first + t, h, d);
    double mean = 0;
    for (size_t j = 0; j < n; j++) {
        work[j] = dot(g, head_of(x[2], first + j, key_head(s, h), d), d);
        mean += p[j] * work[j];
    }
    for (size_t j = 0; j < n; j++) {
        double score = factor_of(s) * p[j] * (work[j] - mean);
        size_t row = first + j, k = key_head(s, h);
        add(head_of(grad[2], row, k, d), p[j], g, d);
        add(head_of(grad[0], first + t, h, d), score, head_of(x[1], row, k, d),
            d);
        add(head_of(grad[1], row, k, d), score, head_of(x[0], first + t, h, d),
            d);
    }
}

/* ---- the operator --------------------------------------------------------------- */

static void
attention_backward(fsdp_node_t *node)
{
    const saved_t *s = fsdp_node_saved(node);
    const fsdp_tensor_t *dout = fsdp_node_grad_output(node, 0);
    size_t channels = s->heads * s->depth;
    bool one = fsdp_node_input(node, 0)->shape[2] == 3 * channels;
    int count = one ? 1 : 3;
    fsdp_tensor_t *in[3], *to[3];
    rows_t x[3], grad[3];
    for (int i = 0; i < count; i++) {
        in[i] = fsdp_node_input(node, i);
        to[i] = fsdp_node_new_grad_input(node, i);
        memset(to[i]->data, 0, fsdp_tensor_bytes(to[i]));
    }
    split(s, in, count, x);
    split(s, to, count, grad);
    visit_all(s, x, (rows_t){dout->data, channels}, grad, visit_backward);
    for (int i = 0; i < count; i++) {
        if (fsdp_node_needs_grad(node, i))
            fsdp_node_set_grad_input(node, i, to[i]);
        else
            fsdp_tensor_destroy(&to[i]);
    }
}

static fsdp_tensor_t *
attend(fsdp_tape_t *tape, fsdp_values_t inputs, const saved_t *s)
{
    static const fsdp_op_t op = {"other_attention", attention_backward, NULL};
    size_t shape[3] = {s->batch, s->positions, s->heads * s->depth};
    rows_t x[3];
    FSDP_CHECK(inputs.tensor[0]->dtype == FSDP_FP64,
               "other_attention: the input is not float64");
    fsdp_tensor_t *out = fsdp_tape_new_tensor(tape, FSDP_FP64, 3, shape);
    split(s, inputs.tensor, inputs.count, x);
    visit_all(s, x, (rows_t){out->data, shape[2]}, NULL, visit_forward);
    fsdp_node_t *node = fsdp_tape_record(tape, &op, inputs, NULL, 0,
                                         fsdp_values1(out), sizeof *s);
    if (node != NULL)
        *(saved_t *)fsdp_node_saved(node) = *s;
    return out;
}

fsdp_tensor_t *
other_attention(fsdp_tape_t *tape, fsdp_tensor_t *qkv, size_t heads,
                const attention_change_t *change)
{
    saved_t s = {.change = *change,
                 .batch = qkv->shape[0],
                 .positions = qkv->shape[1],
                 .heads = heads,
                 .kv_heads = heads,
                 .depth = qkv->shape[2] / 3 / heads};
    return attend(tape, fsdp_values1(qkv), &s);
}

fsdp_tensor_t *
other_grouped_attention(fsdp_tape_t *tape, fsdp_tensor_t *q, fsdp_tensor_t *k,
                        fsdp_tensor_t *v, size_t heads, size_t kv_heads,
                        const attention_change_t *change)
{
    saved_t s = {.change = *change,
                 .batch = q->shape[0],
                 .positions = q->shape[1],
                 .heads = heads,
                 .kv_heads = kv_heads,
                 .depth = q->shape[2] / heads};
    fsdp_values_t inputs = {.count = 3, .tensor = {q, k, v}};
    return attend(tape, inputs, &s);
}

/* ---- other pairs ---------------------------------------------------------------- */

/* Element 2 i + k of a head to i + k D / 2, or back. */
static void
move_pairs(const double *from, double *to, size_t n, size_t depth, bool back)
{
    for (size_t i = 0; i < n; i++) {
        size_t at = i % depth;
        size_t other = i - at + at / 2 + at % 2 * (depth / 2);
        if (back)
            to[i] = from[other];
        else
            to[other] = from[i];
    }
}

static void
pairs_backward(fsdp_node_t *node)
{
    const fsdp_tensor_t *from = fsdp_node_grad_output(node, 0);
    fsdp_tensor_t *to = fsdp_node_new_grad_input(node, 0);
    size_t depth = *(const size_t *)fsdp_node_saved(node);
    move_pairs(from->data, to->data, fsdp_tensor_numel(from), depth, true);
    fsdp_node_set_grad_input(node, 0, to);
}

fsdp_tensor_t *
other_pairs(fsdp_tape_t *tape, fsdp_tensor_t *x, size_t heads)
{
    static const fsdp_op_t op = {"other_pairs", pairs_backward, NULL};
    size_t depth = x->shape[2] / heads;
    FSDP_CHECK(x->dtype == FSDP_FP64, "other_pairs: the input is not float64");
    fsdp_tensor_t *y = fsdp_tape_new_tensor(tape, FSDP_FP64, 3, x->shape);
    move_pairs(x->data, y->data, fsdp_tensor_numel(x), depth, false);
    fsdp_node_t *node = fsdp_tape_record(tape, &op, fsdp_values1(x), NULL, 0,
                                         fsdp_values1(y), sizeof depth);
    if (node != NULL)
        *(size_t *)fsdp_node_saved(node) = depth;
    return y;
}
