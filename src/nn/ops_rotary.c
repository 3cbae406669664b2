#include <math.h>

#include "fsdp/status.h"
#include "nn/ops_internal.h"

/* ---- the table ---------------------------------------------------------- */

/* Angle i of position t is t theta^(-2 i / D).  libm's float and double
 * functions round differently from one processor to the next (they choose code
 * by what it can do), which would show between ranks.  Its long double ones do
 * not choose, and carry so many bits more that the value rounded from them is
 * the same on every machine but for a tie in 2^11.  So the table is made once,
 * in long double, by one thread, and every kernel only reads it. */
static void
fill_position(fsdp_tensor_t *table, size_t t, double theta)
{
    size_t depth = table->shape[1], half = depth / 2;
    for (size_t i = 0; i < half; i++) {
        long double exponent = -2 * (long double)i / (long double)depth;
        long double angle = (long double)t * powl(theta, exponent);
        fsdp_tensor_set(table, t * depth + i, (double)cosl(angle));
        fsdp_tensor_set(table, t * depth + half + i, (double)sinl(angle));
    }
}

fsdp_tensor_t *
fsdp_rotary_table(fsdp_dtype_t dtype, size_t positions, size_t head_dim,
                  double theta)
{
    FSDP_CHECK(head_dim > 0 && head_dim % 2 == 0,
               "rotary: a head of %zu channels cannot be cut in two halves",
               head_dim);
    FSDP_CHECK(theta > 0, "rotary: theta is %g; it must be above 0", theta);
    size_t shape[2] = {positions, head_dim};
    fsdp_tensor_t *table = fsdp_tensor_create(
        FSDP_MEM_OTHER, dtype == FSDP_FP64 ? FSDP_FP64 : FSDP_FP32, 2, shape);
    for (size_t t = 0; t < positions; t++)
        fill_position(table, t, theta);
    return table;
}

/* ---- the operator ------------------------------------------------------- */

typedef struct saved {
    const fsdp_tensor_t *table; /* borrowed */
    size_t heads;
} saved_t;

static void
turn(const saved_t *s, const fsdp_tensor_t *x, fsdp_tensor_t *y, bool inverse)
{
    fsdp_wide_t w = fsdp_wide(x->dtype);
    size_t n = fsdp_tensor_numel(x);
    const void *in = fsdp_wide_in(&w, x->data, n);
    w.k->rotary(in, s->table->data, fsdp_wide_out(&w, y->data, n),
                fsdp_op_rows(x), x->shape[1], s->heads, s->table->shape[1],
                inverse);
    fsdp_wide_end(&w);
}

/* A rotation's transpose turns back. */
static void
rotary_backward(fsdp_node_t *node)
{
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    turn(fsdp_node_saved(node), fsdp_node_grad_output(node, 0), dx, true);
    fsdp_node_set_grad_input(node, 0, dx);
}

static const fsdp_op_t rotary_op = {"rotary", rotary_backward, NULL};

fsdp_tensor_t *
fsdp_rotary(fsdp_tape_t *tape, fsdp_tensor_t *x, size_t heads,
            const fsdp_tensor_t *table)
{
    FSDP_CHECK(x->ndim == 3, "rotary: the input is not [B, T, C]");
    FSDP_CHECK(heads > 0 && x->shape[2] == heads * table->shape[1],
               "rotary: %zu heads of %zu do not make %zu channels", heads,
               table->shape[1], x->shape[2]);
    FSDP_CHECK(x->shape[1] <= table->shape[0],
               "rotary: a sequence of %zu tokens, but the table has %zu "
               "positions",
               x->shape[1], table->shape[0]);
    FSDP_CHECK(table->dtype == fsdp_op_compute_dtype(x->dtype),
               "rotary: a table in %s for values in %s",
               fsdp_dtype_name(table->dtype), fsdp_dtype_name(x->dtype));
    saved_t s = {.table = table, .heads = heads};
    fsdp_tensor_t *y = fsdp_op_new_like(tape, x);
    turn(&s, x, y, false);
    fsdp_node_t *node = fsdp_tape_record(tape, &rotary_op, fsdp_values1(x),
                                         NULL, 0, fsdp_values1(y), sizeof s);
    if (node != NULL)
        *(saved_t *)fsdp_node_saved(node) = s;
    return y;
}
