/* What `fsdp golden` can run. */

#include <stdlib.h>
#include <string.h>

#include "base/whole_file.h"
#include "cli/golden.h"

#define TEXT_MODEL                                                             \
    "--layers=2\n--heads=4\n--width=16\n--context=8\n"                         \
    "--vocab-size=257\n--eval-batches=1\n"

static const struct {
    const char *name, *about, *options;
} built_in[] = {
    {"mlp", "a small MLP, SGD with momentum",
     "--model=mlp\n--hidden=16,8\n--optimizer=sgd\n--lr=0.05\n"
     "--momentum=0.9\n"},
    {"gpt2-tied", "a GPT-2 whose head is the embedding of 257 rows, clipped",
     "--model=gpt2\n" TEXT_MODEL "--grad-clip=1\n"},
    {"llama", "a Llama with fewer heads of keys and values, clipped",
     "--model=llama\n--kv-heads=2\n" TEXT_MODEL "--grad-clip=0.5\n"},
    {"uneven",
     "an MLP whose widths no number of ranks divides, synchronised at "
     "the last micro-batch, AdamW, clipped",
     "--model=mlp\n--hidden=13,7\n--gradient-sync=last\n--grad-clip=0.5\n"},
    {"hsdp", "an MLP on 2 replicas of W/2 shards; W replicas if W is odd",
     "--model=mlp\n--hidden=16,8\n--optimizer=sgd\n--lr=0.05\n"
     "--mesh=hybrid\n"},
    {"bf16", "a GPT-2 that computes in bfloat16 and reduces in float32",
     "--model=gpt2\n" TEXT_MODEL
     "--param-dtype=bfloat16\n--reduce-dtype=float32\n"},
};

void
golden_config_free(golden_config_t *config)
{
    fsdp_free(config->name);
    fsdp_free(config->options);
    fsdp_free(config->data);
    *config = (golden_config_t){0};
}

const char *
golden_config_name(int i, const char **about)
{
    if (i < 0 || i >= (int)(sizeof built_in / sizeof *built_in))
        return NULL;
    *about = built_in[i].about;
    return built_in[i].name;
}

bool
golden_config_built_in(const char *name, golden_config_t *config)
{
    for (size_t i = 0; i < sizeof built_in / sizeof *built_in; i++) {
        if (strcmp(built_in[i].name, name) != 0)
            continue;
        *config =
            (golden_config_t){.name = fsdp_format("%s", name),
                              .options = fsdp_format("%s", built_in[i].options),
                              .steps = GOLDEN_STEPS};
        return true;
    }
    return false;
}

/* ---- a file ------------------------------------------------------------------ */

/* What the bundle itself decides. */
static bool
is_ours(const char *key)
{
    static const char *const keys[] = {
        "record",  "record-steps", "replay",        "save",    "log-file",
        "inject",  "resume",       "init",          "offload", "verify",
        "timeout", "threads",      "checkpoint-dir"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(key);
}

/* "--key=value\n" for a member; NULL: its value cannot be one. */
static char *
option_text(const char *key, const fsdp_json_t *value)
{
    int64_t whole;
    double number;
    bool flag = false;
    const char *text = fsdp_json_get_string(value);
    if (text != NULL && strchr(text, '\n') == NULL)
        return fsdp_format("--%s=%s\n", key, text);
    if (fsdp_json_get_integer(value, &whole))
        return fsdp_format("--%s=%lld\n", key, (long long)whole);
    if (fsdp_json_get_number(value, &number))
        return fsdp_format("--%s=%.17g\n", key, number);
    if (fsdp_json_get_bool(value, &flag))
        return flag ? fsdp_format("--%s\n", key) : fsdp_format("%s", "");
    return NULL;
}

static fsdp_status_t
take_option(const char *path, const char *key, const fsdp_json_t *value,
            golden_config_t *config)
{
    int64_t steps;
    if (is_ours(key))
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: \"%s\" cannot be an option of a bundle's run; "
                          "leave it out",
                          path, key);
    if (strcmp(key, "data") == 0 && fsdp_json_get_string(value) != NULL) {
        config->data = fsdp_format("%s", fsdp_json_get_string(value));
        return FSDP_OK;
    }
    char *one = option_text(key, value);
    if (one == NULL)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: the value of \"%s\" is %s; give a string, a "
                          "number, true or false",
                          path, key, fsdp_json_kind_name(value));
    if (strcmp(key, "steps") == 0 && fsdp_json_get_integer(value, &steps))
        config->steps = (long)steps;
    char *both = fsdp_format("%s%s", config->options, one);
    fsdp_free(config->options);
    fsdp_free(one);
    config->options = both;
    return FSDP_OK;
}

