/* The head of a language model and its loss, as in ops_head.c, when its classes
 * are cut over ranks: a chunk of rows at a time,
 *
 *     logits_t = x W_t^T                          each rank its own V / T
 *     max  = max over t of max_t                  [rows]
 *     sum, hit = sum over t of sum_t, hit_t       [2][rows]
 *     dlogits_t from max, sum and hit
 *     dx = sum over t of dlogits_t W_t            once, for all rows
 *
 * A rank has one part of this; one process in the ranks' place has all T, and
 * combines them itself.  When gradients are made, and what is rounded for 16-bit
 * inputs, is as in ops_head.c. */

#include "fsdp/memory.h"
#include "fsdp/status.h"
#include "nn/vocab_head.h"

typedef struct saved {
    fsdp_head_saved_t head;
    fsdp_tensor_parallel_t tp;
    const char *unit; /* borrowed */
} saved_t;

/* Rows [begin, begin + n). */
static void
one_chunk(const fsdp_vocab_head_t *h, size_t begin, size_t n)
{
    size_t at = begin * h->channels * fsdp_dtype_size(h->x->dtype);
    const fsdp_head_part_t *one = &h->part[0];
    bool wanted = one->dx != NULL || one->dweight != NULL;
    fsdp_wide_t w = fsdp_wide(h->x->dtype);
    const void *x =
        fsdp_wide_in(&w, (const char *)h->x->data + at, n * h->channels);
    for (int p = 0; p < h->num_parts; p++)
        fsdp_vocab_head_logits(h, &h->part[p], x, n);
    fsdp_vocab_head_combine_max(h, n);
    for (int p = 0; p < h->num_parts; p++)
        w.k->partial_exponentials(
            h->part[p].logits, h->part[p].max, h->target + begin,
            h->part[p].first, h->part[p].stats,
            fsdp_vocab_head_hits(h, &h->part[p], n), n, h->classes);
    fsdp_vocab_head_combine_stats(h, n);
    w.k->partial_losses(one->max, one->stats, fsdp_vocab_head_hits(h, one, n),
                        h->target + begin, h->ignore_index,
                        (char *)h->losses + begin * h->element, n);
    for (int p = 0; p < h->num_parts && wanted; p++)
        fsdp_vocab_head_gradients(h, &h->part[p], x, begin, n);
    fsdp_wide_end(&w);
}

/* Part p of the whole weight that is at `weight`, or the one that is there. */
static fsdp_head_part_t
open_part(const fsdp_vocab_head_t *h, int p, size_t first, const void *weight,
          void *dweight, void *dx)
{
    size_t n = h->classes * h->channels * h->element;
    size_t chunk = h->rows < FSDP_HEAD_CHUNK ? h->rows : FSDP_HEAD_CHUNK;
    return (fsdp_head_part_t){
        .first = first,
        .weight = (const char *)weight + (size_t)p * n,
        .dweight = dweight != NULL ? (char *)dweight + (size_t)p * n : NULL,
        .dx = dx,
        .logits =
            fsdp_alloc(FSDP_MEM_ACTIVATION, chunk * h->classes * h->element),
        .max = fsdp_alloc(FSDP_MEM_ACTIVATION, chunk * h->element),
        .stats = fsdp_alloc(FSDP_MEM_ACTIVATION, 2 * chunk * h->element)};
}

/* Where a part's term of dx goes: the only one to where it is added up. */
static void *
new_term(const fsdp_vocab_head_t *h, fsdp_tensor_t *dx)
{
    if (dx == NULL)
        return NULL;
    return h->tp->comm != NULL
               ? dx->data
               : fsdp_alloc(FSDP_MEM_ACTIVATION, fsdp_tensor_bytes(dx));
}

