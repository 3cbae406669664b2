/* `fsdp golden`: starts a recorded `fsdp train` for each configuration and
 * number of ranks, so that a bundle holds what real ranks met. */

#include <stdlib.h>
#include <string.h>

#include "base/whole_file.h"
#include "cli/golden.h"
#include "verify/trace/writer.h"

enum { MOST_CONFIGS = 32 };

typedef struct bundle {
    const char *dir;
    fsdp_json_writer_t *json;
    int ranks[GOLDEN_MOST_RANKS], num_ranks;
    golden_config_t config[MOST_CONFIGS];
    int num_configs;
    bool told; /* the run that failed has said why */
} bundle_t;

/* ---- what is asked for --------------------------------------------------------- */

static fsdp_status_t
read_ranks(const char *text, bundle_t *b)
{
    const char *at = text;
    while (at != NULL && b->num_ranks < GOLDEN_MOST_RANKS) {
        char *end;
        long w = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : 0;
        if (w < 1 || w > GOLDEN_MOST_RANKS || (*end != ',' && *end != '\0'))
            break;
        for (int i = 0; i < b->num_ranks; i++)
            if (b->ranks[i] == (int)w)
                w = 0;
        if (w == 0)
            break;
        b->ranks[b->num_ranks++] = (int)w;
        at = *end == ',' ? end + 1 : NULL;
    }
    if (at == NULL)
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_USAGE,
        "--ranks %s: give different numbers from 1 to %d, 1,2,3,4 "
        "for instance",
        text, GOLDEN_MOST_RANKS);
}

static fsdp_status_t
add_config(const char *name, bundle_t *b)
{
    golden_config_t *config = &b->config[b->num_configs];
    size_t length = strlen(name);
    bool file = strchr(name, '/') != NULL ||
                (length > 5 && strcmp(name + length - 5, ".json") == 0);
    if (b->num_configs == MOST_CONFIGS)
        return fsdp_error(FSDP_ERR_USAGE, "--config: at most %d", MOST_CONFIGS);
    fsdp_status_t status = FSDP_OK;
    if (file)
        status = golden_config_read(name, config);
    else if (!golden_config_built_in(name, config))
        status =
            fsdp_error(FSDP_ERR_USAGE,
                       "--config %s: there is none of that name; --config "
                       "list shows them, and a file's name ends with .json",
                       name);
    if (status != FSDP_OK)
        return status;
    for (int i = 0; i < b->num_configs; i++)
        if (strcmp(b->config[i].name, config->name) == 0)
            status = fsdp_error(FSDP_ERR_USAGE, "--config: \"%s\" stands twice",
                                config->name);
    b->num_configs++;
    return status;
}

static fsdp_status_t
read_configs(const char *text, bundle_t *b)
{
    fsdp_status_t status = FSDP_OK;
    const char *about, *name;
    for (int i = 0; text == NULL && status == FSDP_OK &&
                    (name = golden_config_name(i, &about)) != NULL;
         i++)
        status = add_config(name, b);
    for (const char *at = text; at != NULL && status == FSDP_OK;) {
        size_t n = strcspn(at, ",");
        char *one = fsdp_format("%.*s", (int)n, at);
        status = add_config(one, b);
        fsdp_free(one);
        at = at[n] == ',' ? at + n + 1 : NULL;
    }
    return status;
}

/* ---- a bundle --------------------------------------------------------------------------- */

static fsdp_status_t
make_run(bundle_t *b, const golden_config_t *config, int ranks)
{
    uint64_t bytes, checksum;
    bool mlp = strstr(config->options, "--model=mlp\n") != NULL;
    char *folder = fsdp_format("%s/ranks-%d", config->name, ranks);
    char *path = fsdp_format("%s/%s", b->dir, folder);
    char *data =
        config->data != NULL
            ? fsdp_format("%s", config->data)
            : fsdp_format("%s/data/%s", b->dir, mlp ? "rows.csv" : "text.txt");
    fsdp_status_t status = fsdp_file_checksum(data, &bytes, &checksum);
    if (status == FSDP_OK)
        status = golden_run(config, ranks, data, path, &b->told);
    if (status == FSDP_OK) {
        char *text = golden_configuration_text(config, ranks, checksum);
        status = golden_write_run(b->json, b->dir, config, ranks, folder, text);
        fsdp_free(text);
    }
    if (status == FSDP_OK)
        printf("fsdp: %s\n", path);
    fsdp_free(folder);
    fsdp_free(path);
    fsdp_free(data);
    return status;
}

static fsdp_status_t
make_runs(bundle_t *b)
{
    fsdp_status_t status = FSDP_OK;
    for (int i = 0; i < b->num_configs && status == FSDP_OK; i++) {
        char *path = fsdp_format("%s/%s", b->dir, b->config[i].name);
        status = golden_make_folder(path);
        fsdp_free(path);
        for (int w = 0; w < b->num_ranks && status == FSDP_OK; w++)
            status = make_run(b, &b->config[i], b->ranks[w]);
    }
    return status;
}

static fsdp_status_t
make_bundle(bundle_t *b)
{
    fsdp_status_t status = golden_make_data(b->dir);
    if (status != FSDP_OK)
        return status;
    b->json = fsdp_json_writer_create();
    fsdp_json_open_object(b->json);
    fsdp_json_key(b->json, "format");
    fsdp_json_string(b->json, "libfsdp-golden");
    fsdp_json_key(b->json, "version");
    fsdp_json_integer(b->json, 1);
    fsdp_json_key(b->json, "runs");
    fsdp_json_open_array(b->json);
    status = make_runs(b);
    fsdp_json_close_array(b->json);
    fsdp_json_close_object(b->json);
    char *path = fsdp_format("%s/bundle.json", b->dir);
    if (status == FSDP_OK) /* last: a folder without it is unfinished */
        status = trace_write_text(path, b->json);
    fsdp_free(path);
    fsdp_json_writer_destroy(&b->json);
    return status;
}

static void
list_configs(void)
{
    const char *about, *name;
    for (int i = 0; (name = golden_config_name(i, &about)) != NULL; i++)
        printf("%-10s %s\n", name, about);
}

static fsdp_status_t
golden(const cli_options_t *o, bool *told)
{
    bundle_t b = {.dir = o->out};
    const char *size = getenv("PMI_SIZE");
    if (size != NULL && strcmp(size, "1") != 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "fsdp golden starts the ranks itself; start it "
                          "without mpirun");
    if (o->check != NULL)
        return golden_check(o->check);
    if (o->out == NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "fsdp golden needs --out FOLDER for the bundle");
    fsdp_status_t status =
        read_ranks(o->rank_list != NULL ? o->rank_list : "1,2,3,4", &b);
    if (status == FSDP_OK)
        status = read_configs(o->config, &b);
    if (status == FSDP_OK)
        status = make_bundle(&b);
    for (int i = 0; i < b.num_configs; i++)
        golden_config_free(&b.config[i]);
    *told = b.told;
    return status;
}

int
cli_golden(const cli_options_t *o)
{
    if (o->config != NULL && strcmp(o->config, "list") == 0) {
        list_configs();
        return 0;
    }
    bool told = false;
    fsdp_status_t status = golden(o, &told);
    if (status == FSDP_OK && fflush(stdout) != 0)
        status = fsdp_error(FSDP_ERR_IO, "standard output cannot be written");
    if (status != FSDP_OK && !told)
        fsdp_print_error();
    return fsdp_status_exit_code(status);
}
