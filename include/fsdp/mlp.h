/** \file mlp.h  Floor 2, nn: a multi-layer perceptron. */
#ifndef FSDP_MLP_H
#define FSDP_MLP_H

#include "fsdp/module.h"

enum { FSDP_MLP_MAX_LAYERS = 64 };

typedef enum fsdp_mlp_activation {
    FSDP_MLP_RELU,
    FSDP_MLP_GELU,     /**< with the error function */
    FSDP_MLP_GELU_TANH /**< PyTorch: approximate="tanh" */
} fsdp_mlp_activation_t;

typedef struct fsdp_mlp_config {
    int num_layers;                        /**< linear layers, at least 1     */
    size_t width[FSDP_MLP_MAX_LAYERS + 1]; /**< input, hidden ..., output     */
    fsdp_dtype_t dtype;                    /**< FSDP_DTYPE_NONE: float32      */
    uint64_t seed;
    fsdp_mlp_activation_t activation; /**< ReLU by default                    */
    bool no_bias;                     /**< linear layers without a bias       */
    /** [num_layers] names of the layers, those of a torch.nn.Sequential ("0",
     *  "2", ...) for instance; NULL: see below.  Borrowed during the call. */
    const char *const *layer_name;
} fsdp_mlp_config_t;

/** Linear layers "layers.0", "layers.1", ... with the activation between; the
 *  root is called "".  Input [N, width[0]], output [N, last width]. */
fsdp_module_t *fsdp_mlp_create(const fsdp_mlp_config_t *config);
/** Layer i: a unit for fully_shard(). */
fsdp_module_t *fsdp_mlp_layer(fsdp_module_t *mlp, int i);
int fsdp_mlp_num_layers(const fsdp_module_t *mlp);
fsdp_mlp_activation_t fsdp_mlp_get_activation(const fsdp_module_t *mlp);
/** Cross-entropy of the model's output with target int32 [N]. */
fsdp_tensor_t *fsdp_mlp_loss(fsdp_tape_t *tape, fsdp_module_t *mlp,
                             fsdp_tensor_t *x, fsdp_tensor_t *target);

#endif