static fsdp_status_t
take_config(const char *path, const fsdp_json_t *document,
            golden_config_t *config)
{
    const char *name = fsdp_json_get_string(fsdp_json_member(document, "name"));
    const fsdp_json_t *options = fsdp_json_member(document, "options");
    static const char *const letters = "abcdefghijklmnopqrstuvwxyz0123456789-";
    if (name == NULL || name[0] == '\0' || strlen(name) > 64 ||
        name[strspn(name, letters)] != '\0' || strcmp(name, "data") == 0)
        return fsdp_error(
            FSDP_ERR_INPUT,
            "%s: \"name\" must be a name of small letters, digits "
            "and -, of at most 64, and not \"data\"",
            path);
    if (!fsdp_json_is(options, FSDP_JSON_OBJECT))
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: \"options\" is %s; give an object of options of "
                          "fsdp train, {\"model\": \"mlp\"} for instance",
                          path, fsdp_json_kind_name(options));
    *config = (golden_config_t){.name = fsdp_format("%s", name),
                                .options = fsdp_format("%s", ""),
                                .steps = GOLDEN_STEPS};
    fsdp_status_t status = FSDP_OK;
    for (fsdp_json_iter_t it = fsdp_json_first(options);
         it.key != NULL && status == FSDP_OK; fsdp_json_next(&it))
        status = take_option(path, it.key, it.value, config);
    if (status == FSDP_OK && (config->steps < 1 || config->steps > 10))
        status = fsdp_error(FSDP_ERR_INPUT,
                            "%s: \"steps\" must be 1 to 10, of which all are "
                            "recorded",
                            path);
    if (status != FSDP_OK)
        golden_config_free(config);
    return status;
}

fsdp_status_t
golden_config_read(const char *path, golden_config_t *config)
{
    char *text = NULL;
    size_t length;
    fsdp_json_t *document = NULL;
    fsdp_status_t status = fsdp_file_read(path, 1 << 20, &text, &length);
    if (status == FSDP_OK)
        status = fsdp_json_parse(path, text, length, &document);
    if (status == FSDP_OK)
        status = take_config(path, document, config);
    fsdp_json_destroy(&document);
    fsdp_free(text);
    return status;
}

/* ---- a run -------------------------------------------------------------------- */

char *
golden_options_text(const golden_config_t *config, int ranks)
{
    static const char hybrid[] = "--mesh=hybrid\n";
    /* Two micro-batches of two rows on each rank; what the configuration says
     * itself comes later, and is obeyed. */
    char *usual =
        fsdp_format("--batch-size=%d\n--micro-batch-size=2\n--steps=%ld\n",
                    4 * ranks, config->steps);
    const char *at = strstr(config->options, hybrid);
    int before = at != NULL ? (int)(at - config->options) : 0;
    char mesh[64];
    snprintf(mesh, sizeof mesh, "--mesh=%dx%d\n", ranks % 2 == 0 ? 2 : ranks,
             ranks % 2 == 0 ? ranks / 2 : 1);
    char *text = at == NULL
                     ? fsdp_format("%s%s", usual, config->options)
                     : fsdp_format("%s%.*s%s%s", usual, before, config->options,
                                   mesh, at + strlen(hybrid));
    fsdp_free(usual);
    return text;
}

char *
golden_configuration_text(const golden_config_t *config, int ranks,
                          uint64_t data)
{
    char *options = golden_options_text(config, ranks);
    char *text = fsdp_format("libfsdp-golden 1\nranks %d\ndata %016llx\n%s",
                             ranks, (unsigned long long)data, options);
    fsdp_free(options);
    return text;
}
