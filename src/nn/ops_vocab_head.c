/* The head of a language model and its loss, as in ops_head.c, when its classes
 * are cut over ranks: CHUNK rows at a time,
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

#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/status.h"
#include "nn/ops_internal.h"
#include "nn/ops_parallel.h"

enum { CHUNK = 256 };

typedef struct saved {
    fsdp_tensor_t *dx, *dweight; /* NULL: not wanted, or not made yet */
    fsdp_tensor_parallel_t tp;
    const char *unit; /* borrowed */
    int32_t ignore_index;
} saved_t;

/* One rank's classes. */
typedef struct part {
    size_t first;       /* class */
    const char *weight; /* [V/T,C] */
    char *dweight;      /* [V/T,C] or NULL */
    void *dx;           /* [N,C] of x's type, this part's term; or NULL */
    void *logits;       /* [CHUNK,V/T] */
    void *max, *stats;  /* [rows of the chunk]; [2][same]: sum, hit */
} part_t;

typedef struct head {
    const fsdp_tensor_parallel_t *tp;
    const char *unit;
    const fsdp_tensor_t *x; /* [N,C] */
    const int32_t *target;  /* [N] */
    int32_t ignore_index;
    size_t rows, channels, classes, element; /* classes of one part */
    double scale;
    fsdp_wide_t wide; /* of the weight and its gradient */
    void *losses;     /* [N] */
    int num_parts;
    part_t *part;
} head_t;

static void
free_saved(void *saved)
{
    saved_t *s = saved;
    fsdp_tensor_destroy(&s->dx);
    fsdp_tensor_destroy(&s->dweight);
}

/* ---- over the parts ------------------------------------------------------ */

/* A NaN in any part must show, as in comm. */
static double
larger(double a, double b)
{
    return a > b || a != a ? a : b;
}

static void
combine_max(const head_t *h, size_t n)
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
parts_of(const head_t *h)
{
    return (fsdp_parts_t){h->num_parts, 1, h->tp->reduce_order};
}

static void
combine_stats(const head_t *h, size_t n)
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

static void
combine_dx(const head_t *h, fsdp_tensor_t *dx)
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

static void *
hits(const head_t *h, const part_t *part, size_t n)
{
    return (char *)part->stats + n * h->element;
}

static void
make_logits(const head_t *h, const part_t *part, const void *x, size_t n)
{
    size_t v = h->classes, c = h->channels;
    h->wide.k->gemm(false, true, n, v, c, 1, x, c, part->weight, c, 0,
                    part->logits, v);
    fsdp_wide_round(&h->wide, part->logits, n * v);
    h->wide.k->partial_max(part->logits, part->max, n, v);
}

static void
make_gradients(const head_t *h, const part_t *part, const void *x, size_t begin,
               size_t n)
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

/* ---- all of it ----------------------------------------------------------- */

/* Rows [begin, begin + n). */
static void
one_chunk(const head_t *h, size_t begin, size_t n)
{
    size_t at = begin * h->channels * fsdp_dtype_size(h->x->dtype);
    const part_t *one = &h->part[0];
    bool wanted = one->dx != NULL || one->dweight != NULL;
    fsdp_wide_t w = fsdp_wide(h->x->dtype);
    const void *x =
        fsdp_wide_in(&w, (const char *)h->x->data + at, n * h->channels);
    for (int p = 0; p < h->num_parts; p++)
        make_logits(h, &h->part[p], x, n);
    combine_max(h, n);
    for (int p = 0; p < h->num_parts; p++)
        w.k->partial_exponentials(h->part[p].logits, h->part[p].max,
                                  h->target + begin, h->part[p].first,
                                  h->part[p].stats, hits(h, &h->part[p], n), n,
                                  h->classes);
    combine_stats(h, n);
    w.k->partial_losses(one->max, one->stats, hits(h, one, n),
                        h->target + begin, h->ignore_index,
                        (char *)h->losses + begin * h->element, n);
    for (int p = 0; p < h->num_parts && wanted; p++)
        make_gradients(h, &h->part[p], x, begin, n);
    fsdp_wide_end(&w);
}

