/* --help of a command. */

#include "cli/option_table.h"

void
cli_print_command_help(cli_command_t command, FILE *out)
{
    static const char *const what[] = {
        [CLI_TRAIN] = "train --data FILE [OPTION]...\n\nTrains a model that is "
                      "sharded over the ranks.",
        [CLI_GENERATE] = "generate --model FILE [OPTION]...\n\nWrites text "
                         "with a trained GPT-2 or Llama.",
        [CLI_DOCTOR] = "doctor [OPTION]...\n\nLooks for what is wrong with the "
                       "machine, MPI or BLIS.",
        [CLI_PLAN] = "plan [OPTION]...\n\nCounts the memory and the traffic "
                     "of a run before there is one.",
        [CLI_INSPECT] = "inspect [OPTION]...\n\nDraws which rows of which "
                        "parameter each rank holds, or lists what\na "
                        "safetensors file has.",
        [CLI_TOKENIZE] =
            "tokenize --tokenizer FILE --data TEXT --out FILE.bin "
            "[OPTION]...\n\nWrites the tokens of a text as a file for "
            "llm.c or nanoGPT.",
        [CLI_COMPARE] = "compare OURS THEIRS [THEIRS64] [OPTION]...\n\nJudges "
                        "a trace of another system: equal, within rounding, "
                        "or wrong, and where\nfirst.",
        [CLI_GOLDEN] = "golden --out FOLDER [OPTION]...\n\nMakes a bundle of "
                       "recorded runs for other projects' tests.  Starts the\n"
                       "ranks itself, by the command in MPIEXEC "
                       "(mpiexec.mpich, mpiexec).",
    };
    fprintf(out, "usage: %sfsdp %s\n\n",
            command == CLI_GOLDEN ? "" : "[mpirun -n RANKS] ", what[command]);
    for (int i = 0; i < cli_option_count; i++) {
        const cli_option_spec_t *spec = &cli_option_table[i];
        const char *argument = spec->argument != NULL ? spec->argument : "";
        int wide;
        if (!(spec->commands & command))
            continue;
        wide = fprintf(out, "  --%s %s", spec->name, argument);
        fprintf(out, "%s%*s %s\n", wide > 33 ? "\n" : "",
                wide > 33 ? 33 : 33 - wide, "", spec->help);
    }
    fprintf(out, "  %-31s %s\n", "--help", "this text");
}
