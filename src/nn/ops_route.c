/* The router of a mixture of experts.  Exponentials are the kernels'; what
 * follows is computed in float64, in one order, and rounded once. */

#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/moe.h"
#include "fsdp/status.h"
#include "nn/ops_internal.h"

typedef struct saved {
    double *p;       /* [N,E], owned */
    int32_t *expert; /* [N,K], owned once recorded */
    size_t tokens, experts, top_k;
    bool normalize;
    double aux_coef;
} saved_t;

static void
free_saved(void *saved)
{
    fsdp_free(((saved_t *)saved)->p);
    fsdp_free(((saved_t *)saved)->expert);
}

/* ---- probabilities ------------------------------------------------------- */

static double *
softmax(const fsdp_tensor_t *logits)
{
    size_t rows = fsdp_op_rows(logits), e = fsdp_op_columns(logits);
    fsdp_wide_t w = fsdp_wide(logits->dtype);
    size_t size = fsdp_dtype_size(w.compute);
    char *x = fsdp_alloc(FSDP_MEM_ACTIVATION, rows * e * size);
    char *row = fsdp_alloc(FSDP_MEM_ACTIVATION, 3 * rows * size);
    char *max = row, *sum = row + rows * size, *hit = sum + rows * size;
    int32_t *target = fsdp_calloc(FSDP_MEM_ACTIVATION, rows * sizeof *target);
    double *p = fsdp_alloc(FSDP_MEM_ACTIVATION, (rows * e + rows) * sizeof *p);
    double *sums = p + rows * e;
    fsdp_convert(logits->dtype, logits->data, w.compute, x, rows * e);
    w.k->partial_max(x, max, rows, e);
    w.k->partial_exponentials(x, max, target, 0, sum, hit, rows, e);
    fsdp_convert(w.compute, x, FSDP_FP64, p, rows * e);
    fsdp_convert(w.compute, sum, FSDP_FP64, sums, rows);
    for (size_t n = 0; n < rows; n++)
        for (size_t i = 0; i < e; i++)
            p[n * e + i] /= sums[n];
    fsdp_free(target);
    fsdp_free(row);
    fsdp_free(x);
    return p;
}

/* The k-th largest of p[E], after those that are taken. */
static int32_t
largest_left(const double *p, size_t experts, const int32_t *taken, size_t k)
{
    int32_t best = -1;
    for (size_t e = 0; e < experts; e++) {
        bool is_taken = false;
        for (size_t j = 0; j < k; j++)
            is_taken |= taken[j] == (int32_t)e;
        if (!is_taken && (best < 0 || p[e] > p[best]))
            best = (int32_t)e;
    }
    return best;
}

/* 1, or the sum of a token's K probabilities. */
static double
divisor(const saved_t *s, size_t n)
{
    const double *p = s->p + n * s->experts;
    double sum = 0;
    if (!s->normalize)
        return 1;
    for (size_t k = 0; k < s->top_k; k++)
        sum += p[s->expert[n * s->top_k + k]];
    return sum;
}

/* ---- forward ------------------------------------------------------------- */

static void
choose(const saved_t *s, fsdp_routing_t *r)
{
    int32_t *expert = r->expert->data;
    for (size_t n = 0; n < s->tokens; n++)
        for (size_t k = 0; k < s->top_k; k++)
            expert[n * s->top_k + k] = largest_left(
                s->p + n * s->experts, s->experts, expert + n * s->top_k, k);
    for (size_t n = 0; n < s->tokens; n++) {
        double by = divisor(s, n);
        for (size_t i = n * s->top_k; i < (n + 1) * s->top_k; i++)
            fsdp_tensor_set(r->weight, i,
                            s->p[n * s->experts + (size_t)expert[i]] / by);
    }
}

/* Rows by expert, then by token, then by slot. */
static void
sort(const saved_t *s, fsdp_routing_t *r)
{
    const int32_t *expert = r->expert->data;
    int32_t *origin = r->origin->data, *counts = r->counts->data;
    size_t at = 0;
    for (size_t e = 0; e < s->experts; e++) {
        size_t first = at;
        for (size_t i = 0; i < s->tokens * s->top_k; i++)
            if (expert[i] == (int32_t)e)
                origin[at++] = (int32_t)i;
        counts[e] = (int32_t)(at - first);
    }
}

/* coef E f_e, of which the auxiliary loss is the sum over e and the mean over n
 * of p. */
static double
pressure(const saved_t *s, const int32_t *counts, size_t e)
{
    return s->aux_coef * (double)s->experts * counts[e] / (double)s->tokens;
}

static double
aux_loss(const saved_t *s, const int32_t *counts)
{
    double sum = 0;
    for (size_t e = 0; e < s->experts; e++) {
        double of_expert = 0;
        for (size_t n = 0; n < s->tokens; n++)
            of_expert += s->p[n * s->experts + e];
        sum += pressure(s, counts, e) * (of_expert / (double)s->tokens);
    }
    return sum;
}

/* ---- backward ------------------------------------------------------------ */

