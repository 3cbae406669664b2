/** \file model.h  Floor 6, verify: the model that a trace was made with. */
#ifndef FSDP_VERIFY_TRACE_MODEL_H
#define FSDP_VERIFY_TRACE_MODEL_H

#include "fsdp/gpt2.h"
#include "fsdp/llama.h"
#include "fsdp/mlp.h"
#include "fsdp/trace.h"

typedef enum trace_model_kind {
    TRACE_MODEL_GPT2,
    TRACE_MODEL_LLAMA,
    TRACE_MODEL_MLP
} trace_model_kind_t;

typedef struct trace_model {
    trace_model_kind_t kind;
    fsdp_gpt2_config_t gpt2; /**< the one of the kind */
    fsdp_llama_config_t llama;
    fsdp_mlp_config_t mlp;
    char *layer_name[FSDP_MLP_MAX_LAYERS];  /**< owned; of the mlp            */
    const char *names[FSDP_MLP_MAX_LAYERS]; /**< the same, for the config    */
} trace_model_t;

/** Reads trace.json's "model" (`meant`'s, if that is not NULL and names one), with
 *  names from its "parameters"; sizes that are
 *  larger than the trace's own tensors bear out are refused. To be freed, also
 *  after an error.  (`model` must stay where it is: the mlp's configuration
 *  points into it.) */
fsdp_status_t trace_model_read(const fsdp_trace_t *trace,
                               const fsdp_trace_about_t *meant,
                               fsdp_dtype_t dtype, trace_model_t *model);
void trace_model_free(trace_model_t *model);
/** A new model without values. */
fsdp_module_t *trace_model_create(const trace_model_t *model);

#endif
