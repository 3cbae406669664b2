## src/tensor: sources and private headers, all of which go into the library.
libfsdp_la_SOURCES += \
    %D%/blas.c %D%/blas.h \
    %D%/clones.h \
    %D%/convert.c \
    %D%/dropout_words.c %D%/dropout_words.h \
    %D%/element.c \
    %D%/half_optimizers.c %D%/half_optimizers.h \
    %D%/kernels.c %D%/kernels.h \
    %D%/take_rows.c %D%/take_rows.h \
    %D%/tensor.c \
    %D%/vector.c %D%/vector.h \
    %D%/threads/blocks.h \
    %D%/threads/parallel.c %D%/threads/parallel.h

## Every file of kernels/ is compiled twice: for float, and with
## FSDP_REAL_IS_DOUBLE defined for double.
FSDP_KERNEL_SOURCES = \
    %D%/kernels/attention.c \
    %D%/kernels/attention_backward.c \
    %D%/kernels/attention_dropout.c \
    %D%/kernels/attention_tile.c \
    %D%/kernels/attention_tile.h \
    %D%/kernels/cross_entropy.c \
    %D%/kernels/dropout.c \
    %D%/kernels/elementwise.c \
    %D%/kernels/embedding.c \
    %D%/kernels/entries.h \
    %D%/kernels/gelu.c \
    %D%/kernels/gemm.c \
    %D%/kernels/lanes.h \
    %D%/kernels/layer_norm.c \
    %D%/kernels/optimizers.c \
    %D%/kernels/partial_cross_entropy.c \
    %D%/kernels/real.h \
    %D%/kernels/rms_norm.c \
    %D%/kernels/rotary.c \
    %D%/kernels/rows.c \
    %D%/kernels/silu.c \
    %D%/kernels/softmax_row.h \
    %D%/kernels/sums.c \
    %D%/kernels/table.c

noinst_LTLIBRARIES += libfsdp_kernels_f32.la libfsdp_kernels_f64.la
libfsdp_kernels_f32_la_SOURCES  = $(FSDP_KERNEL_SOURCES)
libfsdp_kernels_f32_la_CPPFLAGS = $(AM_CPPFLAGS)
libfsdp_kernels_f64_la_SOURCES  = $(FSDP_KERNEL_SOURCES)
libfsdp_kernels_f64_la_CPPFLAGS = $(AM_CPPFLAGS) -DFSDP_REAL_IS_DOUBLE
libfsdp_la_LIBADD += libfsdp_kernels_f32.la libfsdp_kernels_f64.la