static void
open_parts(fsdp_vocab_head_t *h, fsdp_parameter_t *weight,
           const fsdp_head_saved_t *saved)
{
    int count = h->tp->comm != NULL ? 1 : h->tp->degree;
    size_t n = weight->shape[0] * h->channels;
    const void *w = fsdp_wide_in(&h->wide, fsdp_parameter_data(weight), n);
    void *dw = saved->dweight != NULL
                   ? fsdp_wide_out(&h->wide, saved->dweight->data, n)
                   : NULL;
    if (dw != NULL && h->rows == 0)
        h->wide.k->fill(dw, 0, n);
    h->classes = weight->shape[0] / (size_t)count;
    h->num_parts = count;
    h->part = fsdp_alloc(FSDP_MEM_OTHER, (size_t)count * sizeof *h->part);
    for (int p = 0; p < count; p++)
        h->part[p] = open_part(h, p, (size_t)(weight->part + p) * h->classes, w,
                               dw, new_term(h, saved->dx));
}

static void
close_parts(fsdp_vocab_head_t *h)
{
    for (int p = 0; p < h->num_parts; p++) {
        if (h->tp->comm == NULL)
            fsdp_free(h->part[p].dx);
        fsdp_free(h->part[p].logits);
        fsdp_free(h->part[p].max);
        fsdp_free(h->part[p].stats);
    }
    fsdp_free(h->part);
    fsdp_wide_end(&h->wide);
}

static double
mean_loss(const fsdp_tensor_t *x, fsdp_parameter_t *weight,
          const fsdp_tensor_t *target, const fsdp_head_saved_t *saved,
          double upstream)
{
    const saved_t *s = (const saved_t *)saved;
    double count = (double)fsdp_op_count_targets(target, saved->ignore_index);
    fsdp_vocab_head_t h = {.tp = &s->tp,
                           .unit = s->unit,
                           .x = x,
                           .target = target->data,
                           .ignore_index = saved->ignore_index,
                           .rows = fsdp_op_rows(x),
                           .channels = fsdp_op_columns(x),
                           .scale = upstream / count,
                           .wide = fsdp_wide(x->dtype)};
    h.element = fsdp_dtype_size(h.wide.compute);
    open_parts(&h, weight, saved);
    h.losses = fsdp_alloc(FSDP_MEM_ACTIVATION, h.rows * h.element);
    for (size_t begin = 0; begin < h.rows; begin += FSDP_HEAD_CHUNK) {
        size_t left = h.rows - begin;
        one_chunk(&h, begin, left < FSDP_HEAD_CHUNK ? left : FSDP_HEAD_CHUNK);
    }
    if (saved->dx != NULL)
        fsdp_vocab_head_combine_dx(&h, saved->dx);
    double sum = h.wide.k->sum(h.losses, h.rows);
    fsdp_free(h.losses);
    close_parts(&h);
    return sum / count;
}

static const fsdp_op_t head_op = {"vocab_cross_entropy", fsdp_head_backward,
                                  fsdp_head_free_saved};

static void
check(const fsdp_tensor_t *x, const fsdp_parameter_t *weight,
      const fsdp_tensor_t *target, int32_t ignore_index)
{
    fsdp_head_check(head_op.name, x, weight, target);
    size_t whole[FSDP_MAX_DIMS];
    fsdp_parameter_whole_shape(weight, whole);
    const int32_t *t = target->data;
    for (size_t r = 0; r < fsdp_tensor_numel(target); r++)
        FSDP_CHECK(t[r] == ignore_index ||
                       (t[r] >= 0 && (size_t)t[r] < whole[0]),
                   "target %ld in row %zu, but there are %zu classes",
                   (long)t[r], r, whole[0]);
}

fsdp_tensor_t *
fsdp_op_vocab_cross_entropy(fsdp_tape_t *tape, fsdp_tensor_t *x,
                            fsdp_parameter_t *weight, fsdp_tensor_t *target,
                            int32_t ignore_index,
                            const fsdp_tensor_parallel_t *tp)
{
    check(x, weight, target, ignore_index);
    saved_t saved = {
        .head = {.ignore_index = ignore_index, .mean_loss = mean_loss},
        .tp = *tp,
        .unit = weight->name};
    return fsdp_head_loss(tape, &head_op, x, weight, target, &saved.head,
                          sizeof saved);
}
