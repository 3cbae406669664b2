/** \file parallel_case.h  Models to be cut over ranks, and what they must give. */
#ifndef TESTS_NN_PARALLEL_CASE_H
#define TESTS_NN_PARALLEL_CASE_H

#include "fsdp/tensor_parallel.h"

typedef enum case_model {
    CASE_MLP,       /**< an odd number of layers: the last stays whole */
    CASE_GPT2,      /**< with dropout                                  */
    CASE_GPT2_TIED, /**< without                                       */
    CASE_LLAMA,
    CASE_MODELS
} case_model_t;

/** A model whose sizes T divides, as fsdp_*_create() makes it. */
fsdp_module_t *case_create(case_model_t model, int t, fsdp_dtype_t dtype);
/** Its fsdp_tensor_parallel_*(). */
fsdp_status_t case_parallelize(case_model_t model, fsdp_module_t *module,
                               const fsdp_tensor_parallel_t *tp);
/** Forward and backward of a batch that is made of `salt`; the loss. */
double case_run(case_model_t model, fsdp_module_t *module, int t,
                uint32_t salt);

/** Are the bits of `part` [numel of the parameter] those that `whole`, the
 *  larger tensor, has there? */
bool case_part_is(const fsdp_parameter_t *parameter, const void *part,
                  const void *whole);
/** For each parameter of `mine`: are its gradient and its data that part of the
 *  ones of the same name in `whole`?  False too if there is no gradient. */
bool case_grads_agree(fsdp_module_t *mine, fsdp_module_t *whole);
bool case_data_agree(fsdp_module_t *mine, fsdp_module_t *whole);
/** data -= grad / 8, and the gradients go. */
void case_update(fsdp_module_t *module);

#endif
