/* The head of a language model and its loss, CHUNK rows at a time.  The
 * gradients are made while a chunk's logits are there, so these live once, in
 * the forward, and never for all rows. */

#include "fsdp/status.h"
#include "nn/ops_internal.h"
#include "tensor/kernels.h"

enum { CHUNK = 256 }; /* the rows of the GEMM's own tiles */

typedef struct grads {
    fsdp_tensor_t *dx, *dweight; /* NULL: not wanted */
} grads_t;

typedef struct head {
    const fsdp_kernels_t *k;
    const fsdp_tensor_t *x; /* [N,C] */
    const void *weight;     /* [V,C] */
    const int32_t *target;  /* [N] */
    int32_t ignore_index;
    size_t rows, channels, classes, element;
    double scale; /* of the gradients: 1 / targets that count */
    void *logits; /* [CHUNK,V], then their gradient */
    void *losses; /* [N] */
} head_t;

static void
free_grads(void *saved)
{
    grads_t *g = saved;
    fsdp_tensor_destroy(&g->dx);
    fsdp_tensor_destroy(&g->dweight);
}

/* Rows [begin, begin + n). */
static void
one_chunk(const head_t *h, const grads_t *g, size_t begin, size_t n)
{
    size_t v = h->classes, c = h->channels;
    bool wanted = g->dx != NULL || g->dweight != NULL;
    const char *x = (const char *)h->x->data + begin * c * h->element;
    h->k->gemm(false, true, n, v, c, 1, x, c, h->weight, c, 0, h->logits, v);
    h->k->cross_entropy(h->logits, h->target + begin, h->ignore_index,
                        (char *)h->losses + begin * h->element,
                        wanted ? h->logits : NULL, h->scale, n, v);
    if (g->dx != NULL)
        h->k->gemm(false, false, n, c, v, 1, h->logits, v, h->weight, c, 0,
                   (char *)g->dx->data + begin * c * h->element, c);
    if (g->dweight != NULL)
        h->k->gemm(true, false, v, c, n, 1, h->logits, v, x, c,
                   begin == 0 ? 0 : 1, g->dweight->data, c);
}

/* The sum of all losses. */
static double
all_chunks(head_t *h, const grads_t *g)
{
    size_t chunk = h->rows < CHUNK ? h->rows : CHUNK;
    h->logits =
        fsdp_alloc(FSDP_MEM_ACTIVATION, chunk * h->classes * h->element);
    h->losses = fsdp_alloc(FSDP_MEM_ACTIVATION, h->rows * h->element);
    if (h->rows == 0 && g->dweight != NULL)
        fsdp_tensor_zero(g->dweight);
    for (size_t begin = 0; begin < h->rows; begin += CHUNK) {
        size_t left = h->rows - begin;
        one_chunk(h, g, begin, left < CHUNK ? left : CHUNK);
    }
    double sum = h->k->sum(h->losses, h->rows);
    fsdp_free(h->losses);
    fsdp_free(h->logits);
    return sum;
}

static void
multiply(fsdp_tensor_t *grad, double upstream)
{
    if (grad != NULL && upstream != 1)
        fsdp_kernels(grad->dtype)
            ->scale(grad->data, upstream, grad->data, fsdp_tensor_numel(grad));
}

static void
head_backward(fsdp_node_t *node)
{
    grads_t *g = fsdp_node_saved(node);
    double upstream = fsdp_tensor_get(fsdp_node_grad_output(node, 0), 0);
    multiply(g->dx, upstream);
    multiply(g->dweight, upstream);
    if (g->dx != NULL)
        fsdp_node_set_grad_input(node, 0, g->dx);
    if (g->dweight != NULL)
        fsdp_parameter_add_grad(fsdp_node_parameter(node, 0), g->dweight);
    *g = (grads_t){NULL, NULL};
}

static const fsdp_op_t head_op = {"linear_cross_entropy", head_backward,
                                  free_grads};

/* Called before the computation, as it tells whether there will be a backward.
 */
static grads_t
new_grads(fsdp_node_t *node)
{
    grads_t g = {NULL, NULL};
    if (node == NULL)
        return g;
    if (fsdp_node_needs_grad(node, 0))
        g.dx = fsdp_node_new_grad_input(node, 0);
    if (fsdp_op_wants_grad(node, 0))
        g.dweight = fsdp_parameter_new_grad(fsdp_node_parameter(node, 0));
    *(grads_t *)fsdp_node_saved(node) = g;
    return g;
}

static void
check(const fsdp_tensor_t *x, const fsdp_parameter_t *weight,
      const fsdp_tensor_t *target)
{
    FSDP_CHECK(weight->ndim == 2,
               "linear_cross_entropy: weight %s has %d dimensions, not 2",
               weight->name, weight->ndim);
    size_t shape[2] = {weight->shape[0], fsdp_op_columns(x)};
    fsdp_op_check_parameter("linear_cross_entropy", weight, x->dtype, 2, shape);
    fsdp_op_check_targets("linear_cross_entropy", x, target);
}

fsdp_tensor_t *
fsdp_linear_cross_entropy(fsdp_tape_t *tape, fsdp_tensor_t *x,
                          fsdp_parameter_t *weight, fsdp_tensor_t *target,
                          int32_t ignore_index)
{
    check(x, weight, target);
    size_t count = fsdp_op_count_targets(target, ignore_index);
    fsdp_tensor_t *loss = fsdp_op_new_scalar(tape, x->dtype);
    fsdp_node_t *node =
        fsdp_tape_record(tape, &head_op, fsdp_values2(x, target), &weight, 1,
                         fsdp_values1(loss), sizeof(grads_t));
    grads_t g = new_grads(node);
    head_t h = {.k = fsdp_kernels(x->dtype),
                .x = x,
                .weight = fsdp_parameter_data(weight),
                .target = target->data,
                .ignore_index = ignore_index,
                .rows = fsdp_op_rows(x),
                .channels = fsdp_op_columns(x),
                .classes = weight->shape[0],
                .element = fsdp_dtype_size(x->dtype),
                .scale = 1 / (double)count};
    fsdp_tensor_set(loss, 0, all_chunks(&h, &g) / (double)count);
    return loss;
}
