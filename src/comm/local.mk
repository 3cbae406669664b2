## src/comm: sources and private headers, all of which go into the library.
libfsdp_la_SOURCES += \
    %D%/agree.c \
    %D%/all_gather.c \
    %D%/all_reduce.c \
    %D%/all_to_all.c \
    %D%/barrier.c \
    %D%/broadcast.c \
    %D%/comm.c \
    %D%/gather.c \
    %D%/internal.h \
    %D%/launcher.c \
    %D%/launcher.h \
    %D%/ledger.c \
    %D%/ledger_check.c \
    %D%/lifeline.c \
    %D%/mesh.c \
    %D%/progress.c \
    %D%/reduce_order.c \
    %D%/reduce_pair.c \
    %D%/reduce_scatter.c \
    %D%/rows.c \
    %D%/tuning.h \
    %D%/watchdog.c \
    %D%/version.c \
    %D%/work.c \
    %D%/world.c
