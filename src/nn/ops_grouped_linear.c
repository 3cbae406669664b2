/* Linear layers of several experts, each on rows of its own. */

#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/moe.h"
#include "fsdp/status.h"
#include "nn/ops_internal.h"
#include "nn/parts.h"

typedef struct groups {
    const int32_t *counts; /* [sources,experts] */
    size_t sources, experts, in, out;
    fsdp_dtype_t dtype;
    size_t element; /* bytes of one of the type of the arithmetic */
} groups_t;

static groups_t
describe(const fsdp_tensor_t *x, const fsdp_parameter_t *weight,
         const fsdp_tensor_t *counts)
{
    return (groups_t){.counts = counts->data,
                      .sources = counts->shape[0],
                      .experts = counts->shape[1],
                      .in = weight->shape[2],
                      .out = weight->shape[1],
                      .dtype = x->dtype,
                      .element =
                          fsdp_dtype_size(fsdp_op_compute_dtype(x->dtype))};
}

/* Every block of rows: its source, its expert, where it begins and ends. */
typedef struct block {
    size_t source, expert, begin, rows;
} block_t;

static bool
next_block(const groups_t *g, block_t *b)
{
    size_t i = b->rows == SIZE_MAX ? 0 : b->source * g->experts + b->expert + 1;
    size_t begin = b->rows == SIZE_MAX ? 0 : b->begin + b->rows;
    if (i == g->sources * g->experts)
        return false;
    *b = (block_t){i / g->experts, i % g->experts, begin, (size_t)g->counts[i]};
    return true;
}

static const block_t before_first = {.rows = SIZE_MAX};

static const char *
expert_weight(const groups_t *g, const char *weight, size_t e)
{
    return weight + e * g->out * g->in * g->element;
}

/* ---- backward ------------------------------------------------------------ */

static void
input_grad(const groups_t *g, fsdp_node_t *node, const fsdp_tensor_t *dy)
{
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    fsdp_parameter_t *weight = fsdp_node_parameter(node, 0);
    fsdp_wide_t w = fsdp_wide(g->dtype);
    const char *up = fsdp_wide_in(&w, dy->data, fsdp_tensor_numel(dy));
    const char *wt = fsdp_wide_in(&w, fsdp_parameter_data(weight),
                                  fsdp_parameter_numel(weight));
    char *out = fsdp_wide_out(&w, dx->data, fsdp_tensor_numel(dx));
    for (block_t b = before_first; next_block(g, &b);)
        if (b.rows > 0)
            w.k->gemm(false, false, b.rows, g->in, g->out, 1,
                      up + b.begin * g->out * g->element, g->out,
                      expert_weight(g, wt, b.expert), g->in, 0,
                      out + b.begin * g->in * g->element, g->in);
    fsdp_wide_end(&w);
    fsdp_node_set_grad_input(node, 0, dx);
}

/* dW of one block, to term[O,I] of the type of the data; 0 without rows. */
static void
one_term(const groups_t *g, const block_t *b, const char *dy, const char *x,
         void *term)
{
    size_t n = g->out * g->in;
    fsdp_wide_t w = fsdp_wide(g->dtype);
    void *out = fsdp_wide_out(&w, term, n);
    if (b->rows == 0)
        w.k->fill(out, 0, n);
    else
        w.k->gemm(true, false, g->out, g->in, b->rows, 1,
                  dy + b->begin * g->out * g->element, g->out,
                  x + b->begin * g->in * g->element, g->in, 0, out, g->in);
    fsdp_wide_end(&w);
}

/* An expert's gradient: of each source one term, added in order. */
static void
expert_grad(const groups_t *g, const fsdp_parts_t *parts, size_t e,
            const char *dy, const char *x, void *out)
{
    size_t n = g->out * g->in;
    void **term = fsdp_alloc(FSDP_MEM_OTHER, g->sources * sizeof *term);
    for (block_t b = before_first; next_block(g, &b);) {
        if (b.expert != e)
            continue;
        term[b.source] = b.source == 0
                             ? out
                             : fsdp_alloc(FSDP_MEM_ACTIVATION,
                                          n * fsdp_dtype_size(g->dtype));
        one_term(g, &b, dy, x, term[b.source]);
    }
    fsdp_parts_sum(parts, g->dtype, term, out, n);
    for (size_t s = 1; s < g->sources; s++)
        fsdp_free(term[s]);
    fsdp_free(term);
}

