/** \file vocab_head.h  Floor 2, nn: a head whose classes are cut over ranks.
 *
 *  ops_vocab_head.c says what is computed; here is what one part does, and what
 *  the parts do together.
 */
#ifndef FSDP_NN_VOCAB_HEAD_H
#define FSDP_NN_VOCAB_HEAD_H

#include "nn/head_operator.h"
#include "nn/ops_parallel.h"

/* One rank's classes. */
typedef struct fsdp_head_part {
    size_t first;       /* class */
    const char *weight; /* [V/T,C] */
    char *dweight;      /* [V/T,C] or NULL */
    void *dx;           /* [N,C] of x's type, this part's term; or NULL */
    void *logits;       /* [rows of a chunk,V/T] */
    void *max, *stats;  /* [rows of the chunk]; [2][same]: sum, hit */
} fsdp_head_part_t;

typedef struct fsdp_vocab_head {
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
    fsdp_head_part_t *part;
} fsdp_vocab_head_t;

/** The largest logit of each of the n rows, over all parts. */
void fsdp_vocab_head_combine_max(const fsdp_vocab_head_t *head, size_t n);
/** Sums of exponentials and the targets' logits, over all parts. */
void fsdp_vocab_head_combine_stats(const fsdp_vocab_head_t *head, size_t n);
/** The sum of all parts' terms of dx. */
void fsdp_vocab_head_combine_dx(const fsdp_vocab_head_t *head,
                                fsdp_tensor_t *dx);

/** Where a part's targets' logits stand. */
void *fsdp_vocab_head_hits(const fsdp_vocab_head_t *head,
                           const fsdp_head_part_t *part, size_t n);
/** Of n rows x: their logits, and the largest in each row. */
void fsdp_vocab_head_logits(const fsdp_vocab_head_t *head,
                            const fsdp_head_part_t *part, const void *x,
                            size_t n);
/** Makes the logits of rows from `begin` on their gradient, and from that those
 *  of x and the weight. */
void fsdp_vocab_head_gradients(const fsdp_vocab_head_t *head,
                               const fsdp_head_part_t *part, const void *x,
                               size_t begin, size_t n);

#endif