/* Part p of the whole weight that is at `weight`, or the one that is there. */
static part_t
open_part(const head_t *h, int p, size_t first, const void *weight,
          void *dweight, void *dx)
{
    size_t n = h->classes * h->channels * h->element;
    size_t chunk = h->rows < CHUNK ? h->rows : CHUNK;
    return (part_t){
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
new_term(const head_t *h, fsdp_tensor_t *dx)
{
    if (dx == NULL)
        return NULL;
    return h->tp->comm != NULL
               ? dx->data
               : fsdp_alloc(FSDP_MEM_ACTIVATION, fsdp_tensor_bytes(dx));
}

static void
open_parts(head_t *h, fsdp_parameter_t *weight, const saved_t *s)
{
    int count = h->tp->comm != NULL ? 1 : h->tp->degree;
    size_t n = weight->shape[0] * h->channels;
    const void *w = fsdp_wide_in(&h->wide, fsdp_parameter_data(weight), n);
    void *dw = s->dweight != NULL ? fsdp_wide_out(&h->wide, s->dweight->data, n)
                                  : NULL;
    if (dw != NULL && h->rows == 0)
        h->wide.k->fill(dw, 0, n);
    h->classes = weight->shape[0] / (size_t)count;
    h->num_parts = count;
    h->part = fsdp_alloc(FSDP_MEM_OTHER, (size_t)count * sizeof *h->part);
    for (int p = 0; p < count; p++)
        h->part[p] = open_part(h, p, (size_t)(weight->part + p) * h->classes, w,
                               dw, new_term(h, s->dx));
}

static void
close_parts(head_t *h)
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

/* The mean loss, and the gradients of s, which are those of `upstream` times
 * it. */
static double
mean_loss(const fsdp_tensor_t *x, fsdp_parameter_t *weight,
          const fsdp_tensor_t *target, const saved_t *s, double upstream)
{
    double count = (double)fsdp_op_count_targets(target, s->ignore_index);
    head_t h = {.tp = &s->tp,
                .unit = s->unit,
                .x = x,
                .target = target->data,
                .ignore_index = s->ignore_index,
                .rows = fsdp_op_rows(x),
                .channels = fsdp_op_columns(x),
                .scale = upstream / count,
                .wide = fsdp_wide(x->dtype)};
    h.element = fsdp_dtype_size(h.wide.compute);
    open_parts(&h, weight, s);
    h.losses = fsdp_alloc(FSDP_MEM_ACTIVATION, h.rows * h.element);
    for (size_t begin = 0; begin < h.rows; begin += CHUNK) {
        size_t left = h.rows - begin;
        one_chunk(&h, begin, left < CHUNK ? left : CHUNK);
    }
    if (s->dx != NULL)
        combine_dx(&h, s->dx);
    double sum = h.wide.k->sum(h.losses, h.rows);
    fsdp_free(h.losses);
    close_parts(&h);
    return sum / count;
}

/* ---- the operator -------------------------------------------------------- */

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

static const fsdp_op_t head_op = {"vocab_cross_entropy", head_backward,
                                  free_saved};

static void
check(const fsdp_tensor_t *x, const fsdp_parameter_t *weight,
      const fsdp_tensor_t *target, int32_t ignore_index)
{
    FSDP_CHECK(weight->ndim == 2,
               "vocab_cross_entropy: weight %s has %d dimensions, not 2",
               weight->name, weight->ndim);
    size_t shape[2] = {weight->shape[0], fsdp_op_columns(x)};
    fsdp_op_check_parameter("vocab_cross_entropy", weight, x->dtype, 2, shape);
    fsdp_op_check_targets("vocab_cross_entropy", x, target);
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
    fsdp_tensor_t *loss =
        fsdp_op_new_scalar(tape, fsdp_op_compute_dtype(x->dtype));
    fsdp_node_t *node =
        fsdp_tape_record(tape, &head_op, fsdp_values2(x, target), &weight, 1,
                         fsdp_values1(loss), sizeof(saved_t));
    saved_t none, *s = node != NULL ? fsdp_node_saved(node) : &none;
    *s = (saved_t){
        .tp = *tp, .unit = weight->name, .ignore_index = ignore_index};
    if (node != NULL && !is_late(x))
        new_grads(node);
    fsdp_tensor_set(loss, 0, mean_loss(x, weight, target, s, 1));
    return loss;
}