static void
weight_grad(const groups_t *g, fsdp_node_t *node, const fsdp_tensor_t *dy)
{
    const fsdp_reduce_order_t *order = fsdp_node_saved(node);
    fsdp_parameter_t *weight = fsdp_node_parameter(node, 0);
    const fsdp_tensor_t *x = fsdp_node_input(node, 0);
    fsdp_tensor_t *dw = fsdp_parameter_new_grad(weight);
    fsdp_parts_t parts = {(int)g->sources, 1,
                          *order == FSDP_ORDER_TREE ? FSDP_ORDER_TREE
                                                    : FSDP_ORDER_RANK};
    fsdp_wide_t w = fsdp_wide(g->dtype);
    const char *up = fsdp_wide_in(&w, dy->data, fsdp_tensor_numel(dy));
    const char *in = fsdp_wide_in(&w, x->data, fsdp_tensor_numel(x));
    size_t bytes = g->out * g->in * fsdp_dtype_size(g->dtype);
    for (size_t e = 0; e < g->experts; e++)
        expert_grad(g, &parts, e, up, in, (char *)dw->data + e * bytes);
    fsdp_wide_end(&w);
    fsdp_parameter_add_grad(weight, dw);
}

static void
grouped_backward(fsdp_node_t *node)
{
    const fsdp_tensor_t *dy = fsdp_node_grad_output(node, 0);
    groups_t g =
        describe(fsdp_node_input(node, 0), fsdp_node_parameter(node, 0),
                 fsdp_node_input(node, 1));
    if (fsdp_node_needs_grad(node, 0))
        input_grad(&g, node, dy);
    if (fsdp_op_wants_grad(node, 0))
        weight_grad(&g, node, dy);
}

static const fsdp_op_t grouped_op = {"grouped_linear", grouped_backward, NULL};

/* ---- forward ------------------------------------------------------------- */

static void
check(const fsdp_tensor_t *x, const fsdp_parameter_t *weight,
      const fsdp_tensor_t *counts)
{
    FSDP_CHECK(weight->ndim == 3 && x->ndim == 2 && counts->ndim == 2,
               "grouped_linear: weight %s has %d dimensions, not 3, or the "
               "input or the counts have not 2",
               weight->name, weight->ndim);
    fsdp_op_check_int32("grouped_linear", counts);
    size_t shape[3] = {counts->shape[1], weight->shape[1], x->shape[1]};
    fsdp_op_check_parameter("grouped_linear", weight, x->dtype, 3, shape);
    size_t rows = 0;
    for (size_t i = 0; i < fsdp_tensor_numel(counts); i++)
        rows += (size_t)((const int32_t *)counts->data)[i];
    FSDP_CHECK(rows == x->shape[0],
               "grouped_linear: %zu rows, but the counts say %zu", x->shape[0],
               rows);
}

fsdp_tensor_t *
fsdp_grouped_linear(fsdp_tape_t *tape, fsdp_tensor_t *x,
                    fsdp_parameter_t *weight, const fsdp_tensor_t *counts,
                    fsdp_reduce_order_t order)
{
    check(x, weight, counts);
    groups_t g = describe(x, weight, counts);
    fsdp_tensor_t *y =
        fsdp_tape_new_tensor(tape, x->dtype, 2, (size_t[]){x->shape[0], g.out});
    fsdp_wide_t w = fsdp_wide(g.dtype);
    const char *in = fsdp_wide_in(&w, x->data, fsdp_tensor_numel(x));
    const char *wt = fsdp_wide_in(&w, fsdp_parameter_data(weight),
                                  fsdp_parameter_numel(weight));
    char *out = fsdp_wide_out(&w, y->data, fsdp_tensor_numel(y));
    for (block_t b = before_first; next_block(&g, &b);)
        if (b.rows > 0)
            w.k->gemm(false, true, b.rows, g.out, g.in, 1,
                      in + b.begin * g.in * g.element, g.in,
                      expert_weight(&g, wt, b.expert), g.in, 0,
                      out + b.begin * g.out * g.element, g.out);
    fsdp_wide_end(&w);
    fsdp_node_t *node = fsdp_tape_record(
        tape, &grouped_op, fsdp_values2(x, (fsdp_tensor_t *)(uintptr_t)counts),
        &weight, 1, fsdp_values1(y), sizeof order);
    if (node != NULL)
        *(fsdp_reduce_order_t *)fsdp_node_saved(node) = order;
    return y;
}
