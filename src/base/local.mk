## src/base: sources and private headers, all of which go into the library.
libfsdp_la_SOURCES += \
    %D%/clock.c \
    %D%/dtype.c \
    %D%/exact_sum.c \
    %D%/exact_sum_array.c \
    %D%/exact_sum_round.c \
    %D%/fault.c \
    %D%/grow.c %D%/grow.h \
    %D%/half.h \
    %D%/json.c \
    %D%/json.h \
    %D%/json_put.c \
    %D%/json_string.c \
    %D%/json_writer.c %D%/json_writer.h \
    %D%/memory.c %D%/memory_count.h \
    %D%/offload.c \
    %D%/offload_file.c %D%/offload_file.h \
    %D%/offload_pieces.c \
    %D%/philox.h \
    %D%/pool.c \
    %D%/pool.h \
    %D%/random.c \
    %D%/status.c \
    %D%/vmath.h \
    %D%/vmath_f32.h \
    %D%/vmath_f64.h \
    %D%/whole_file.c %D%/whole_file.h