/* dp[E] of a token: of its weights, w_k = p_k / sum, and of the auxiliary
 * loss. */
static void
probability_grads(const saved_t *s, const fsdp_tensor_t *dweight,
                  const double *pressures, size_t n, double *dp)
{
    const int32_t *expert = s->expert + n * s->top_k;
    const double *p = s->p + n * s->experts;
    double by = divisor(s, n), common = 0;
    for (size_t e = 0; e < s->experts; e++)
        dp[e] = pressures[e];
    if (dweight == NULL)
        return;
    for (size_t k = 0; k < s->top_k && s->normalize; k++)
        common +=
            fsdp_tensor_get(dweight, n * s->top_k + k) * p[expert[k]] / by;
    for (size_t k = 0; k < s->top_k; k++)
        dp[expert[k]] +=
            (fsdp_tensor_get(dweight, n * s->top_k + k) - common) / by;
}

static void
route_backward(fsdp_node_t *node)
{
    const saved_t *s = fsdp_node_saved(node);
    const fsdp_tensor_t *dweight = fsdp_node_grad_output(node, 0);
    const fsdp_tensor_t *counts = fsdp_node_input(node, 1);
    bool has_aux = s->aux_coef != 0 && fsdp_node_grad_output(node, 1) != NULL;
    double daux =
        has_aux ? fsdp_tensor_get(fsdp_node_grad_output(node, 1), 0) : 0;
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    size_t experts = s->experts;
    double *dp = fsdp_alloc(FSDP_MEM_ACTIVATION, 2 * experts * sizeof *dp);
    double *pressures = dp + experts;
    for (size_t e = 0; e < experts; e++)
        pressures[e] =
            has_aux ? daux * pressure(s, counts->data, e) / (double)s->tokens
                    : 0;
    for (size_t n = 0; n < s->tokens; n++) {
        const double *p = s->p + n * experts;
        double mean = 0;
        probability_grads(s, dweight, pressures, n, dp);
        for (size_t e = 0; e < experts; e++)
            mean += p[e] * dp[e];
        for (size_t e = 0; e < experts; e++)
            fsdp_tensor_set(dx, n * experts + e, p[e] * (dp[e] - mean));
    }
    fsdp_free(dp);
    fsdp_node_set_grad_input(node, 0, dx);
}

static const fsdp_op_t route_op = {"route", route_backward, free_saved};

/* ---- the operator -------------------------------------------------------- */

static fsdp_routing_t
new_routing(fsdp_tape_t *tape, const fsdp_tensor_t *logits, const saved_t *s)
{
    size_t pair[2] = {s->tokens, s->top_k}, rows = s->tokens * s->top_k;
    size_t one[2] = {1, s->experts};
    return (fsdp_routing_t){
        .expert = fsdp_tape_new_tensor(tape, FSDP_INT32, 2, pair),
        .origin = fsdp_tape_new_tensor(tape, FSDP_INT32, 1, &rows),
        .counts = fsdp_tape_new_tensor(tape, FSDP_INT32, 2, one),
        .weight = fsdp_tape_new_tensor(tape, logits->dtype, 2, pair),
        .aux =
            s->aux_coef != 0
                ? fsdp_op_new_scalar(tape, fsdp_op_compute_dtype(logits->dtype))
                : NULL};
}

fsdp_routing_t
fsdp_route(fsdp_tape_t *tape, fsdp_tensor_t *logits, size_t top_k,
           bool normalize, double aux_coef)
{
    saved_t s = {.tokens = fsdp_op_rows(logits),
                 .experts = fsdp_op_columns(logits),
                 .top_k = top_k,
                 .normalize = normalize,
                 .aux_coef = aux_coef};
    FSDP_CHECK(logits->ndim == 2 && top_k >= 1 && top_k <= s.experts,
               "route: the top %zu of %zu experts", top_k, s.experts);
    fsdp_routing_t r = new_routing(tape, logits, &s);
    s.expert = r.expert->data;
    s.p = softmax(logits);
    choose(&s, &r);
    sort(&s, &r);
    if (r.aux != NULL)
        fsdp_tensor_set(r.aux, 0, aux_loss(&s, r.counts->data));
    fsdp_values_t outputs = fsdp_values1(r.weight);
    if (r.aux != NULL)
        outputs = fsdp_values2(r.weight, r.aux);
    fsdp_node_t *node =
        fsdp_tape_record(tape, &route_op, fsdp_values2(logits, r.counts), NULL,
                         0, outputs, sizeof s);
    /* A checkpoint may free the tensor before the backward. */
    s.expert = NULL;
    if (node != NULL) {
        size_t bytes = fsdp_tensor_numel(r.expert) * sizeof *s.expert;
        s.expert = fsdp_alloc(FSDP_MEM_ACTIVATION, bytes);
        memcpy(s.expert, r.expert->data, bytes);
        *(saved_t *)fsdp_node_saved(node) = s;
    } else {
        free_saved(&s);
    }
    return r;
}
