#include "fsdp/status.h"
#include "nn/dropout_key.h"
#include "nn/ops_internal.h"

typedef struct saved {
    fsdp_attention_shape_t shape;
    fsdp_dropout_key_t key;
    void *lse; /* [B,H,T] */
} saved_t;

static void
free_saved(void *saved)
{
    fsdp_free(((saved_t *)saved)->lse);
}

static void
attention_backward(fsdp_node_t *node)
{
    const saved_t *s = fsdp_node_saved(node);
    const fsdp_tensor_t *qkv = fsdp_node_input(node, 0);
    fsdp_tensor_t *dqkv = fsdp_node_new_grad_input(node, 0);
    fsdp_kernels(qkv->dtype)
        ->attention_backward(
            s->shape, qkv->data, fsdp_node_output(node, 0)->data, s->lse,
            fsdp_node_grad_output(node, 0)->data, dqkv->data, &s->key);
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

fsdp_tensor_t *
fsdp_attention(fsdp_tape_t *tape, fsdp_tensor_t *qkv, size_t heads,
               double dropout, uint32_t layer)
{
    saved_t s = {.shape = describe(qkv, heads),
                 .key = fsdp_dropout_key(tape, dropout, layer)};
    s.lse = fsdp_alloc(FSDP_MEM_ACTIVATION, s.shape.batch * heads *
                                                s.shape.positions *
                                                fsdp_dtype_size(qkv->dtype));
    fsdp_tensor_t *out = fsdp_op_new_columns(tape, qkv, s.shape.channels);
    fsdp_kernels(qkv->dtype)
        ->attention(s.shape, qkv->data, out->data, s.lse, &s.key);
    fsdp_node_t *node = fsdp_tape_record(tape, &attention_op, fsdp_values1(qkv),
                                         NULL, 0, fsdp_values1(out), sizeof s);
    if (node != NULL)
        *(saved_t *)fsdp_node_saved(node) = s;
    else
        free_saved(&s);
    return out;
}
