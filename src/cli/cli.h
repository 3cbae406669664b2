/** \file cli.h  Floor 7, cli: the program `fsdp`. */
#ifndef FSDP_CLI_CLI_H
#define FSDP_CLI_CLI_H

#include <stdio.h>

#include "fsdp.h"

enum { CLI_MAX_OPTIONS = 128 };

/** Everything that can be said on the command line; see option_table.c. */
typedef struct cli_options {
    /* model */
    int model;                /**< CLI_GPT2, CLI_LLAMA or CLI_MLP */
    const char *model_folder; /**< --model FOLDER; NULL: by its kind */
    long layers, heads, width, context, vocab_size;
    long kv_heads, intermediate_size; /**< 0: llama's own */
    const char *hidden;               /**< "64,32" */
    long experts, experts_per_token;  /**< gpt2: 0: a perceptron */
    double router_aux_loss;
    bool untied, tied;
    double dropout;
    int dtype; /**< 0 float32, 1 float64 */
    /* data */
    const char *data;
    int data_format;
    const char *labels, *tokenizer;
    long label_column;
    long batch_size, micro_batch_size;
    long eval_every, eval_batches;
    /* training */
    long steps, warmup_steps, seed;
    int optimizer; /**< CLI_ADAMW or CLI_SGD */
    double lr, min_lr, weight_decay, grad_clip;
    double momentum, beta1, beta2, eps;
    bool nesterov;
    int loss_average; /**< CLI_RANK_MEAN or CLI_TOKEN_MEAN */
    bool documents, grad_scaler;
    double loss_scale;
    long loss_scale_interval;
    /* sharding */
    const char *mesh;     /**< "8", "2x4"; NULL: all ranks            */
    long tp;              /**< ranks that share each batch and its layers */
    long expert_parallel; /**< ranks that share out the experts      */
    const char *reshard;  /**< "auto", "true", "false", "K"           */
    int shard_placement;  /**< CLI_SHARD_FIRST or CLI_SHARD_LARGEST   */
    int reduce_order;     /**< as fsdp_reduce_order_t                 */
    int averaging;        /**< as fsdp_averaging_t                    */
    const char *divide_factor; /**< a number, "default"; NULL: micro-batches */
    bool force_sum;
    int gradient_sync; /**< as fsdp_gradient_sync_t                  */
    int param_dtype, reduce_dtype, output_dtype; /**< CLI_TYPES      */
    bool no_cast_forward_inputs;
    long forward_prefetch, backward_prefetch; /**< -1: not set       */
    bool activation_checkpointing;
    const char *offload;
    int api;                      /**< CLI_FSDP2 or CLI_FSDP1              */
    int sharding_strategy;        /**< as fsdp_sharding_strategy_t         */
    int backward_prefetch_policy; /**< as fsdp_backward_prefetch_t         */
    int strategy; /**< 0: by --api; else 1 + fsdp_zero_stage_t             */
    long threads; /**< 0: choose               */
    double timeout;
    /* checking */
    int verify; /**< as fsdp_verify_level_t */
    const char *inject;
    int ledger; /**< 0: by --verify; else 1 + fsdp_ledger_mode_t */
    /* files */
    const char *save, *init, *log_file;
    const char *max_shard_size;
    int save_dtype; /**< CLI_TYPES */
    const char *checkpoint_dir;
    long checkpoint_every, checkpoint_keep; /**< every 0: at the end alone */
    bool resume, keep_loss_scale;
    const char *record, *record_steps, *replay;
    /* tokenize */
    const char *out;
    int out_format; /**< 0 llmc, 1 nanogpt */
    /* generate */
    const char *model_file, *prompt;
    long tokens;
    double temperature;
    /* plan and inspect */
    long ranks; /**< 0: as the mesh, or as were started */
    bool verbose;
    const char *memory, *file;
    /* compare */
    const char *path[3]; /**< ours, theirs, theirs in float64 */
    int num_paths;
    const char *rename;
    bool json, with_double;
    long runs;
    /* golden */
    const char *config, *rank_list, *check;
    /* not on the command line: a trace may say them */
    double dampening, norm_type; /**< of sgd; of the gradient's norm (2)      */
    bool given[CLI_MAX_OPTIONS]; /**< by place in the table: was it said?     */
} cli_options_t;

enum { CLI_GPT2, CLI_LLAMA, CLI_MLP };
enum { CLI_ADAMW, CLI_SGD };
enum { CLI_RANK_MEAN, CLI_TOKEN_MEAN };
enum { CLI_FSDP2, CLI_FSDP1 };
enum { CLI_SHARD_FIRST, CLI_SHARD_LARGEST };
/** The types that an option may name, and which they are. */
#define CLI_TYPES "none|float32|float64|bfloat16|float16"
fsdp_dtype_t cli_type(int choice);

