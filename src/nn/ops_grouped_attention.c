#include "fsdp/status.h"
#include "nn/dropout_key.h"
#include "nn/ops_internal.h"
#include "nn/ops_parallel.h"

typedef struct saved {
    fsdp_attention_shape_t shape;
    fsdp_dropout_key_t key;
    void *lse; /* [B,H,T] of the type of the arithmetic */
} saved_t;

static void
free_saved(void *saved)
{
    fsdp_free(((saved_t *)saved)->lse);
}

static void
compute_grads(fsdp_node_t *node, fsdp_tensor_t *const grad[3])
{
    const saved_t *s = fsdp_node_saved(node);
    const fsdp_tensor_t *out = fsdp_node_output(node, 0);
    const fsdp_tensor_t *dout = fsdp_node_grad_output(node, 0);
    fsdp_wide_t w = fsdp_wide(out->dtype);
    const void *in[3];
    void *to[3];
    for (int i = 0; i < 3; i++) {
        size_t n = fsdp_tensor_numel(grad[i]);
        in[i] = fsdp_wide_in(&w, fsdp_node_input(node, i)->data, n);
        to[i] = fsdp_wide_out(&w, grad[i]->data, n);
    }
    size_t n = fsdp_tensor_numel(out);
    const void *result = fsdp_wide_in(&w, out->data, n);
    const void *upstream = fsdp_wide_in(&w, dout->data, n);
    w.k->grouped_attention_backward(s->shape, in[0], in[1], in[2], result,
                                    s->lse, upstream, to[0], to[1], to[2],
                                    &s->key);
    fsdp_wide_end(&w);
}

/* All three gradients come at once; those that nobody wants are dropped. */
static void
grouped_attention_backward(fsdp_node_t *node)
{
    fsdp_tensor_t *grad[3];
    for (int i = 0; i < 3; i++)
        grad[i] = fsdp_node_new_grad_input(node, i);
    compute_grads(node, grad);
    for (int i = 0; i < 3; i++) {
        if (fsdp_node_needs_grad(node, i))
            fsdp_node_set_grad_input(node, i, grad[i]);
        else
            fsdp_tensor_destroy(&grad[i]);
    }
}

static const fsdp_op_t grouped_attention_op = {
    "grouped_attention", grouped_attention_backward, free_saved};

static fsdp_attention_shape_t
describe(const fsdp_tensor_t *q, const fsdp_tensor_t *k, size_t heads,
         size_t kv_heads)
{
    FSDP_CHECK(q->ndim == 3 && k->ndim == 3,
               "grouped_attention: the inputs are not [B, T, C]");
    FSDP_CHECK(heads > 0 && q->shape[2] % heads == 0,
               "grouped_attention: %zu heads do not divide %zu channels", heads,
               q->shape[2]);
    FSDP_CHECK(kv_heads > 0 && heads % kv_heads == 0,
               "grouped_attention: %zu key heads do not divide %zu query heads",
               kv_heads, heads);
    size_t depth = q->shape[2] / heads;
    FSDP_CHECK(
        k->dtype == q->dtype && k->shape[0] == q->shape[0] &&
            k->shape[1] == q->shape[1] && k->shape[2] == kv_heads * depth,
        "grouped_attention: keys are %s [%zu, %zu, %zu], the queries ask "
        "for %s [%zu, %zu, %zu]",
        fsdp_dtype_name(k->dtype), k->shape[0], k->shape[1], k->shape[2],
        fsdp_dtype_name(q->dtype), q->shape[0], q->shape[1], kv_heads * depth);
    return (fsdp_attention_shape_t){.batch = q->shape[0],
                                    .positions = q->shape[1],
                                    .channels = q->shape[2],
                                    .heads = heads,
                                    .kv_heads = kv_heads};
}

static void
attend(const saved_t *s, const fsdp_tensor_t *q, const fsdp_tensor_t *k,
       const fsdp_tensor_t *v, fsdp_tensor_t *out)
{
    fsdp_wide_t w = fsdp_wide(q->dtype);
    const void *queries = fsdp_wide_in(&w, q->data, fsdp_tensor_numel(q));
    const void *keys = fsdp_wide_in(&w, k->data, fsdp_tensor_numel(k));
    const void *values = fsdp_wide_in(&w, v->data, fsdp_tensor_numel(v));
    void *result = fsdp_wide_out(&w, out->data, fsdp_tensor_numel(out));
    w.k->grouped_attention(s->shape, queries, keys, values, result, s->lse,
                           &s->key);
    fsdp_wide_end(&w);
}

fsdp_tensor_t *
fsdp_op_grouped_attention(fsdp_tape_t *tape, fsdp_tensor_t *q, fsdp_tensor_t *k,
                          fsdp_tensor_t *v, size_t heads, size_t kv_heads,
                          size_t first_head, double dropout, uint32_t layer)
{
    fsdp_op_check_alike("grouped_attention", k, v);
    saved_t s = {.shape = describe(q, k, heads, kv_heads),
                 .key =
                     fsdp_dropout_head_key(tape, dropout, layer, first_head)};
    size_t element = fsdp_dtype_size(fsdp_op_compute_dtype(q->dtype));
    s.lse = fsdp_alloc(FSDP_MEM_ACTIVATION,
                       s.shape.batch * heads * s.shape.positions * element);
    fsdp_tensor_t *out = fsdp_op_new_like(tape, q);
    attend(&s, q, k, v, out);
    fsdp_values_t inputs = {.count = 3, .tensor = {q, k, v}};
    fsdp_node_t *node = fsdp_tape_record(tape, &grouped_attention_op, inputs,
                                         NULL, 0, fsdp_values1(out), sizeof s);
    if (node != NULL)
        *(saved_t *)fsdp_node_saved(node) = s;
    else
        free_saved(&s);
    return out;
}

fsdp_tensor_t *
fsdp_grouped_attention(fsdp_tape_t *tape, fsdp_tensor_t *q, fsdp_tensor_t *k,
                       fsdp_tensor_t *v, size_t heads, size_t kv_heads,
                       double dropout, uint32_t layer)
{
    return fsdp_op_grouped_attention(tape, q, k, v, heads, kv_heads, 0, dropout,
                                     layer);
}
