/** \file nn_case.h  An operator with numbers to run it on.
 *
 *  Values, outputs and gradients are kept as doubles; a run converts them to the
 *  type under test.  What is differentiated is sum(upstream out).
 */
#ifndef TESTS_NN_CASE_H
#define TESTS_NN_CASE_H

#include "fsdp/ops.h"

enum { NN_MAX_ARRAYS = 3 };

/** An input or a parameter of an operator. */
typedef struct nn_array {
    const char *name;
    bool parameter;
    int ndim;
    size_t shape[FSDP_MAX_DIMS];
    double *value, *grad; /**< owned */
} nn_array_t;

/** What an operator is called with: one of the two. */
typedef struct nn_slot {
    fsdp_tensor_t *x;
    fsdp_parameter_t *p;
} nn_slot_t;

typedef struct nn_case nn_case_t;

struct nn_case {
    const char *name;
    fsdp_tensor_t *(*build)(const nn_case_t *c, fsdp_tape_t *tape,
                            const nn_slot_t *slot, fsdp_tensor_t *integers);
    nn_array_t array[NN_MAX_ARRAYS]; /**< those with a name */
    const char *integers_name;       /**< NULL: no index, no targets */
    int integers_ndim;
    size_t integers_shape[FSDP_MAX_DIMS];
    int32_t integers[16];
    double keep_away; /**< least distance of the values of random inputs to 0 */
    size_t out_numel;
    double *out, *upstream; /**< owned */
};

/** Every operator of fsdp/ops.h, the shapes and integers small.  Those with a
 *  golden case have its name and its arrays' names; the last entry has no name.
 *  Arrays have no storage yet. */
extern const nn_case_t nn_operators[];

int nn_case_arrays(const nn_case_t *c);
size_t nn_array_numel(const nn_array_t *a);
/** Storage for the arrays, filled with random numbers (multiples of 2^-23). */
void nn_case_randomize(nn_case_t *c, uint32_t seed);
/** Runs it forward, fills `out`, and, if `upstream` is set, backward, and fills
 *  `grad`; returns sum(upstream out), 0 without. */
double nn_case_run(nn_case_t *c, fsdp_dtype_t dtype);
/** Random `upstream` of the size of the output. */
void nn_case_random_upstream(nn_case_t *c, uint32_t seed);
void nn_case_free(nn_case_t *c);

/** A tensor of the tape with these values; int32 likewise. */
fsdp_tensor_t *nn_tensor(fsdp_tape_t *tape, fsdp_dtype_t dtype, int ndim,
                         const size_t *shape, const double *value);
fsdp_tensor_t *nn_int32(fsdp_tape_t *tape, int ndim, const size_t *shape,
                        const int32_t *value);
/** The same as x, but its gradient is written to `grad` in the backward. */
fsdp_tensor_t *nn_probe(fsdp_tape_t *tape, fsdp_tensor_t *x, double *grad);
/** sum(weight x), a scalar; its gradient is `weight`, which must live until
 *  the backward. */
fsdp_tensor_t *nn_weighted_sum(fsdp_tape_t *tape, fsdp_tensor_t *x,
                               const double *weight);
/** Makes an unmanaged parameter whole and gives it these values. */
void nn_set_parameter(fsdp_parameter_t *parameter, const double *value);

#endif
