## src/nn: sources and private headers, all of which go into the library.
libfsdp_la_SOURCES += \
    %D%/activation_checkpoint.c \
    %D%/backward.c \
    %D%/dropout_key.h \
    %D%/gpt2.c %D%/gpt2_internal.h \
    %D%/gpt2_block.c \
    %D%/head_operator.c %D%/head_operator.h \
    %D%/layers.c \
    %D%/llama.c %D%/llama_internal.h \
    %D%/llama_block.c \
    %D%/llama_rotary.c \
    %D%/lm_head.c %D%/lm_head.h \
    %D%/mlp.c \
    %D%/module.c \
    %D%/moe.c \
    %D%/ops_activation.c \
    %D%/ops_arithmetic.c \
    %D%/ops_attention.c \
    %D%/ops_common.c \
    %D%/ops_dispatch.c \
    %D%/ops_dropout.c \
    %D%/ops_embedding.c \
    %D%/ops_exchange.c \
    %D%/ops_grouped_attention.c \
    %D%/ops_grouped_linear.c \
    %D%/ops_head.c \
    %D%/ops_internal.h \
    %D%/ops_linear.c \
    %D%/ops_loss.c \
    %D%/ops_multiply.c \
    %D%/ops_norm.c \
    %D%/ops_parallel.h \
    %D%/ops_ranks.c \
    %D%/ops_rms_norm.c \
    %D%/ops_route.c \
    %D%/ops_rotary.c \
    %D%/ops_vocab_embedding.c \
    %D%/ops_vocab_head.c \
    %D%/ops_wide.c \
    %D%/parallel_layers.c %D%/parallel_layers.h \
    %D%/parameter.c \
    %D%/parts.c %D%/parts.h \
    %D%/region.c \
    %D%/tape.c %D%/tape_internal.h \
    %D%/tensor_parallel.c \
    %D%/vocab_head.c %D%/vocab_head.h
