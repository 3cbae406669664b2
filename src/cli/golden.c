/* `fsdp golden`: starts a recorded `fsdp train` for each configuration and
 * number of ranks, so that a bundle holds what real ranks met. */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/whole_file.h"
#include "cli/golden.h"
#include "verify/trace/writer.h"

enum { MOST_WORDS = 200, MOST_CONFIGS = 32 };

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

/* ---- what is trained on ---------------------------------------------------------- */

/* Eight features and one of four classes, by a formula. */
static fsdp_status_t
write_rows(const char *path)
{
    char text[64 * 40], *at = text;
    for (int r = 0; r < 64; r++) {
        for (int c = 0; c < 8; c++)
            at += sprintf(at, "%d,", (r * 7 + c * 3 + r * r * (c + 1)) % 17);
        at += sprintf(at, "%d\n", (r * 5 + r / 3) % 4);
    }
    return fsdp_file_write(path, text, (size_t)(at - text));
}

static fsdp_status_t
write_words(const char *path)
{
    static const char *const word[] = {"shard", "gather", "sum", "step",
                                       "rank",  "the",    "a",   "unit"};
    char text[1000 * 8], *at = text;
    unsigned state = 1;
    for (int i = 0; i < 1000; i++) {
        state = state * 1664525u + 1013904223u; /* Knuth's, of 32 bits */
        at += sprintf(at, "%s%c", word[state >> 29], i % 12 == 11 ? '\n' : ' ');
    }
    return fsdp_file_write(path, text, (size_t)(at - text));
}

static fsdp_status_t
make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0)
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_IO, "cannot make the folder %s: %s%s", path, strerror(errno),
        errno == EEXIST ? "; remove it, or choose another --out" : "");
}

static fsdp_status_t
make_data(const char *dir)
{
    char *data = fsdp_format("%s/data", dir);
    char *rows = fsdp_format("%s/rows.csv", data);
    char *words = fsdp_format("%s/text.txt", data);
    fsdp_status_t status = make_folder(dir);
    if (status == FSDP_OK)
        status = make_folder(data);
    if (status == FSDP_OK)
        status = write_rows(rows);
    if (status == FSDP_OK)
        status = write_words(words);
    fsdp_free(data);
    fsdp_free(rows);
    fsdp_free(words);
    return status;
}

/* ---- a run ------------------------------------------------------------------------- */

/* Cuts `text` at `separator`; the pieces are parts of it. */
static int
cut(char *text, const char *separator, char **word, int n)
{
    char *state;
    for (char *w = strtok_r(text, separator, &state);
         w != NULL && n < MOST_WORDS; w = strtok_r(NULL, separator, &state))
        word[n++] = w;
    return n;
}

/* In the child: does not return.  What a launcher around us has said is not for
 * the one that is started now. */
_Noreturn static void
start(char **word, bool other_name)
{
    static const char *const variables[] = {
        "PMI_RANK", "PMI_SIZE",        "PMI_FD",         "PMI_PORT",
        "PMI_ID",   "MPI_LOCALNRANKS", "MPI_LOCALRANKID"};
    int nowhere = open("/dev/null", O_RDWR);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    dup2(nowhere, 0);
    dup2(nowhere, 1);
    execvp(word[0], word);
    word[0] = "mpiexec";
    if (other_name)
        execvp(word[0], word);
    _exit(127);
}

static fsdp_status_t
wait_for(bundle_t *b, pid_t child, const char *launcher)
{
    int how = 0;
    while (child > 0 && waitpid(child, &how, 0) < 0 && errno == EINTR)
        ;
    int code = child > 0 && WIFEXITED(how) ? WEXITSTATUS(how) : -1;
    if (code == 0)
        return FSDP_OK;
    if (child <= 0 || code == 127)
        return fsdp_error(FSDP_ERR_IO,
                          "cannot start %s; name the launcher of MPI in the "
                          "variable MPIEXEC",
                          launcher);
    b->told = code > 0;
    return fsdp_error(code == 2 ? FSDP_ERR_USAGE : FSDP_ERR_FAULT,
                      "a run of the bundle was ended by signal %d",
                      WIFSIGNALED(how) ? WTERMSIG(how) : 0);
}

