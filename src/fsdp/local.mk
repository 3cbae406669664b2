## src/fsdp: sources and private headers, all of which go into the library.
libfsdp_la_SOURCES += \
    %D%/events.c \
    %D%/flat_param.c %D%/flat_param.h \
    %D%/flat_param_grad.c \
    %D%/flat_param_unshard.c \
    %D%/fsdp1_exec_order_utils.c \
    %D%/fsdp1_init_utils.c %D%/fsdp1_init_utils.h \
    %D%/fsdp1_reduce.c \
    %D%/fsdp1_runtime_utils.c \
    %D%/fsdp1_state.c %D%/fsdp1_state.h \
    %D%/fsdp1_unshard.c \
    %D%/fsdp1_unshard_param_utils.c \
    %D%/fsdp_all_gather.c \
    %D%/fsdp_collectives.h \
    %D%/fsdp_common.c %D%/fsdp_common.h \
    %D%/fsdp_divide.c \
    %D%/fsdp_faults.c %D%/fsdp_faults.h \
    %D%/fsdp_init.c %D%/fsdp_init.h \
    %D%/fsdp_module.c %D%/fsdp_module_internal.h \
    %D%/fsdp_module_values.c \
    %D%/fsdp_param.c %D%/fsdp_param.h \
    %D%/fsdp_param_group.c %D%/fsdp_param_group.h \
    %D%/fsdp_param_group_backward.c \
    %D%/fsdp_reduce.c \
    %D%/fsdp_state.c %D%/fsdp_state.h \
    %D%/fsdp_state_init.c \
    %D%/fully_shard.c \
    %D%/fully_sharded_data_parallel.c \
    %D%/grad_sum.c %D%/grad_sum.h \
    %D%/layout.c \
    %D%/local.c \
    %D%/wrap.c \
    %D%/zero.c
