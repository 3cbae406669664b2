#include "twin/attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double
twin_dot(const double *x, const double *y, size_t depth)
{
    double sum = 0;
    for (size_t d = 0; d < depth; d++)
        sum += x[d] * y[d];
    return sum;
}

double
twin_dot_abs(const double *x, const double *y, size_t depth)
{
    double sum = 0;
    for (size_t d = 0; d < depth; d++)
        sum += fabs(x[d] * y[d]);
    return sum;
}

twin_head_t
twin_attention_head(const twin_attention_t *a, size_t sample, size_t head)
{
    size_t depth = a->channels / a->heads, tokens = sample * a->positions;
    size_t index = sample * a->heads + head;
    twin_head_t h = {
        .positions = a->positions,
        .depth = depth,
        .row = 3 * a->channels,
        .out_row = a->channels,
        .qkv_at = tokens * 3 * a->channels + head * depth,
        .out_at = tokens * a->channels + head * depth,
        .lse_at = index * a->positions,
        .scale = 1 / sqrt((double)depth),
    };
    h.q = a->qkv + h.qkv_at;
    h.k = h.q + a->channels;
    h.v = h.k + a->channels;
    if (a->factor != NULL)
        h.factor = a->factor + index * a->positions * a->positions;
    return h;
}

double
twin_attention_row(const twin_head_t *head, size_t i, double *scores,
                   double *probabilities)
{
    double max = -INFINITY, sum = 0;
    for (size_t j = 0; j <= i; j++) {
        scores[j] =
            head->scale * twin_dot(head->q + i * head->row,
                                   head->k + j * head->row, head->depth);
        max = fmax(max, scores[j]);
    }
    for (size_t j = 0; j <= i; j++)
        sum += probabilities[j] = exp(scores[j] - max);
    for (size_t j = 0; j <= i; j++)
        probabilities[j] /= sum;
    return max + log(sum);
}

static double
factor_at(const twin_head_t *head, size_t i, size_t j)
{
    return head->factor == NULL ? 1 : head->factor[i * head->positions + j];
}

static void
forward_head(const twin_head_t *head, double *out, double *lse)
{
    double *scores = malloc(2 * head->positions * sizeof *scores);
    double *p = scores + head->positions;
    for (size_t i = 0; i < head->positions; i++) {
        lse[i] = twin_attention_row(head, i, scores, p);
        for (size_t d = 0; d < head->depth; d++) {
            double sum = 0;
            for (size_t j = 0; j <= i; j++)
                sum +=
                    p[j] * factor_at(head, i, j) * head->v[j * head->row + d];
            out[i * head->out_row + d] = sum;
        }
    }
    free(scores);
}

void
twin_attention_forward(const twin_attention_t *a, double *out, double *lse)
{
    for (size_t b = 0; b < a->batch; b++)
        for (size_t h = 0; h < a->heads; h++) {
            twin_head_t head = twin_attention_head(a, b, h);
            forward_head(&head, out + head.out_at, lse + head.lse_at);
        }
}

/* dq, dk, dv += what row i adds.  The softmax's Jacobian is written out:
 * dS_ij = P_ij (dP_ij - sum over k of P_ik dP_ik). */
static void
backward_row(const twin_head_t *head, size_t i, const double *p,
             const double *dout, double *dp, double *dq, double *dk, double *dv)
{
    double mean = 0;
    for (size_t j = 0; j <= i; j++) {
        dp[j] = factor_at(head, i, j) *
                twin_dot(dout, head->v + j * head->row, head->depth);
        mean += p[j] * dp[j];
    }
    for (size_t j = 0; j <= i; j++) {
        double ds = p[j] * (dp[j] - mean) * head->scale;
        double kept = p[j] * factor_at(head, i, j);
        for (size_t d = 0; d < head->depth; d++) {
            dq[i * head->row + d] += ds * head->k[j * head->row + d];
            dk[j * head->row + d] += ds * head->q[i * head->row + d];
            dv[j * head->row + d] += kept * dout[d];
        }
    }
}

void
twin_attention_backward(const twin_attention_t *a, const double *dout,
                        double *dqkv)
{
    size_t positions = a->positions;
    double *row = malloc(3 * positions * sizeof *row);
    memset(dqkv, 0, a->batch * positions * 3 * a->channels * sizeof *dqkv);
    for (size_t b = 0; b < a->batch; b++)
        for (size_t h = 0; h < a->heads; h++) {
            twin_head_t head = twin_attention_head(a, b, h);
            double *dq = dqkv + head.qkv_at;
            for (size_t i = 0; i < positions; i++) {
                twin_attention_row(&head, i, row, row + positions);
                backward_row(&head, i, row + positions,
                             dout + head.out_at + i * head.out_row,
                             row + 2 * positions, dq, dq + a->channels,
                             dq + 2 * a->channels);
            }
        }
    free(row);
}
