/** \file fsdp.h  Everything of libfsdp, lowest floor first. */
#ifndef FSDP_H
#define FSDP_H

/* Floor 0, base */
#include "fsdp/clock.h"
#include "fsdp/dtype.h"
#include "fsdp/exact_sum.h"
#include "fsdp/fault.h"
#include "fsdp/memory.h"
#include "fsdp/offload.h"
#include "fsdp/random.h"
#include "fsdp/status.h"
/* Floor 1, tensor and comm */
#include "fsdp/comm.h"
#include "fsdp/mesh.h"
#include "fsdp/tensor.h"
/* Floor 2, nn */
#include "fsdp/activation_checkpoint.h"
#include "fsdp/gpt2.h"
#include "fsdp/layers.h"
#include "fsdp/llama.h"
#include "fsdp/mlp.h"
#include "fsdp/module.h"
#include "fsdp/moe.h"
#include "fsdp/ops.h"
#include "fsdp/parameter.h"
#include "fsdp/tape.h"
#include "fsdp/tensor_parallel.h"
/* Floor 3, fsdp: the subject */
#include "fsdp/events.h"
#include "fsdp/fsdp_module.h"
#include "fsdp/fully_shard.h"
#include "fsdp/fully_sharded_data_parallel.h"
#include "fsdp/layout.h"
#include "fsdp/local.h"
#include "fsdp/wrap.h"
#include "fsdp/zero.h"
/* Floor 4, optim and data */
#include "fsdp/data.h"
#include "fsdp/grad_scaler.h"
#include "fsdp/optim.h"
#include "fsdp/tokenizer.h"
/* Floor 5, checkpoint */
#include "fsdp/checkpoint.h"
#include "fsdp/model_file.h"
#include "fsdp/safetensors.h"
/* Floor 6, verify */
#include "fsdp/trace.h"
#include "fsdp/verdict.h"
#include "fsdp/verify.h"

#endif
