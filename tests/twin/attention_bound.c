/* The bounds of rounding errors in attention, from the standard model
 * fl(x op y) = (x op y)(1 + t), |t| <= u (Higham, "Accuracy and Stability of
 * Numerical Algorithms", sections 2.2 and 3.1), plus half the smallest
 * subnormal where a result underflows; g(n) = n u / (1 - n u).  Sums of n terms
 * in any order: g(n - 1).  Letters as in attention.h; ^ marks computed values,
 * f the factor of dropout.
 *
 * Scores.  scale is rounded thrice (a root, a quotient, to the type), then q is
 * multiplied by it, then D products are added: |S^ - S| <= e_ij with
 *     e_ij = g(D + 4) scale sum over d of |q_id k_jd|.
 *
 * Exponentials.  A function within 2 ULP of correctly rounded is off by 2.5 ULP,
 * at most 5 u of its value.  With the row's largest score m known online, tile
 * by tile, exp(S - m) is the product of one exponential and of one `keep` a
 * later tile; their arguments' roundings add up to u (m - S), since arguments
 * of one sign do, and there are t tiles with one exponential and one product
 * each.  So the computed value is exp(S - m) exp(y), |y| <= w_ij,
 *     w_ij = e_ij + u (m_i - S_ij + e_ij + max over k of e_ik) + g(6 t).
 *
 * Forward.  The sum of exponentials is that of exp(S - m) times a number between
 *     low = sum of P exp(-w) and high = sum of P exp(w)
 * and times a sum's 1 + g(a): a term is added at most a = min(i + 1, tile) + t
 * times, as a tile is added up by itself.  An output's sum has the same a
 * additions, and f (rounded thrice) and its product, the product with v, the
 * reciprocal and the product with it, 7 more.  So P^ f^ v is P f v times a
 * number between exp(-w)/high (1 - g) and exp(w)/low (1 + g), g = g(2 a + 7).
 *
 * Backward.  P^ = exp(S^ - lse^) has w_ij = e_ij + lse_error + u (|S - lse| +
 * e_ij + lse_error) + g(5).  dP = f (dout v) is off by
 *     ed = f (g(D) + g(4)(1 + g(D))) sum |dout v|,
 * Delta, the sum of dout out, by
 *     ex = sum |dout| (out_error + g(D)(out_abs + out_error)),
 * out_abs = sum of |P f v| (or of P dP: out_error has the errors of P),
 * and dS = P (dP - Delta) by
 *     es = P r (ed + ex) + P (r - 1) |dP - Delta|, r = exp(w)(1 + g(2)).
 * dQ, dK and dV are sums of dS k, dS q and P f dout with a' = min(T, tile) + t
 * additions and 5 other roundings a term; where several heads add to the same dK
 * and dV, a term of one head takes part in `more` additions besides. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "twin/attention.h"

static double
g(const twin_arithmetic_t *arithmetic, size_t n)
{
    double nu = (double)n * arithmetic->unit;
    return nu / (1 - nu);
}

static double
largest(double x, double y)
{
    return x > y ? x : y;
}

/* A head, and rows of T numbers to work in. */
typedef struct work {
    const twin_arithmetic_t *arithmetic;
    twin_head_t head;
    double *scores, *p, *e, *w;
} work_t;

static size_t
tiles(const work_t *o, size_t keys)
{
    return (keys + o->arithmetic->tile - 1) / o->arithmetic->tile;
}

/* Additions that a term of a sum over `keys` keys takes part in. */
static size_t
additions(const work_t *o, size_t keys)
{
    size_t tile = o->arithmetic->tile;
    return (keys < tile ? keys : tile) + tiles(o, keys);
}

static double
factor_at(const work_t *o, size_t i, size_t j)
{
    const twin_head_t *head = &o->head;
    return head->factor == NULL ? 1 : head->factor[i * head->positions + j];
}

/* What underflows may add to a sum of n terms, each a product of a few numbers
 * of which none but `largest_factor` is above 1. */
