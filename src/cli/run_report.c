/* Held-out data, and what is said before and after. */

#include <math.h>

#include "cli/run.h"

/* ---- held-out data ------------------------------------------------------- */

/* Micro-batches are dealt out like those of training; a rank without one runs
 * an earlier one along, for its collectives, and reports nothing. */
cli_held_out_t
cli_run_evaluate(cli_run_t *run)
{
    long count = cli_task_held_out_count(&run->task);
    long rounds = (count + run->batches - 1) / run->batches;
    cli_held_out_t sum = {0},
                   *all = fsdp_alloc(FSDP_MEM_OTHER,
                                     (size_t)run->size * sizeof *all);
    for (long j = 0; j < rounds; j++) {
        long index = j * run->batches + run->batch_rank;
        bool counts = index < count;
        cli_held_out_t mine =
            cli_task_held_out(&run->task, run->model, counts ? index : 0);
        if (!counts || run->rank % run->o->tp != 0)
            mine = (cli_held_out_t){0};
        fsdp_all_gather(run->comm, "held out", FSDP_FP64, &mine, all,
                        sizeof mine / sizeof(double));
        for (int r = 0; r < run->size; r++) {
            sum.loss += all[r].loss * all[r].rows;
            sum.correct += all[r].correct;
            sum.rows += all[r].rows;
        }
    }
    fsdp_free(all);
    sum.loss /= sum.rows;
    sum.correct =
        run->o->model == CLI_MLP ? sum.correct / sum.rows : (double)NAN;
    return sum;
}

/* ---- what is said ---------------------------------------------------------- */

/* Of parameters that are in parts, the whole. */
static size_t
whole_numel(fsdp_module_t *model)
{
    size_t count = fsdp_module_parameters(model, NULL, 0), numel = 0;
    fsdp_parameter_t **list = fsdp_alloc(FSDP_MEM_OTHER, count * sizeof *list);
    fsdp_module_parameters(model, list, count);
    for (size_t i = 0; i < count; i++) {
        fsdp_layout_t layout = fsdp_layout_whole(list[i]);
        numel += fsdp_layout_whole_numel(&layout);
    }
    fsdp_free(list);
    return numel;
}

static const char *const model_name[] = {
    [CLI_GPT2] = "gpt2", [CLI_LLAMA] = "llama", [CLI_MLP] = "mlp"};

void
cli_run_say_what_begins(const cli_run_t *run)
{
    const cli_options_t *o = run->o;
    if (!cli_speaks())
        return;
    printf("fsdp: %s of %zu parameters, %s, on %d rank%s of %d thread%s; "
           "%ld step%s of %ld x %d x %ld %s\n",
           model_name[o->model], whole_numel(run->model),
           fsdp_dtype_name(run->task.dtype), run->size,
           run->size > 1 ? "s" : "", fsdp_get_num_threads(),
           fsdp_get_num_threads() > 1 ? "s" : "", o->steps,
           o->steps > 1 ? "s" : "", (long)run->batches, run->micros,
           o->micro_batch_size, o->model != CLI_MLP ? "sequences" : "rows");
    if (fsdp_fault_chosen() != FSDP_FAULT_NONE)
        printf("fsdp: injected fault: %s\n",
               fsdp_fault_text(fsdp_fault_chosen()));
    fflush(stdout);
    if (fsdp_fault_chosen() != FSDP_FAULT_NONE && o->verify == FSDP_VERIFY_OFF)
        fsdp_warn("a fault is injected and nothing looks for it; add --verify "
                  "step");
}

void
cli_run_summarise(cli_run_t *run, cli_held_out_t held_out)
{
    int64_t mine[CLI_PEAKS];
    for (int c = 0; c < FSDP_MEM_COUNT; c++)
        mine[c] = (int64_t)fsdp_memory_peak_bytes((fsdp_memory_category_t)c);
    mine[CLI_PEAK_OF_SUM] = (int64_t)fsdp_memory_peak_bytes_all();
    int64_t *peaks =
        fsdp_alloc(FSDP_MEM_OTHER, (size_t)run->size * sizeof mine);
    fsdp_all_gather(run->comm, "peak bytes", FSDP_INT64, mine, peaks,
                    CLI_PEAKS);
    cli_summary_t summary = {
        .steps = run->o->steps,
        .held_out_loss = held_out.loss,
        .accuracy = held_out.correct,
        .unigram_entropy = run->task.data != NULL
                               ? fsdp_dataset_unigram_entropy(run->task.data)
                               : (double)NAN,
        .verifying = run->verifier != NULL,
        .mesh = run->mesh,
        .expert_mesh = run->expert_mesh,
        .peaks = peaks,
    };
    if (run->verifier != NULL)
        summary.total = fsdp_verifier_total(run->verifier);
    if (run->task.data == NULL)
        summary.held_out_loss = summary.accuracy = (double)NAN;
    cli_report_summary(&summary);
    fsdp_free(peaks);
}

/* Some cannot show: two terms have the same sum in any order, one rank has
 * nobody to differ from. */
void
cli_run_say_if_fault_hid(void)
{
    if (fsdp_fault_chosen() != FSDP_FAULT_NONE && cli_speaks())
        fsdp_warn("the injected fault changed no value here; use more ranks, "
                  "more micro-batches or a step of the run");
}