static fsdp_status_t
run_train(bundle_t *b, const golden_config_t *config, int ranks,
          const char *data, const char *folder)
{
    char self[4096], number[16], *word[MOST_WORDS + 8];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const char *given = getenv("MPIEXEC");
    if (length < 0)
        return fsdp_error(FSDP_ERR_IO, "cannot find this program in /proc");
    self[length] = '\0';
    snprintf(number, sizeof number, "%d", ranks);
    char *launcher = fsdp_format(
        "%s", given != NULL && given[0] != '\0' ? given : "mpiexec.mpich");
    char *options = golden_options_text(config, ranks);
    char *from = fsdp_format("--data=%s", data);
    char *to = fsdp_format("--record=%s", folder);
    int n = cut(launcher, " ", word, 0);
    char *const fixed[] = {"-n", number, self, "train", from, to};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        word[n++] = fixed[i];
    n = cut(options, "\n", word, n);
    word[n] = NULL;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        start(word, given == NULL);
    fsdp_status_t status = wait_for(b, child, word[0]);
    fsdp_free(launcher);
    fsdp_free(options);
    fsdp_free(from);
    fsdp_free(to);
    return status;
}

/* ---- what is said of it --------------------------------------------------------------- */

static void
write_checksum(bundle_t *b, const char *key, uint64_t checksum)
{
    char digits[17];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)checksum);
    fsdp_json_key(b->json, key);
    fsdp_json_string(b->json, digits);
}

static fsdp_status_t
add_file(bundle_t *b, const char *name)
{
    uint64_t bytes, checksum;
    char *path = fsdp_format("%s/%s", b->dir, name);
    fsdp_status_t status = fsdp_file_checksum(path, &bytes, &checksum);
    fsdp_free(path);
    if (status != FSDP_OK)
        return status;
    fsdp_json_open_object(b->json);
    fsdp_json_key(b->json, "path");
    fsdp_json_string(b->json, name);
    fsdp_json_key(b->json, "bytes");
    fsdp_json_integer(b->json, (int64_t)bytes);
    write_checksum(b, "xxh3_64", checksum);
    fsdp_json_close_object(b->json);
    return FSDP_OK;
}

static fsdp_status_t
add_files(bundle_t *b, const golden_config_t *config, int ranks,
          const char *folder)
{
    static const char *const plain[] = {"configuration.txt", "trace.json"};
    static const char *const kind[] = {"json", "safetensors"};
    fsdp_status_t status = FSDP_OK;
    for (int i = 0; i < 2 && status == FSDP_OK; i++) {
        char *name = fsdp_format("%s/%s", folder, plain[i]);
        status = add_file(b, name);
        fsdp_free(name);
    }
    long count = (config->steps + 1) * ranks * 2;
    for (long i = 0; i < count && status == FSDP_OK; i++) {
        char *name = fsdp_format("%s/step-%06ld/rank-%05ld.%s", folder,
                                 i / 2 / ranks, i / 2 % ranks, kind[i % 2]);
        status = add_file(b, name);
        fsdp_free(name);
    }
    return status;
}

static fsdp_status_t
add_run(bundle_t *b, const golden_config_t *config, int ranks,
        const char *folder, const char *text)
{
    uint64_t bytes, hash = 0;
    char *path = fsdp_format("%s/%s/configuration.txt", b->dir, folder);
    fsdp_status_t status = fsdp_file_write(path, text, strlen(text));
    if (status == FSDP_OK)
        status = fsdp_file_checksum(path, &bytes, &hash);
    fsdp_free(path);
    if (status != FSDP_OK)
        return status;
    fsdp_json_open_object(b->json);
    fsdp_json_key(b->json, "name");
    fsdp_json_string(b->json, config->name);
    fsdp_json_key(b->json, "ranks");
    fsdp_json_integer(b->json, ranks);
    fsdp_json_key(b->json, "steps");
    fsdp_json_integer(b->json, config->steps);
    fsdp_json_key(b->json, "trace");
    fsdp_json_string(b->json, folder);
    write_checksum(b, "hash", hash);
    fsdp_json_key(b->json, "files");
    fsdp_json_open_array(b->json);
    status = add_files(b, config, ranks, folder);
    fsdp_json_close_array(b->json);
    fsdp_json_close_object(b->json);
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
        status = run_train(b, config, ranks, data, path);
    if (status == FSDP_OK) {
        char *text = golden_configuration_text(config, ranks, checksum);
        status = add_run(b, config, ranks, folder, text);
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
        status = make_folder(path);
        fsdp_free(path);
        for (int w = 0; w < b->num_ranks && status == FSDP_OK; w++)
            status = make_run(b, &b->config[i], b->ranks[w]);
    }
    return status;
}

static fsdp_status_t
make_bundle(bundle_t *b)
{
    fsdp_status_t status = make_data(b->dir);
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