static double
underflow(const work_t *o, size_t n, double largest_factor)
{
    return o->arithmetic->tiny * (double)(8 * (n + tiles(o, n))) *
           (1 + largest_factor);
}

/* Fills scores, p and e of row i; returns its lse. */
static double
score_row(work_t *o, size_t i)
{
    const twin_head_t *head = &o->head;
    double lse = twin_attention_row(head, i, o->scores, o->p);
    for (size_t j = 0; j <= i; j++)
        o->e[j] = g(o->arithmetic, head->depth + 4) * head->scale *
                      twin_dot_abs(head->q + i * head->row,
                                   head->k + j * head->row, head->depth) +
                  (double)head->depth * o->arithmetic->tiny;
    return lse;
}

typedef struct range {
    double low, high, max, max_error;
} range_t;

/* Fills w of row i for the forward. */
static range_t
forward_row(work_t *o, size_t i)
{
    double u = o->arithmetic->unit;
    range_t r = {.max = -INFINITY};
    for (size_t j = 0; j <= i; j++) {
        r.max = largest(r.max, o->scores[j]);
        r.max_error = largest(r.max_error, o->e[j]);
    }
    for (size_t j = 0; j <= i; j++) {
        o->w[j] = o->e[j] + u * (r.max - o->scores[j] + o->e[j] + r.max_error) +
                  g(o->arithmetic, 6 * tiles(o, i + 1));
        r.low += o->p[j] * exp(-o->w[j]);
        r.high += o->p[j] * exp(o->w[j]);
    }
    return r;
}

static double
out_bound(const work_t *o, size_t i, size_t d, const range_t *r)
{
    const twin_head_t *head = &o->head;
    double error = g(o->arithmetic, 2 * additions(o, i + 1) + 7);
    double sum = 0, most = 0;
    for (size_t j = 0; j <= i; j++) {
        double up = exp(o->w[j]) / r->low * (1 + error) - 1;
        double down = 1 - exp(-o->w[j]) / r->high * (1 - error);
        double v = factor_at(o, i, j) * fabs(head->v[j * head->row + d]);
        sum += o->p[j] * v * largest(up, down);
        most = largest(most, v);
    }
    return sum + underflow(o, i + 1, most);
}

/* lse = m + log(sum): the error of the sum, of the logarithm, of the addition */
static double
lse_bound(const work_t *o, size_t i, const range_t *r)
{
    double u = o->arithmetic->unit;
    double sum_error = largest(log(r->high), -log(r->low)) +
                       -log1p(-g(o->arithmetic, additions(o, i + 1)));
    double logarithm = log((double)(i + 1)) + sum_error;
    double max = fabs(r->max) + r->max_error;
    return sum_error + 5 * u * logarithm + u * (max + (1 + 5 * u) * logarithm);
}

static work_t
work_create(const twin_attention_t *a, const twin_arithmetic_t *arithmetic)
{
    double *rows = malloc(4 * a->positions * sizeof *rows);
    return (work_t){.arithmetic = arithmetic,
                    .scores = rows,
                    .p = rows + a->positions,
                    .e = rows + 2 * a->positions,
                    .w = rows + 3 * a->positions};
}

void
twin_attention_forward_bound(const twin_attention_t *a,
                             const twin_arithmetic_t *arithmetic,
                             double *out_bounds, double *lse_bounds)
{
    work_t o = work_create(a, arithmetic);
    for (size_t b = 0; b < a->batch; b++)
        for (size_t h = 0; h < a->heads; h++) {
            o.head = twin_attention_head(a, b, h);
            for (size_t i = 0; i < a->positions; i++) {
                double *out = out_bounds + o.head.out_at + i * o.head.out_row;
                score_row(&o, i);
                range_t r = forward_row(&o, i);
                lse_bounds[o.head.lse_at + i] = lse_bound(&o, i, &r);
                for (size_t d = 0; d < o.head.depth; d++)
                    out[d] = out_bound(&o, i, d, &r);
            }
        }
    free(o.scores);
}

