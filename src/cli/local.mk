## src/cli: the program `fsdp`.
plan_sim = \
    %D%/plan_sim.h \
    %D%/plan_fsdp1.c \
    %D%/plan_fsdp2.c \
    %D%/plan_memory.c \
    %D%/plan_model.c \
    %D%/plan_models.c \
    %D%/plan_ops.c %D%/plan_ops_experts.c %D%/plan_ops_head.c %D%/plan_parallel.c \
    %D%/plan_step.c \
    %D%/plan_tape.c
bin_PROGRAMS += fsdp
fsdp_SOURCES = \
    %D%/cli.h \
    %D%/common.c \
    %D%/compare.c \
    %D%/doctor.c \
    %D%/generate.c %D%/generate.h %D%/generate_model.c \
    %D%/golden.c %D%/golden.h \
    %D%/golden_check.c \
    %D%/golden_config.c \
    %D%/golden_data.c \
    %D%/golden_run.c \
    %D%/golden_write.c \
    %D%/inspect.c %D%/inspect.h \
    %D%/inspect_draw.c \
    %D%/inspect_file.c \
    %D%/llama.c %D%/llama.h \
    %D%/main.c \
    %D%/metadata.c %D%/metadata.h \
    %D%/model_folder.c %D%/model_folder.h \
    %D%/open_data.c \
    %D%/option_check.c \
    %D%/option_help.c \
    %D%/option_table.c %D%/option_table.h \
    %D%/option_value.c \
    %D%/options.c \
    %D%/plan.c %D%/plan.h \
    %D%/plan_config.c \
    %D%/plan_json.c \
    %D%/plan_print.c \
    $(plan_sim) \
    %D%/replay.c %D%/replay.h \
    %D%/replay_fill.c %D%/replay_fill.h \
    %D%/replay_sharding.c \
    %D%/report.c %D%/report.h \
    %D%/run.h %D%/run_check.c %D%/run_checkpoint.c %D%/run_make.c \
    %D%/run_record.c %D%/run_report.c %D%/run_step.c \
    %D%/shard.c %D%/shard1.c \
    %D%/task.c %D%/task.h \
    %D%/task_batch.c \
    %D%/task_held_out.c \
    %D%/task_metadata.c \
    %D%/tokenize.c \
    %D%/train.c
fsdp_LDADD = libfsdp.la
dist_man_MANS = %D%/fsdp.1
