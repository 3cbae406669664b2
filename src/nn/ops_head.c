/* The head of a language model and its loss, CHUNK rows at a time.  The
 * gradients are made while a chunk's logits are there, so these live once, in
 * the forward, and never for all rows.
 *
 * With 16-bit inputs the logits are rounded, as the linear layer's would be, the
 * loss is computed from them in float32, and their gradient is rounded before
 * the two products.  It must have what comes from above in it by then (a loss
 * scale is there to keep it from underflowing), so here the gradients are made
 * in the backward, from logits that are computed again. */

#include "fsdp/memory.h"
#include "fsdp/status.h"
#include "nn/ops_internal.h"

enum { CHUNK = 256 }; /* the rows of the GEMM's own tiles */

typedef struct saved {
    fsdp_tensor_t *dx, *dweight; /* NULL: not wanted, or not made yet */
    int32_t ignore_index;
} saved_t;

typedef struct head {
    const fsdp_tensor_t *x; /* [N,C] */
    fsdp_wide_t wide;       /* of the weight and its gradient */
    const void *weight;     /* [V,C] */
    void *dweight;          /* [V,C] or NULL */
    fsdp_tensor_t *dx;      /* [N,C] or NULL */
    const int32_t *target;  /* [N] */
    int32_t ignore_index;
    size_t rows, channels, classes, element;
    double scale; /* of the gradients: upstream / targets that count */
    void *logits; /* [CHUNK,V], then their gradient */
    void *losses; /* [N] */
} head_t;

static void
free_saved(void *saved)
{
    saved_t *s = saved;
    fsdp_tensor_destroy(&s->dx);
    fsdp_tensor_destroy(&s->dweight);
}

/* Rows [begin, begin + n). */
static void
one_chunk(const head_t *h, size_t begin, size_t n)
{
    size_t v = h->classes, c = h->channels;
    size_t at = begin * c * fsdp_dtype_size(h->x->dtype);
    bool wanted = h->dx != NULL || h->dweight != NULL;
    fsdp_wide_t w = fsdp_wide(h->x->dtype);
    const void *x = fsdp_wide_in(&w, (const char *)h->x->data + at, n * c);
    w.k->gemm(false, true, n, v, c, 1, x, c, h->weight, c, 0, h->logits, v);
    fsdp_wide_round(&w, h->logits, n * v);
    w.k->cross_entropy(h->logits, h->target + begin, h->ignore_index,
                       (char *)h->losses + begin * h->element,
                       wanted ? h->logits : NULL, h->scale, n, v);
    if (wanted)
        fsdp_wide_round(&w, h->logits, n * v);
    if (h->dx != NULL)
        w.k->gemm(false, false, n, c, v, 1, h->logits, v, h->weight, c, 0,
                  fsdp_wide_out(&w, (char *)h->dx->data + at, n * c), c);
    if (h->dweight != NULL)
        w.k->gemm(true, false, v, c, n, 1, h->logits, v, x, c,
                  begin == 0 ? 0 : 1, h->dweight, c);
    fsdp_wide_end(&w);
}

/* The sum of all losses; the gradients that are wanted. */
static double
all_chunks(head_t *h)
{
    size_t chunk = h->rows < CHUNK ? h->rows : CHUNK;
    h->logits =
        fsdp_alloc(FSDP_MEM_ACTIVATION, chunk * h->classes * h->element);
    h->losses = fsdp_alloc(FSDP_MEM_ACTIVATION, h->rows * h->element);
    if (h->rows == 0 && h->dweight != NULL)
        h->wide.k->fill(h->dweight, 0, h->classes * h->channels);
    for (size_t begin = 0; begin < h->rows; begin += CHUNK) {
        size_t left = h->rows - begin;
        one_chunk(h, begin, left < CHUNK ? left : CHUNK);
    }
    double sum = h->wide.k->sum(h->losses, h->rows);
    fsdp_free(h->losses);
    fsdp_free(h->logits);
    return sum;
}

