## src/optim: sources and private headers, all of which go into the library.
libfsdp_la_SOURCES += \
    %D%/adamw.c \
    %D%/clip_grad_norm.c \
    %D%/grad_scaler.c \
    %D%/gradients.c %D%/gradients.h \
    %D%/optimizer.c %D%/optimizer.h \
    %D%/parameters.h \
    %D%/schedule.c \
    %D%/sgd.c
