/* The head of a language model and its loss, a chunk of rows at a time.  The
 * gradients are made while a chunk's logits are there, so these live once, in
 * the forward, and never for all rows.
 *
 * With 16-bit inputs the logits are rounded, as the linear layer's would be, the
 * loss is computed from them in float32, and their gradient is rounded before
 * the two products.  It must have what comes from above in it by then (a loss
 * scale is there to keep it from underflowing), so here the gradients are made
 * in the backward, from logits that are computed again. */

#include "fsdp/memory.h"
#include "nn/head_operator.h"

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
    void *logits; /* [rows of a chunk,V], then their gradient */
    void *losses; /* [N] */
} head_t;

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
    size_t chunk = h->rows < FSDP_HEAD_CHUNK ? h->rows : FSDP_HEAD_CHUNK;
    h->logits =
        fsdp_alloc(FSDP_MEM_ACTIVATION, chunk * h->classes * h->element);
    h->losses = fsdp_alloc(FSDP_MEM_ACTIVATION, h->rows * h->element);
    if (h->rows == 0 && h->dweight != NULL)
        h->wide.k->fill(h->dweight, 0, h->classes * h->channels);
    for (size_t begin = 0; begin < h->rows; begin += FSDP_HEAD_CHUNK) {
        size_t left = h->rows - begin;
        one_chunk(h, begin, left < FSDP_HEAD_CHUNK ? left : FSDP_HEAD_CHUNK);
    }
    double sum = h->wide.k->sum(h->losses, h->rows);
    fsdp_free(h->losses);
    fsdp_free(h->logits);
    return sum;
}

static double
mean_loss(const fsdp_tensor_t *x, fsdp_parameter_t *weight,
          const fsdp_tensor_t *target, const fsdp_head_saved_t *s,
          double upstream)
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

static const fsdp_op_t head_op = {"linear_cross_entropy", fsdp_head_backward,
                                  fsdp_head_free_saved};

fsdp_tensor_t *
fsdp_linear_cross_entropy(fsdp_tape_t *tape, fsdp_tensor_t *x,
                          fsdp_parameter_t *weight, fsdp_tensor_t *target,
                          int32_t ignore_index)
{
    fsdp_head_check(head_op.name, x, weight, target);
    fsdp_head_saved_t saved = {.ignore_index = ignore_index,
                               .mean_loss = mean_loss};
    return fsdp_head_loss(tape, &head_op, x, weight, target, &saved,
                          sizeof saved);
}