/* The mean loss, and the gradients of s, which are those of `upstream` times
 * it. */
static double
mean_loss(const fsdp_tensor_t *x, fsdp_parameter_t *weight,
          const fsdp_tensor_t *target, const saved_t *s, double upstream)
{
    double count = (double)fsdp_op_count_targets(target, s->ignore_index);
    head_t h = {.x = x,
                .wide = fsdp_wide(x->dtype),
                .dx = s->dx,
                .target = target->data,
                .ignore_index = s->ignore_index,
                .rows = fsdp_op_rows(x),
                .channels = fsdp_op_columns(x),
                .classes = weight->shape[0],
                .scale = upstream / count};
    size_t n = h.classes * h.channels;
    h.element = fsdp_dtype_size(h.wide.compute);
    h.weight = fsdp_wide_in(&h.wide, fsdp_parameter_data(weight), n);
    if (s->dweight != NULL)
        h.dweight = fsdp_wide_out(&h.wide, s->dweight->data, n);
    double sum = all_chunks(&h);
    fsdp_wide_end(&h.wide);
    return sum / count;
}

static void
multiply(fsdp_tensor_t *grad, double upstream)
{
    if (grad != NULL && upstream != 1)
        fsdp_kernels(grad->dtype)
            ->scale(grad->data, upstream, grad->data, fsdp_tensor_numel(grad));
}

static void
new_grads(fsdp_node_t *node)
{
    saved_t *s = fsdp_node_saved(node);
    if (fsdp_node_needs_grad(node, 0))
        s->dx = fsdp_node_new_grad_input(node, 0);
    if (fsdp_op_wants_grad(node, 0))
        s->dweight = fsdp_parameter_new_grad(fsdp_node_parameter(node, 0));
}

/* Are the gradients made in the backward? */
static bool
is_late(const fsdp_tensor_t *x)
{
    return fsdp_op_compute_dtype(x->dtype) != x->dtype;
}

static void
head_backward(fsdp_node_t *node)
{
    saved_t *s = fsdp_node_saved(node);
    fsdp_tensor_t *x = fsdp_node_input(node, 0);
    fsdp_parameter_t *weight = fsdp_node_parameter(node, 0);
    double upstream = fsdp_tensor_get(fsdp_node_grad_output(node, 0), 0);
    if (is_late(x)) {
        new_grads(node);
        mean_loss(x, weight, fsdp_node_input(node, 1), s, upstream);
    } else {
        multiply(s->dx, upstream);
        multiply(s->dweight, upstream);
    }
    if (s->dx != NULL)
        fsdp_node_set_grad_input(node, 0, s->dx);
    if (s->dweight != NULL)
        fsdp_parameter_add_grad(weight, s->dweight);
    s->dx = s->dweight = NULL;
}

static const fsdp_op_t head_op = {"linear_cross_entropy", head_backward,
                                  free_saved};

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

/* The node comes before the computation, as it tells whether there will be a
 * backward. */
fsdp_tensor_t *
fsdp_linear_cross_entropy(fsdp_tape_t *tape, fsdp_tensor_t *x,
                          fsdp_parameter_t *weight, fsdp_tensor_t *target,
                          int32_t ignore_index)
{
    check(x, weight, target);
    fsdp_tensor_t *loss =
        fsdp_op_new_scalar(tape, fsdp_op_compute_dtype(x->dtype));
    fsdp_node_t *node =
        fsdp_tape_record(tape, &head_op, fsdp_values2(x, target), &weight, 1,
                         fsdp_values1(loss), sizeof(saved_t));
    saved_t none = {.ignore_index = ignore_index}, *s = &none;
    if (node != NULL) {
        s = fsdp_node_saved(node);
        s->ignore_index = ignore_index;
        if (!is_late(x))
            new_grads(node);
    }
    fsdp_tensor_set(loss, 0, mean_loss(x, weight, target, s, 1));
    return loss;
}
