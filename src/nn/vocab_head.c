#include "nn/vocab_head.h"

#include <string.h>

#include "fsdp/memory.h"

/* ---- over the parts ------------------------------------------------------ */

/* A NaN in any part must show, as in comm. */
static double
larger(double a, double b)
{
    return a > b || a != a ? a : b;
}

void
fsdp_vocab_head_combine_max(const fsdp_vocab_head_t *h, size_t n)
{
    if (h->tp->comm != NULL) {
        fsdp_all_reduce(h->tp->comm, h->unit, h->wide.compute, FSDP_MAX,
                        FSDP_ORDER_TREE, h->part[0].max, n);
        return;
    }
    fsdp_tensor_t view = {.dtype = h->wide.compute, .ndim = 1, .shape = {n}},
                  other = view;
    view.data = h->part[0].max;
    for (int p = 1; p < h->num_parts; p++) {
        other.data = h->part[p].max;
        for (size_t i = 0; i < n; i++)
            fsdp_tensor_set(
                &view, i,
                larger(fsdp_tensor_get(&view, i), fsdp_tensor_get(&other, i)));
    }
    for (int p = 1; p < h->num_parts; p++)
        memcpy(h->part[p].max, h->part[0].max, n * h->element);
}

static fsdp_parts_t
parts_of(const fsdp_vocab_head_t *h)
{
    return (fsdp_parts_t){h->num_parts, 1, h->tp->reduce_order};
}

void
fsdp_vocab_head_combine_stats(const fsdp_vocab_head_t *h, size_t n)
{
    if (h->tp->comm != NULL) {
        fsdp_all_reduce(h->tp->comm, h->unit, h->wide.compute, FSDP_SUM,
                        h->tp->reduce_order, h->part[0].stats, 2 * n);
        return;
    }
    fsdp_parts_t parts = parts_of(h);
    void **term =
        fsdp_alloc(FSDP_MEM_OTHER, (size_t)h->num_parts * sizeof *term);
    for (int p = 0; p < h->num_parts; p++)
        term[p] = h->part[p].stats;
    fsdp_parts_sum(&parts, h->wide.compute, term, h->part[0].stats, 2 * n);
    fsdp_free(term);
    for (int p = 1; p < h->num_parts; p++)
        memcpy(h->part[p].stats, h->part[0].stats, 2 * n * h->element);
}

void
fsdp_vocab_head_combine_dx(const fsdp_vocab_head_t *h, fsdp_tensor_t *dx)
{
    size_t n = h->rows * h->channels;
    if (h->tp->comm != NULL) {
        fsdp_all_reduce(h->tp->comm, h->unit, dx->dtype, FSDP_SUM,
                        h->tp->reduce_order, dx->data, n);
        return;
    }
    fsdp_parts_t parts = parts_of(h);
    void **term =
        fsdp_alloc(FSDP_MEM_OTHER, (size_t)h->num_parts * sizeof *term);
    for (int p = 0; p < h->num_parts; p++)
        term[p] = h->part[p].dx;
    fsdp_parts_sum(&parts, dx->dtype, term, dx->data, n);
    fsdp_free(term);
}

/* ---- one part ------------------------------------------------------------ */

void *
fsdp_vocab_head_hits(const fsdp_vocab_head_t *h, const fsdp_head_part_t *part,
                     size_t n)
{
    return (char *)part->stats + n * h->element;
}

void
fsdp_vocab_head_logits(const fsdp_vocab_head_t *h, const fsdp_head_part_t *part,
                       const void *x, size_t n)
{
    size_t v = h->classes, c = h->channels;
    h->wide.k->gemm(false, true, n, v, c, 1, x, c, part->weight, c, 0,
                    part->logits, v);
    fsdp_wide_round(&h->wide, part->logits, n * v);
    h->wide.k->partial_max(part->logits, part->max, n, v);
}

void
fsdp_vocab_head_gradients(const fsdp_vocab_head_t *h,
                          const fsdp_head_part_t *part, const void *x,
                          size_t begin, size_t n)
{
    size_t v = h->classes, c = h->channels;
    fsdp_wide_t w = fsdp_wide(h->x->dtype);
    w.k->partial_dlogits(part->logits, part->stats, h->target + begin,
                         h->ignore_index, part->first, h->scale, n, v);
    fsdp_wide_round(&w, part->logits, n * v);
    if (part->dx != NULL) {
        size_t at = begin * c * fsdp_dtype_size(h->x->dtype);
        w.k->gemm(false, false, n, c, v, 1, part->logits, v, part->weight, c, 0,
                  fsdp_wide_out(&w, (char *)part->dx + at, n * c), c);
    }
    if (part->dweight != NULL)
        w.k->gemm(true, false, v, c, n, 1, part->logits, v, x, c,
                  begin == 0 ? 0 : 1, part->dweight, c);
    fsdp_wide_end(&w);
}
