/* Tokens to the rows of their experts, and back. */

#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/moe.h"
#include "nn/ops_internal.h"

/* Where each (token, slot) stands among the sorted rows; the caller frees it. */
static size_t *
places(const fsdp_tensor_t *origin)
{
    const int32_t *o = origin->data;
    size_t rows = fsdp_tensor_numel(origin);
    size_t *place = fsdp_alloc(FSDP_MEM_ACTIVATION, rows * sizeof *place);
    for (size_t r = 0; r < rows; r++)
        place[o[r]] = r;
    return place;
}

/* ---- dispatch ------------------------------------------------------------ */

/* The rows of a token, slot after slot. */
static void
dispatch_backward(fsdp_node_t *node)
{
    const fsdp_tensor_t *dy = fsdp_node_grad_output(node, 0);
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    size_t tokens = dx->shape[0], c = dx->shape[1];
    size_t *place = places(fsdp_node_input(node, 1));
    size_t top_k = tokens > 0 ? dy->shape[0] / tokens : 0;
    fsdp_wide_t w = fsdp_wide(dx->dtype);
    size_t bytes = c * fsdp_dtype_size(w.compute);
    const char *up = fsdp_wide_in(&w, dy->data, fsdp_tensor_numel(dy));
    char *out = fsdp_wide_out(&w, dx->data, fsdp_tensor_numel(dx));
    for (size_t n = 0; n < tokens; n++)
        for (size_t k = 0; k < top_k; k++) {
            const char *row = up + place[n * top_k + k] * bytes;
            if (k == 0)
                memcpy(out + n * bytes, row, bytes);
            else
                w.k->accumulate(out + n * bytes, row, c);
        }
    fsdp_wide_end(&w);
    fsdp_free(place);
    fsdp_node_set_grad_input(node, 0, dx);
}

static const fsdp_op_t dispatch_op = {"dispatch", dispatch_backward, NULL};

fsdp_tensor_t *
fsdp_dispatch(fsdp_tape_t *tape, fsdp_tensor_t *x,
              const fsdp_routing_t *routing)
{
    const int32_t *origin = routing->origin->data;
    size_t top_k = routing->expert->shape[1];
    size_t shape[2] = {fsdp_tensor_numel(routing->origin), x->shape[1]};
    fsdp_tensor_t *y = fsdp_tape_new_tensor(tape, x->dtype, 2, shape);
    size_t bytes = shape[1] * fsdp_dtype_size(x->dtype);
    for (size_t r = 0; r < shape[0]; r++)
        memcpy((char *)y->data + r * bytes,
               (const char *)x->data + (size_t)origin[r] / top_k * bytes,
               bytes);
    fsdp_tape_record(tape, &dispatch_op, fsdp_values2(x, routing->origin), NULL,
                     0, fsdp_values1(y), 0);
    return y;
}

/* ---- combine ------------------------------------------------------------- */

/* The arrays of a combination, or of its gradients, as the kernels want them. */
typedef struct combination {
    fsdp_wide_t w;
    const fsdp_tensor_t *weight; /* [N,K] */
    size_t *place;               /* [N K], owned */
    size_t tokens, top_k, c, bytes;
    void *room; /* [C], owned */
} combination_t;

static combination_t
open_combination(const fsdp_tensor_t *weight, const fsdp_tensor_t *origin,
                 size_t channels)
{
    combination_t m = {.w = fsdp_wide(weight->dtype),
                       .weight = weight,
                       .place = places(origin),
                       .tokens = weight->shape[0],
                       .top_k = weight->shape[1],
                       .c = channels};
    m.bytes = channels * fsdp_dtype_size(m.w.compute);
    m.room = fsdp_alloc(FSDP_MEM_ACTIVATION, m.bytes);
    return m;
}

static void
close_combination(combination_t *m)
{
    fsdp_wide_end(&m->w);
    fsdp_free(m->room);
    fsdp_free(m->place);
}

static void
row_grads(combination_t *m, const char *dy, fsdp_tensor_t *drows)
{
    char *out = fsdp_wide_out(&m->w, drows->data, fsdp_tensor_numel(drows));
    for (size_t i = 0; i < m->tokens * m->top_k; i++)
        m->w.k->scale(dy + i / m->top_k * m->bytes,
                      fsdp_tensor_get(m->weight, i),
                      out + m->place[i] * m->bytes, m->c);
}

static void
weight_grads(combination_t *m, const char *dy, const char *rows,
             fsdp_tensor_t *dweight)
{
    for (size_t i = 0; i < m->tokens * m->top_k; i++) {
        m->w.k->multiply(dy + i / m->top_k * m->bytes,
                         rows + m->place[i] * m->bytes, m->room, m->c);
        fsdp_tensor_set(dweight, i, m->w.k->sum(m->room, m->c));
    }
}

static void
combine_backward(fsdp_node_t *node)
{
    const fsdp_tensor_t *dy = fsdp_node_grad_output(node, 0);
    const fsdp_tensor_t *rows = fsdp_node_input(node, 0);
    combination_t m = open_combination(fsdp_node_input(node, 1),
                                       fsdp_node_input(node, 2), dy->shape[1]);
    const char *up = fsdp_wide_in(&m.w, dy->data, fsdp_tensor_numel(dy));
    fsdp_tensor_t *grad[2] = {NULL, NULL};
    if (fsdp_node_needs_grad(node, 0)) {
        grad[0] = fsdp_node_new_grad_input(node, 0);
        row_grads(&m, up, grad[0]);
    }
    if (fsdp_node_needs_grad(node, 1)) {
        grad[1] = fsdp_node_new_grad_input(node, 1);
        weight_grads(&m, up,
                     fsdp_wide_in(&m.w, rows->data, fsdp_tensor_numel(rows)),
                     grad[1]);
    }
    close_combination(&m);
    for (int i = 0; i < 2; i++)
        if (grad[i] != NULL)
            fsdp_node_set_grad_input(node, i, grad[i]);
}

static const fsdp_op_t combine_op = {"combine", combine_backward, NULL};

fsdp_tensor_t *
fsdp_combine(fsdp_tape_t *tape, fsdp_tensor_t *rows,
             const fsdp_routing_t *routing)
{
    combination_t m =
        open_combination(routing->weight, routing->origin, rows->shape[1]);
    size_t shape[2] = {m.tokens, m.c};
    fsdp_tensor_t *y = fsdp_tape_new_tensor(tape, rows->dtype, 2, shape);
    const char *in = fsdp_wide_in(&m.w, rows->data, fsdp_tensor_numel(rows));
    char *out = fsdp_wide_out(&m.w, y->data, fsdp_tensor_numel(y));
    for (size_t i = 0; i < m.tokens * m.top_k; i++) {
        bool first = i % m.top_k == 0;
        char *to = out + i / m.top_k * m.bytes;
        m.w.k->scale(in + m.place[i] * m.bytes, fsdp_tensor_get(m.weight, i),
                     first ? to : m.room, m.c);
        if (!first)
            m.w.k->accumulate(to, m.room, m.c);
    }
    close_combination(&m);
    fsdp_values_t inputs = {.count = 3,
                            .tensor = {rows, routing->weight, routing->origin}};
    fsdp_tape_record(tape, &combine_op, inputs, NULL, 0, fsdp_values1(y), 0);
    return y;
}
