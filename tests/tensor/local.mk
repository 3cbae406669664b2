## Suites of src/tensor, one word each: a suite %D%/test_x is built from
## %D%/test_x.c alone.  See tests/local.mk.
suites += \
    %D%/test_attention \
    %D%/test_attention_bits \
    %D%/test_attention_twin \
    %D%/test_convert \
    %D%/test_dropout \
    %D%/test_elementwise \
    %D%/test_gemm \
    %D%/test_grouped_attention \
    %D%/test_layer_norm \
    %D%/test_losses \
    %D%/test_optimizers \
    %D%/test_refusals \
    %D%/test_rms_norm \
    %D%/test_rotary \
    %D%/test_rows \
    %D%/test_tensor \
    %D%/test_threads

EXTRA_DIST += \
    tests/twin/bounded.h \
    tests/twin/cross_entropy.h \
    tests/twin/gelu.h \
    tests/twin/gemm.h \
    tests/twin/grouped.h \
    tests/twin/half.h \
    tests/twin/layer_norm.h \
    tests/twin/moe.h \
    tests/twin/numbers.h \
    tests/twin/optimizers.h \
    tests/twin/rms_norm.h \
    tests/twin/rotary.h \
    tests/twin/silu.h

attention_case = \
    %D%/attention_case.c %D%/attention_case.h \
    tests/twin/attention.c tests/twin/attention.h \
    tests/twin/attention_bound.c
%C%_test_attention_SOURCES = %D%/test_attention.c $(attention_case)
%C%_test_attention_bits_SOURCES = %D%/test_attention_bits.c $(attention_case)
%C%_test_attention_twin_SOURCES = %D%/test_attention_twin.c $(attention_case)
%C%_test_grouped_attention_SOURCES = \
    %D%/test_grouped_attention.c \
    tests/twin/attention.c tests/twin/attention.h tests/twin/attention_bound.c
