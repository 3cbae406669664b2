## src/nn: sources and private headers, all of which go into the library.
libfsdp_la_SOURCES += \
    %D%/backward.c \
    %D%/module.c \
    %D%/parameter.c \
    %D%/tape.c %D%/tape_internal.h
