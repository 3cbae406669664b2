/** \file moe.h  A mixture of experts by its definition: every expert of every
 *  token, weights 0 for those that are not among the largest.
 */
#ifndef TWIN_MOE_H
#define TWIN_MOE_H

#include "fsdp/moe.h"
#include "twin/bounded.h"
#include "twin/gelu.h"

enum { TWIN_MOE_EXPERTS = 64, TWIN_MOE_WIDTH = 64 };

/** The matrices [experts, channels], [experts, hidden, channels],
 *  [experts, channels, hidden] and, of SwiGLU, once more the second's shape. */
typedef struct twin_moe {
    const fsdp_moe_config_t *config;
    const double *gate, *w1, *w2, *w3;
} twin_moe_t;

static inline bounded_t
twin_dot(const double *w, const bounded_t *x, size_t n)
{
    bounded_t term[TWIN_MOE_WIDTH];
    for (size_t i = 0; i < n; i++)
        term[i] = b_mul(b_exact(w[i]), x[i]);
    return b_sum(term, n);
}

/* x / (1 + exp(-x)) */
static inline bounded_t
twin_silu_of(bounded_t x)
{
    bounded_t below = {-x.v, x.e};
    return b_div(x, b_add(b_exact(1), b_exp(below)));
}

/* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
static inline bounded_t
twin_gelu_of(bounded_t x)
{
    bounded_t t = b_tanh(twin_gelu_inner(x));
    return b_mul(b_mul(b_exact(0.5), x), b_add(b_exact(1), t));
}

/* y[channels] of x[channels] by expert e. */
static inline void
twin_expert(const twin_moe_t *t, size_t e, const bounded_t *x, bounded_t *y)
{
    size_t c = t->config->channels, h = t->config->hidden;
    bounded_t inner[TWIN_MOE_WIDTH];
    for (size_t i = 0; i < h; i++) {
        bounded_t a = twin_dot(t->w1 + (e * h + i) * c, x, c);
        inner[i] = t->config->kind == FSDP_EXPERT_SWIGLU
                       ? b_mul(twin_silu_of(a),
                               twin_dot(t->w3 + (e * h + i) * c, x, c))
                       : twin_gelu_of(a);
    }
    for (size_t i = 0; i < c; i++)
        y[i] = twin_dot(t->w2 + (e * c + i) * h, inner, h);
}

/* exp(x.gate) / sum, of which the largest is taken away before, as usual. */
static inline void
twin_probabilities(const twin_moe_t *t, const bounded_t *x, bounded_t *prob)
{
    size_t experts = t->config->num_experts, most = 0;
    bounded_t above[TWIN_MOE_EXPERTS];
    for (size_t e = 0; e < experts; e++) {
        prob[e] =
            twin_dot(t->gate + e * t->config->channels, x, t->config->channels);
        if (prob[e].v > prob[most].v)
            most = e;
    }
    bounded_t largest = prob[most];
    for (size_t e = 0; e < experts; e++)
        above[e] = b_exp(b_sub(prob[e], largest));
    for (size_t e = 0; e < experts; e++)
        prob[e] = b_div(above[e], b_sum(above, experts));
}

/* Which top_k are the largest, the first of equals, and their sum. */
static inline bounded_t
twin_choose(const twin_moe_t *t, const bounded_t *prob, bool *taken)
{
    bounded_t chosen[TWIN_MOE_EXPERTS];
    for (size_t k = 0; k < t->config->top_k; k++) {
        size_t best = t->config->num_experts;
        for (size_t e = 0; e < t->config->num_experts; e++)
            if (!taken[e] &&
                (best == t->config->num_experts || prob[e].v > prob[best].v))
                best = e;
        taken[best] = true;
        chosen[k] = prob[best];
    }
    return b_sum(chosen, t->config->top_k);
}

/** y[tokens, channels] of x; returns the auxiliary loss. */
static inline bounded_t
twin_moe(const twin_moe_t *t, const double *x, size_t tokens, bounded_t *y)
{
    size_t c = t->config->channels, experts = t->config->num_experts;
    double times[TWIN_MOE_EXPERTS] = {0};
    bounded_t share[TWIN_MOE_EXPERTS][TWIN_MOE_WIDTH];
    for (size_t n = 0; n < tokens; n++) {
        bounded_t in[TWIN_MOE_WIDTH], row[TWIN_MOE_WIDTH];
        bounded_t prob[TWIN_MOE_EXPERTS], term[TWIN_MOE_WIDTH][8];
        bool taken[TWIN_MOE_EXPERTS] = {false};
        size_t k = 0;
        for (size_t i = 0; i < c; i++)
            in[i] = b_exact(x[n * c + i]);
        twin_probabilities(t, in, prob);
        bounded_t sum = twin_choose(t, prob, taken);
        for (size_t e = 0; e < experts; e++) {
            share[e][n] = prob[e];
            if (!taken[e])
                continue;
            times[e]++;
            twin_expert(t, e, in, row);
            bounded_t w =
                t->config->norm_topk_prob ? b_div(prob[e], sum) : prob[e];
            for (size_t i = 0; i < c; i++)
                term[i][k] = b_mul(row[i], w);
            k++;
        }
        for (size_t i = 0; i < c; i++)
            y[n * c + i] = b_sum(term[i], k);
    }
    bounded_t aux[TWIN_MOE_EXPERTS], many = b_exact((double)tokens);
    for (size_t e = 0; e < experts; e++)
        aux[e] = b_mul(b_div(b_exact(times[e]), many),
                       b_div(b_sum(share[e], tokens), many));
    return b_mul(b_exact(t->config->router_aux_loss_coef),
                 b_mul(b_exact((double)experts), b_sum(aux, experts)));
}

#endif
