/** \file parallel_layers.h  Floor 2, nn: the forwards of layers that are cut. */
#ifndef FSDP_NN_PARALLEL_LAYERS_H
#define FSDP_NN_PARALLEL_LAYERS_H

#include "fsdp/tensor_parallel.h"

/** The config of a module that is cut. */
typedef struct fsdp_parallel_layer {
    fsdp_tensor_parallel_t tp;
    int groups;
    bool inputs; /**< row-parallel                                  */
    bool out_in; /**< Linear's storage of the weight, not Conv1D's  */
} fsdp_parallel_layer_t;

/** The forward of such a Linear or Conv1D, Embedding, LMHead. */
fsdp_values_t fsdp_parallel_linear_forward(fsdp_module_t *self,
                                           fsdp_tape_t *tape,
                                           fsdp_values_t inputs);
fsdp_values_t fsdp_parallel_embedding_forward(fsdp_module_t *self,
                                              fsdp_tape_t *tape,
                                              fsdp_values_t inputs);
fsdp_values_t fsdp_parallel_head_forward(fsdp_module_t *self, fsdp_tape_t *tape,
                                         fsdp_values_t inputs);

#endif
