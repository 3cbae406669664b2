## src/verify: sources and private headers, all of which go into the library.
libfsdp_la_SOURCES += \
    %D%/averaging.c %D%/averaging.h \
    %D%/baseline.c \
    %D%/baseline_bound.c \
    %D%/baseline_precision.c \
    %D%/baseline_reduce.c \
    %D%/baseline_ring.c \
    %D%/baseline_scaler.c \
    %D%/baseline_update.c \
    %D%/collect.c \
    %D%/compare.c \
    %D%/divergence.c \
    %D%/internal.h \
    %D%/mean_loss.c \
    %D%/micro_batches.c \
    %D%/parts.c \
    %D%/phases.c \
    %D%/records.c \
    %D%/records.h \
    %D%/steps.c \
    %D%/term_sum.c \
    %D%/term_sum.h \
    %D%/trace/about.c \
    %D%/trace/about_write.c \
    %D%/trace/internal.h \
    %D%/trace/join.c \
    %D%/trace/names.c \
    %D%/trace/open.c \
    %D%/trace/order.c \
    %D%/trace/rank.c \
    %D%/trace/read.c \
    %D%/trace/recorder.c \
    %D%/trace/recorder.h \
    %D%/trace/recorder_hooks.c \
    %D%/trace/recorder_step.c \
    %D%/trace/replay.h \
    %D%/trace/writer.c \
    %D%/trace/writer.h \
    %D%/value.h \
    %D%/verifier.c
