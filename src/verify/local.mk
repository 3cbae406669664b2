## src/verify: sources and private headers, all of which go into the library.
libfsdp_la_SOURCES += \
    %D%/baseline.c \
    %D%/baseline_update.c \
    %D%/collect.c \
    %D%/compare.c \
    %D%/divergence.c \
    %D%/internal.h \
    %D%/mean_loss.c \
    %D%/phases.c \
    %D%/records.c \
    %D%/records.h \
    %D%/steps.c \
    %D%/term_sum.c \
    %D%/term_sum.h \
    %D%/value.h \
    %D%/verifier.c
