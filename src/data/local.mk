## src/data: sources and private headers, all of which go into the library.
libfsdp_la_SOURCES += \
    %D%/csv.c \
    %D%/dataset.c %D%/dataset.h \
    %D%/draw.c \
    %D%/text.c
