/* Reading the command line. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/model_folder.h"
#include "cli/option_table.h"

/* ---- values ------------------------------------------------------------- */

/* Letters, signs and digits only: strtod() also takes blanks, words and
 * hexadecimal, strtol() blanks. */
static bool
looks_like(const cli_option_spec_t *spec, const char *text)
{
    const char *letters =
        spec->kind == CLI_REAL ? "0123456789.eE+-" : "0123456789-";
    return text[0] != '\0' && text[strspn(text, letters)] == '\0';
}

static fsdp_status_t
set_number(const cli_option_spec_t *spec, const char *text, cli_options_t *o)
{
    char *end;
    errno = 0;
    long whole = strtol(text, &end, 10);
    double value = spec->kind == CLI_REAL ? strtod(text, &end) : (double)whole;
    if (!looks_like(spec, text) || *end != '\0')
        return fsdp_error(FSDP_ERR_USAGE,
                          "--%s %s: a %s is needed, %.10g to %.10g", spec->name,
                          text[0] != '\0' ? text : "\"\"",
                          spec->kind == CLI_REAL ? "number" : "whole number",
                          spec->min, spec->max);
    if (value < spec->min || value > spec->max)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--%s %s is out of range; give %.10g to %.10g",
                          spec->name, text, spec->min, spec->max);
    if (spec->kind == CLI_REAL)
        *(double *)((char *)o + spec->offset) = value;
    else
        *(long *)((char *)o + spec->offset) = whole;
    return FSDP_OK;
}

static fsdp_status_t
set_choice(const cli_option_spec_t *spec, const char *text, cli_options_t *o)
{
    size_t length = strlen(text);
    const char *at = spec->argument;
    for (int i = 0; at != NULL; i++) {
        size_t n = strcspn(at, "|");
        if (n == length && strncmp(at, text, n) == 0) {
            *(int *)((char *)o + spec->offset) = i;
            return FSDP_OK;
        }
        at = at[n] == '|' ? at + n + 1 : NULL;
    }
    return fsdp_error(FSDP_ERR_USAGE, "--%s %s: choose one of %s", spec->name,
                      length > 0 ? text : "\"\"", spec->argument);
}

/* A path is one that is there, or has a slash. */
static fsdp_status_t
set_model(const cli_option_spec_t *spec, const char *text, cli_options_t *o)
{
    bool folder = strchr(text, '/') != NULL || fsdp_weights_is_folder(text);
    o->model_folder = folder ? text : NULL;
    return folder ? FSDP_OK : set_choice(spec, text, o);
}

static fsdp_status_t
set_value(const cli_option_spec_t *spec, const char *text, cli_options_t *o)
{
    switch (spec->kind) {
    case CLI_COUNT:
    case CLI_REAL:
        return set_number(spec, text, o);
    case CLI_MODEL:
        return set_model(spec, text, o);
    case CLI_CHOICE:
        return set_choice(spec, text, o);
    case CLI_FLAG:
        *(bool *)((char *)o + spec->offset) = true;
        return FSDP_OK;
    case CLI_TEXT:
        break;
    }
    if (text[0] == '\0' && strcmp(spec->name, "prompt") != 0)
        return fsdp_error(FSDP_ERR_USAGE, "--%s needs a value: %s", spec->name,
                          spec->argument);
    *(const char **)((char *)o + spec->offset) = text;
    return FSDP_OK;
}

/* ---- names -------------------------------------------------------------- */

static int
least(int a, int b)
{
    return a < b ? a : b;
}

/* How many letters must be changed, put in or left out (Levenshtein). */
static int
distance(const char *a, const char *b)
{
    int row[64], n = (int)strlen(b);
    if (n >= 63)
        return n;
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; a[i - 1] != '\0'; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int changed = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least(changed, least(row[j], row[j - 1]) + 1);
        }
    }
    return row[n];
}

static fsdp_status_t
unknown_option(cli_command_t command, const char *given)
{
    const char *nearest = NULL;
    int best = 4;
    for (int i = 0; i < cli_option_count; i++) {
        if (strcmp(given, cli_option_table[i].name) == 0)
            return fsdp_error(
                FSDP_ERR_USAGE,
                "--%s is an option of other commands (fsdp help); "
                "leave it out",
                given);
        int d = distance(given, cli_option_table[i].name);
        if ((cli_option_table[i].commands & command) && d < best) {
            best = d;
            nearest = cli_option_table[i].name;
        }
    }
    if (nearest != NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "unknown option --%s; did you mean --%s?", given,
                          nearest);
    return fsdp_error(FSDP_ERR_USAGE,
                      "unknown option --%s; --help lists the options", given);
}

/* "--grad_clip=1" becomes "--grad-clip=1", as other launchers accept it. */
static void
normalise(char *argument)
{
    for (char *c = argument; *c != '\0' && *c != '='; c++)
        if (*c == '_')
            *c = '-';
}

static const cli_option_spec_t *
find_spec(cli_command_t command, const char *name, size_t length)
{
    for (int i = 0; i < cli_option_count; i++) {
        const cli_option_spec_t *spec = &cli_option_table[i];
        if ((spec->commands & command) && strlen(spec->name) == length &&
            strncmp(spec->name, name, length) == 0)
            return spec;
    }
    return NULL;
}

