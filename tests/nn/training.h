/** \file training.h  A golden training run, done again without shards.
 *
 *  Everything that a run computes stands one after another in one vector, the
 *  trajectory: for each step the losses of the micro-batches, the gradients,
 *  their norm, the parameters and the optimizer's state afterwards.
 */
#ifndef TESTS_NN_TRAINING_H
#define TESTS_NN_TRAINING_H

#include "fsdp/module.h"
#include "nn/golden.h"

enum { TRAINING_MAX_PARAMETERS = 64, TRAINING_MAX_SEGMENTS = 1024 };

/** A part of a trajectory: one tensor of one step. */
typedef struct training_segment {
    char *name; /**< its golden name, "step1.grad.layers.0.bias"; owned */
    size_t begin, count;
} training_segment_t;

typedef struct training {
    fsdp_safetensors_t *golden;
    bool adamw;
    fsdp_module_t *module;
    fsdp_tensor_t *(*loss)(fsdp_tape_t *tape, fsdp_module_t *module,
                           fsdp_tensor_t *x, fsdp_tensor_t *target);
    fsdp_parameter_t *parameter[TRAINING_MAX_PARAMETERS];
    double *init[TRAINING_MAX_PARAMETERS]; /**< owned; may be changed */
    double *state[TRAINING_MAX_PARAMETERS][2];
    size_t count;
    double grad_noise; /**< added to each gradient, times its largest entry */
    training_segment_t segment[TRAINING_MAX_SEGMENTS];
    size_t num_segments, length;
} training_t;

/** "mlp_sgd", "gpt2_adamw", ... */
training_t *training_open(const char *file);
void training_close(training_t *t);
/** Three steps from `init`; the caller frees the trajectory. */
double *training_run(training_t *t);
/** PyTorch's trajectory. */
double *training_golden(const training_t *t);

#endif
