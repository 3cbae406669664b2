/** \file other_model.h  Floor 6, verify: a replay's model with one thing changed. */
#ifndef FSDP_VERIFY_TRACE_OTHER_MODEL_H
#define FSDP_VERIFY_TRACE_OTHER_MODEL_H

#include "verify/trace/model.h"
#include "verify/trace/replay.h"

/** Before the model is made. */
void other_model_configure(const fsdp_replay_change_t *change,
                           trace_model_t *model);
/** The model itself, with its values. */
void other_model_rebuild(const fsdp_replay_change_t *change,
                         const trace_model_t *model, fsdp_module_t *module);

#endif