/* The option at argv[*i], with its value there or in the next argument. */
static fsdp_status_t
parse_one(cli_command_t command, int argc, char **argv, int *i,
          cli_options_t *o)
{
    char *name = argv[*i];
    if (command == CLI_COMPARE && name[0] != '-' && o->num_paths < 3) {
        o->path[o->num_paths++] = name;
        return FSDP_OK;
    }
    if (strncmp(name, "--", 2) != 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "unexpected argument \"%s\"; options begin with --",
                          name);
    name += 2;
    normalise(name);
    size_t length = strcspn(name, "=");
    char *value = name[length] == '=' ? name + length + 1 : NULL;
    const cli_option_spec_t *spec = find_spec(command, name, length);
    if (spec == NULL) {
        name[length] = '\0';
        return unknown_option(command, name);
    }
    o->given[spec - cli_option_table] = true;
    if (spec->kind == CLI_FLAG && value != NULL)
        return fsdp_error(FSDP_ERR_USAGE, "--%s takes no value", spec->name);
    if (spec->kind == CLI_FLAG || value != NULL)
        return set_value(spec, value != NULL ? value : "", o);
    if (*i + 1 >= argc)
        return fsdp_error(FSDP_ERR_USAGE, "--%s needs a value: %s", spec->name,
                          spec->argument);
    return set_value(spec, argv[++*i], o);
}

static bool
is_met(cli_need_t need, const cli_options_t *o)
{
    switch (need) {
    case CLI_NEEDS_TEXT:
        return o->model != CLI_MLP;
    case CLI_NEEDS_LLAMA:
        return o->model == CLI_LLAMA;
    case CLI_NEEDS_GPT2:
        return o->model == CLI_GPT2;
    case CLI_NEEDS_MLP:
        return o->model == CLI_MLP;
    case CLI_NEEDS_SGD:
        return o->optimizer == CLI_SGD;
    case CLI_NEEDS_ADAMW:
        return o->optimizer == CLI_ADAMW;
    case CLI_NEEDS_PARAM_DTYPE:
        return cli_type(o->param_dtype) != FSDP_DTYPE_NONE;
    case CLI_NEEDS_SCALER:
        return o->grad_scaler;
    case CLI_NEEDS_FSDP2:
        return !cli_is_fsdp1(o);
    case CLI_NEEDS_FSDP1:
        return o->api == CLI_FSDP1 && o->strategy == 0;
    case CLI_NEEDS_RECORD:
        return o->record != NULL;
    case CLI_NEEDS_REPLAY:
        return o->replay != NULL;
    case CLI_NEEDS_EXPERTS:
        return o->experts > 0;
    case CLI_NEEDS_NOTHING:
        break;
    }
    return true;
}

bool
cli_is_given(const cli_options_t *options, const char *name)
{
    for (int i = 0; i < cli_option_count; i++)
        if (options->given[i] && strcmp(cli_option_table[i].name, name) == 0)
            return true;
    return false;
}

/* No option is without effect and silent about it. */
fsdp_status_t
cli_options_check(const cli_options_t *o)
{
    static const char *const remedy[] = {
        [CLI_NEEDS_TEXT] = "--model gpt2 or llama",
        [CLI_NEEDS_GPT2] = "--model gpt2",
        [CLI_NEEDS_LLAMA] = "--model llama",
        [CLI_NEEDS_MLP] = "--model mlp",
        [CLI_NEEDS_SGD] = "--optimizer sgd",
        [CLI_NEEDS_ADAMW] = "--optimizer adamw",
        [CLI_NEEDS_PARAM_DTYPE] = "--param-dtype",
        [CLI_NEEDS_SCALER] = "--grad-scaler",
        [CLI_NEEDS_FSDP2] = "--api fsdp2",
        [CLI_NEEDS_FSDP1] = "--api fsdp1",
        [CLI_NEEDS_RECORD] = "--record",
        [CLI_NEEDS_REPLAY] = "--replay FOLDER",
        [CLI_NEEDS_EXPERTS] = "--experts",
    };
    for (int i = 0; i < cli_option_count; i++) {
        const cli_option_spec_t *spec = &cli_option_table[i];
        if (o->given[i] && !is_met(spec->needs, o))
            return fsdp_error(FSDP_ERR_USAGE,
                              "--%s has a meaning with %s only; leave it out",
                              spec->name, remedy[spec->needs]);
    }
    return FSDP_OK;
}

fsdp_status_t
cli_options_parse(cli_command_t command, int argc, char **argv,
                  cli_options_t *options, bool *help)
{
    *options = cli_options_default();
    *help = false;
    FSDP_CHECK(cli_option_count <= CLI_MAX_OPTIONS, "%d options",
               cli_option_count);
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            *help = true;
            return FSDP_OK;
        }
        fsdp_status_t status = parse_one(command, argc, argv, &i, options);
        if (status != FSDP_OK)
            return status;
    }
    if (options->experts > 0 && options->experts_per_token == 0)
        options->experts_per_token = options->experts == 1 ? 1 : 2;
    fsdp_status_t filled =
        options->model_folder != NULL ? cli_folder_fill(options) : FSDP_OK;
    if (filled != FSDP_OK)
        return filled;
    /* What a trace says is not known yet. */
    return options->replay != NULL ? FSDP_OK : cli_options_check(options);
}

/* ---- help --------------------------------------------------------------- */

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
