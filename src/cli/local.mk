## src/cli: the program `fsdp`.
plan_sim = \
    src/cli/plan_sim.h \
    src/cli/plan_fsdp1.c \
    src/cli/plan_fsdp2.c \
    src/cli/plan_memory.c \
    src/cli/plan_model.c \
    src/cli/plan_models.c \
    src/cli/plan_ops.c \
    src/cli/plan_step.c \
    src/cli/plan_tape.c
bin_PROGRAMS += fsdp
fsdp_SOURCES = \
    %D%/cli.h \
    %D%/common.c \
    %D%/doctor.c \
    %D%/generate.c \
    %D%/llama.c %D%/llama.h \
    %D%/main.c \
    %D%/metadata.c %D%/metadata.h \
    %D%/option_table.c %D%/option_table.h \
    %D%/options.c \
    $(plan_sim) \
    %D%/report.c %D%/report.h \
    %D%/run.h %D%/run_check.c %D%/run_make.c \
    %D%/run_report.c %D%/run_step.c \
    %D%/shard.c %D%/shard1.c \
    %D%/task.c %D%/task.h \
    %D%/train.c
fsdp_LDADD = libfsdp.la
dist_man_MANS = %D%/fsdp.1
