## src/checkpoint: sources and private headers, all of which go into the library.
libfsdp_la_SOURCES += \
    %D%/model_file.h \
    %D%/model_load.c \
    %D%/model_save.c \
    %D%/safetensors.c \
    %D%/safetensors_header.c \
    %D%/safetensors_internal.h \
    %D%/safetensors_writer.c
