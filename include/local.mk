## The public headers.  tests/check-floors.sh complains of one left out.
include_HEADERS = %D%/fsdp.h
fsdpincludedir  = $(includedir)/fsdp
fsdpinclude_HEADERS = \
    %D%/fsdp/activation_checkpoint.h \
    %D%/fsdp/checkpoint.h \
    %D%/fsdp/clock.h \
    %D%/fsdp/comm.h \
    %D%/fsdp/data.h \
    %D%/fsdp/dtype.h \
    %D%/fsdp/events.h \
    %D%/fsdp/exact_sum.h \
    %D%/fsdp/fault.h \
    %D%/fsdp/fsdp_module.h \
    %D%/fsdp/fully_shard.h \
    %D%/fsdp/fully_sharded_data_parallel.h \
    %D%/fsdp/gpt2.h \
    %D%/fsdp/grad_scaler.h \
    %D%/fsdp/layers.h \
    %D%/fsdp/layout.h \
    %D%/fsdp/llama.h \
    %D%/fsdp/local.h \
    %D%/fsdp/memory.h \
    %D%/fsdp/mesh.h \
    %D%/fsdp/mlp.h \
    %D%/fsdp/model_file.h \
    %D%/fsdp/module.h \
    %D%/fsdp/moe.h \
    %D%/fsdp/offload.h \
    %D%/fsdp/ops.h \
    %D%/fsdp/optim.h \
    %D%/fsdp/parameter.h \
    %D%/fsdp/random.h \
    %D%/fsdp/safetensors.h \
    %D%/fsdp/status.h \
    %D%/fsdp/tape.h \
    %D%/fsdp/tensor.h \
    %D%/fsdp/tensor_parallel.h \
    %D%/fsdp/tokenizer.h \
    %D%/fsdp/trace.h \
    %D%/fsdp/verdict.h \
    %D%/fsdp/verify.h \
    %D%/fsdp/wrap.h \
    %D%/fsdp/zero.h
