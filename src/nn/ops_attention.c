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

static size_t
out_numel(const fsdp_attention_shape_t *s)
{
    return s->batch * s->positions * s->channels;
}

static void
attention_backward(fsdp_node_t *node)
{
    const saved_t *s = fsdp_node_saved(node);
    fsdp_tensor_t *dqkv = fsdp_node_new_grad_input(node, 0);
    size_t n = out_numel(&s->shape);
    fsdp_wide_t w = fsdp_wide(dqkv->dtype);
    const void *qkv = fsdp_wide_in(&w, fsdp_node_input(node, 0)->data, 3 * n);
    const void *out = fsdp_wide_in(&w, fsdp_node_output(node, 0)->data, n);
    const void *dout =
        fsdp_wide_in(&w, fsdp_node_grad_output(node, 0)->data, n);
    void *grad = fsdp_wide_out(&w, dqkv->data, 3 * n);
    w.k->attention_backward(s->shape, qkv, out, s->lse, dout, grad, &s->key);
    fsdp_wide_end(&w);
    fsdp_node_set_grad_input(node, 0, dqkv);
}

static const fsdp_op_t attention_op = {"attention", attention_backward,
                                       free_saved};

static fsdp_attention_shape_t
describe(const fsdp_tensor_t *qkv, size_t heads)
{
    FSDP_CHECK(qkv->ndim == 3 && qkv->shape[2] % 3 == 0,
               "attention: the input is not [B, T, 3 C]");
    size_t channels = qkv->shape[2] / 3;
    FSDP_CHECK(heads > 0 && channels % heads == 0,
               "attention: %zu heads do not divide %zu channels", heads,
               channels);
    return (fsdp_attention_shape_t){.batch = qkv->shape[0],
                                    .positions = qkv->shape[1],
                                    .channels = channels,
                                    .heads = heads};
}

static void
attend(const saved_t *s, const fsdp_tensor_t *qkv, fsdp_tensor_t *out)
{
    size_t n = out_numel(&s->shape);
    fsdp_wide_t w = fsdp_wide(qkv->dtype);
    const void *in = fsdp_wide_in(&w, qkv->data, 3 * n);
    w.k->attention(s->shape, in, fsdp_wide_out(&w, out->data, n), s->lse,
                   &s->key);
    fsdp_wide_end(&w);
}

fsdp_tensor_t *
fsdp_op_attention(fsdp_tape_t *tape, fsdp_tensor_t *qkv, size_t heads,
                  size_t first_head, double dropout, uint32_t layer)
{
    saved_t s = {.shape = describe(qkv, heads),
                 .key =
                     fsdp_dropout_head_key(tape, dropout, layer, first_head)};
    size_t element = fsdp_dtype_size(fsdp_op_compute_dtype(qkv->dtype));
    s.lse = fsdp_alloc(FSDP_MEM_ACTIVATION,
                       s.shape.batch * heads * s.shape.positions * element);
    fsdp_tensor_t *out = fsdp_op_new_columns(tape, qkv, s.shape.channels);
    attend(&s, qkv, out);
    fsdp_node_t *node = fsdp_tape_record(tape, &attention_op, fsdp_values1(qkv),
                                         NULL, 0, fsdp_values1(out), sizeof s);
    if (node != NULL)
        *(saved_t *)fsdp_node_saved(node) = s;
    else
        free_saved(&s);
    return out;
}

fsdp_tensor_t *
fsdp_attention(fsdp_tape_t *tape, fsdp_tensor_t *qkv, size_t heads,
               double dropout, uint32_t layer)
{
    return fsdp_op_attention(tape, qkv, heads, 0, dropout, layer);
}
