/* Reading the command line. */

#include <string.h>

#include "cli/model_folder.h"
#include "cli/option_table.h"

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
        return cli_option_set(spec, value != NULL ? value : "", o);
    if (*i + 1 >= argc)
        return fsdp_error(FSDP_ERR_USAGE, "--%s needs a value: %s", spec->name,
                          spec->argument);
    return cli_option_set(spec, argv[++*i], o);
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