/* What is known of query i in the backward. */
typedef struct query {
    const double *dout;
    double delta, delta_error; /* the sum of P dP */
    double lse, lse_error;
} query_t;

/* sum of P dP, which is the sum of dout out, of row i, and its error. */
static void
delta_of(const work_t *o, size_t i, const double *out_error, query_t *query)
{
    const twin_head_t *head = &o->head;
    double error = g(o->arithmetic, head->depth);
    for (size_t d = 0; d < head->depth; d++) {
        double out = 0, out_abs = 0, dout = query->dout[d];
        for (size_t j = 0; j <= i; j++) {
            double v = factor_at(o, i, j) * head->v[j * head->row + d];
            out += o->p[j] * v;
            out_abs += o->p[j] * fabs(v);
        }
        query->delta += dout * out;
        query->delta_error +=
            fabs(dout) * (out_error[d] + error * (out_abs + out_error[d]));
    }
    query->delta_error += underflow(o, head->depth, 0);
}

/* What entry (i, j) may add to the errors of dq_i, dk_j and dv_j. */
static void
add_entry(const work_t *o, size_t i, size_t j, const query_t *query, double *dq,
          double *dk, double *dv)
{
    const twin_head_t *head = &o->head;
    const twin_arithmetic_t *t = o->arithmetic;
    const double *q = head->q + i * head->row, *k = head->k + j * head->row;
    const double *v = head->v + j * head->row;
    double p = o->p[j], f = factor_at(o, i, j);
    double distance = fabs(o->scores[j] - query->lse);
    double w = o->e[j] + query->lse_error +
               t->unit * (distance + o->e[j] + query->lse_error) + g(t, 5);
    size_t terms = additions(o, head->positions) + t->more + 5;
    double gd = g(t, head->depth), sums = g(t, terms);

    double dp = f * twin_dot(query->dout, v, head->depth);
    double dp_error = f * (gd + g(t, 4) * (1 + gd)) *
                      twin_dot_abs(query->dout, v, head->depth);
    double r = exp(w) * (1 + g(t, 2)), difference = fabs(dp - query->delta);
    double ds = p * difference;
    double ds_error = p * r * (dp_error + query->delta_error) + ds * (r - 1) +
                      t->tiny * 8 * (1 + f + difference);

    double ds_all = ds_error + sums * (ds + ds_error);
    double pf_all = p * f * (exp(w) * (1 + sums) - 1) + t->tiny * 8 * (1 + f);
    for (size_t d = 0; d < head->depth; d++) {
        dq[d] += head->scale * ds_all * fabs(k[d]) + t->tiny * 8;
        dk[d] += head->scale * ds_all * fabs(q[d]) + t->tiny * 8;
        dv[d] += pf_all * fabs(query->dout[d]) + t->tiny * 8;
    }
}

void
twin_attention_backward_bound(const twin_attention_t *a,
                              const twin_arithmetic_t *arithmetic,
                              const double *dout, const double *out_error,
                              const double *lse_error, double *dqkv_bound)
{
    work_t o = work_create(a, arithmetic);
    memset(dqkv_bound, 0,
           a->batch * a->positions * 3 * a->channels * sizeof *dqkv_bound);
    for (size_t b = 0; b < a->batch; b++)
        for (size_t h = 0; h < a->heads; h++) {
            o.head = twin_attention_head(a, b, h);
            for (size_t i = 0; i < a->positions; i++) {
                size_t row = o.head.out_at + i * o.head.out_row;
                double *dq = dqkv_bound + o.head.qkv_at;
                query_t query = {.dout = dout + row,
                                 .lse = score_row(&o, i),
                                 .lse_error = lse_error[o.head.lse_at + i]};
                delta_of(&o, i, out_error + row, &query);
                for (size_t j = 0; j <= i; j++)
                    add_entry(&o, i, j, &query, dq + i * o.head.row,
                              dq + a->channels + j * o.head.row,
                              dq + 2 * a->channels + j * o.head.row);
            }
        }
    free(o.scores);
}
