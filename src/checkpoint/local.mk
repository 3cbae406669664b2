## src/checkpoint: sources and private headers, all of which go into the library.
libfsdp_la_SOURCES += \
    %D%/checkpoint.h \
    %D%/checkpoint_load.c \
    %D%/checkpoint_open.c \
    %D%/checkpoint_save.c \
    %D%/checkpoint_whole.c \
    %D%/folder.c %D%/folder.h \
    %D%/hf_config.c %D%/hf_config.h \
    %D%/hf_config_write.c \
    %D%/hf_folder.c %D%/hf_folder.h \
    %D%/hf_folder_save.c \
    %D%/index.c %D%/index.h \
    %D%/index_read.c \
    %D%/model_file.h \
    %D%/model_load.c \
    %D%/model_save.c \
    %D%/safetensors.c \
    %D%/safetensors_header.c \
    %D%/safetensors_internal.h \
    %D%/safetensors_writer.c \
    %D%/weights.c %D%/weights.h \
    %D%/weights_index.c