typedef enum cli_command {
    CLI_TRAIN = 1,
    CLI_GENERATE = 2,
    CLI_DOCTOR = 4,
    CLI_PLAN = 8,
    CLI_INSPECT = 16,
    CLI_COMPARE = 32,
    CLI_TOKENIZE = 64,
    CLI_GOLDEN = 128
} cli_command_t;

/** Reads the arguments after the command.  Messages are kept for
 *  fsdp_error_message().  FSDP_OK with *help set: --help was given. */
fsdp_status_t cli_options_parse(cli_command_t command, int argc, char **argv,
                                cli_options_t *options, bool *help);
/** Was the option said? */
bool cli_is_given(const cli_options_t *options, const char *name);
/** Is none of those that were said without effect? */
fsdp_status_t cli_options_check(const cli_options_t *options);
void cli_print_command_help(cli_command_t command, FILE *out);

/** Each command; between fsdp_init() and fsdp_finalize(); collective.  The
 *  status is the same on all ranks. */
fsdp_status_t cli_train(const cli_options_t *options);
fsdp_status_t cli_generate(const cli_options_t *options);
fsdp_status_t cli_doctor(const cli_options_t *options);
fsdp_status_t cli_plan(const cli_options_t *options);
fsdp_status_t cli_inspect(const cli_options_t *options);
fsdp_status_t cli_compare(const cli_options_t *options);
fsdp_status_t cli_tokenize(const cli_options_t *options);
/** Starts programs of its own, and so must not have started MPI; says what is
 *  wrong itself; the exit status. */
int cli_golden(const cli_options_t *options);

/** Is this the rank that speaks? */
bool cli_speaks(void);
/** Ranks on the machine, threads and cores: sets the number of threads, and
 *  warns if they are too many. */
void cli_choose_threads(long asked);

/** Replicas and shards that --mesh says, or all ranks as shards. */
fsdp_status_t cli_mesh_shape(const cli_options_t *options, int ranks,
                             int *replicas, int *shards);
/** That mesh, with a last dimension "tp" if --tp is above 1; the options must
 *  have been checked.  Collective. */
fsdp_mesh_t *cli_make_mesh(const cli_options_t *options);
/** The dimensions of it that fully_shard() gets: itself, or a slice that the
 *  caller owns and destroys first. */
fsdp_mesh_t *cli_data_mesh(const cli_options_t *options, fsdp_mesh_t *mesh);
/** All ranks as the meshes of experts see them: a last dimension "expert", of
 *  --expert-parallel ranks that share them out, and before it the ranks that have
 *  the same ones.  NULL: each has all.  Collective. */
fsdp_mesh_t *cli_make_expert_mesh(const cli_options_t *options);
/** The dimensions of it that fully_shard() gets; the caller's. */
fsdp_mesh_t *cli_expert_data_mesh(const cli_options_t *options,
                                  fsdp_mesh_t *mesh);
/** Cuts the layers over `comm`, or (NULL) as if they were; nothing for --tp 1. */
fsdp_status_t cli_parallelize(fsdp_module_t *model,
                              const cli_options_t *options, fsdp_comm_t *comm);
/** Do units belong to FSDP1 (--api fsdp1 or --strategy)? */
bool cli_is_fsdp1(const cli_options_t *options);
fsdp_mixed_precision_policy_t cli_mp_policy(const cli_options_t *options);
/** What sums over ranks are divided by; 0: the library's own. */
double cli_divide_factor(const cli_options_t *options, int ranks, int micros);
/** The i-th unit, the root last; NULL: there is none. */
fsdp_module_t *cli_unit(fsdp_module_t *model, int i);
/** Every block and the root, or every layer and the root, become units with the
 *  settings of the options; experts over `experts` as well (NULL: they belong to
 *  their blocks).  Collective. */
fsdp_status_t cli_shard(fsdp_module_t *model, const cli_options_t *options,
                        fsdp_mesh_t *mesh, fsdp_mesh_t *experts, double divide);
/** The same with FSDP1. */
fsdp_status_t cli_shard1(fsdp_module_t *model, const cli_options_t *options,
                         fsdp_mesh_t *mesh, double divide);
/** Before the j-th of m backwards of a step: which of them synchronise. */
fsdp_status_t cli_choose_sync(fsdp_module_t *model,
                              const cli_options_t *options, int j, int m);

#endif
