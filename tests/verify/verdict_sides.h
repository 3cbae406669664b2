/** \file verdict_sides.h  Two small traces by hand, and what is said of them. */
#ifndef VERDICT_SIDES_H
#define VERDICT_SIDES_H

#include "fsdp/verdict.h"
#include "hand_trace.h"

/** The tensors of one side. */
typedef struct side {
    const char *folder, *settings, *name;
    const char *own; /* settings of the parameter */
    int world;
    hand_tensor_t tensor[24];
    char key[24][96];
    int rank[24];
    long step[24];
    int count;
} side_t;

/** Of `world` ranks; one micro-batch, SGD, a parameter w [4]. */
side_t side(const char *folder, int world);
/** Four values of one rank. */
void side_add(side_t *s, long step, int rank, const char *phase,
              const char *micro, const float values[4]);
/** The same in all elements, on rank 0. */
void side_add_all(side_t *s, long step, const char *phase, const char *micro,
                  float value);
/** The input of a micro-batch of step 1, [2,2] or [4,2]. */
void side_add_input(side_t *s, int rank, int micro, const float *values,
                    int numel);

/** The verdict on theirs; the caller destroys it.  `rename`: a file of names, or
 *  NULL. */
fsdp_status_t judge(const side_t *ours, const side_t *theirs,
                    const char *rename, fsdp_verdict_t **verdict);
/** That the verdict is `kind`, and first wrong (if it is) the phase. */
void expect_named(const side_t *ours, const side_t *theirs, const char *rename,
                  fsdp_verdict_kind_t kind, const char *phase,
                  uint64_t element);
void expect(const side_t *ours, const side_t *theirs, fsdp_verdict_kind_t kind,
            const char *phase);

#endif
