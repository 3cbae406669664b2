/* Reads a bundle of `fsdp golden` without libfsdp, as a test of another project
 * would, and recomputes what SGD did on each rank:
 *
 *     02_golden_reader BUNDLE mlp 3 HASH
 *
 * HASH is the run's in bundle.json of the day on which the test was written: a
 * bundle of another configuration is refused before any value is looked at.
 * Everything is in python/trace_format.md.  Little-endian machines only. */
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char path[4096];

static json_t *
need(json_t *value)
{
    if (value == NULL)
        fprintf(stderr, "%s: missing or malformed\n", path), exit(2);
    return value;
}

/* A safetensors file: u64 length, JSON, data. */
static json_t *
tensors(const char *dir, int step, int rank, char **data)
{
    uint64_t n = 0;
    snprintf(path, sizeof path, "%s/step-%06d/rank-%05d.safetensors", dir, step,
             rank);
    FILE *file = fopen(path, "rb");
    if (file == NULL || fread(&n, 8, 1, file) != 1 || n > 1 << 24)
        need(NULL);
    char *text = malloc(n);
    json_t *header = NULL;
    if (fread(text, 1, n, file) == n)
        header = need(json_loadb(text, n, 0, NULL));
    long begin = ftell(file);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)(ftell(file) - begin);
    fseek(file, begin, SEEK_SET);
    *data = malloc(size + 1);
    if (fread(*data, 1, size, file) != size)
        need(NULL);
    fclose(file);
    free(text);
    json_object_set_new(header, "size", json_integer((json_int_t)size));
    return need(header);
}

/* This rank's elements of PHASE/-/NAME, float32. */
static float *
values(json_t *header, char *data, const char *phase, const char *name,
       size_t *numel)
{
    char key[512];
    json_int_t begin, end, size;
    snprintf(key, sizeof key, "%s/-/%s", phase, name);
    json_t *tensor = need(json_object_get(header, key));
    if (json_unpack(tensor, "{s:[I,I]}", "data_offsets", &begin, &end) != 0 ||
        json_unpack(header, "{s:I}", "size", &size) != 0 || begin < 0 ||
        end < begin || end > size || begin % 4 != 0)
        need(NULL);
    *numel = (size_t)(end - begin) / 4;
    return (float *)(data + begin);
}

/* buffer = momentum buffer + grad; parameter -= lr buffer; each within the
 * rounding of the operations. */
static size_t
check_parameter(json_t *was[2], char *data[2], const char *name, int step,
                double lr, double momentum)
{
    size_t n, bad = 0;
    float *old = values(was[0], data[0], "parameter", name, &n);
    float *new = values(was[1], data[1], "parameter", name, &n);
    float *grad = values(was[1], data[1], "grad", name, &n);
    float *to = values(was[1], data[1], "state.momentum_buffer", name, &n);
    float *from =
        step == 1 ? NULL
                  : values(was[0], data[0], "state.momentum_buffer", name, &n);
    for (size_t i = 0; i < n; i++) {
        double kept = from == NULL ? 0 : momentum * from[i], eps = 0x1p-23;
        bad += !(fabs(to[i] - (kept + grad[i])) <=
                 2 * eps * (fabs(kept) + fabs(grad[i])));
        bad += !(fabs(new[i] - (old[i] - lr * to[i])) <=
                 2 * eps * (fabs(old[i]) + fabs(lr * to[i])));
    }
    return bad;
}

int
main(int argc, char **argv)
{
    json_t *run = NULL, *one, *parameter;
    size_t i, bad = 0, compared = 0;
    if (argc != 5)
        return fprintf(stderr, "usage: %s BUNDLE NAME RANKS HASH\n", *argv), 2;
    snprintf(path, sizeof path, "%s/bundle.json", argv[1]);
    json_t *bundle = need(json_load_file(path, 0, NULL));
    json_array_foreach(json_object_get(bundle, "runs"), i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name != NULL && strcmp(name, argv[2]) == 0 &&
            json_integer_value(json_object_get(one, "ranks")) == atoi(argv[3]))
            run = one;
    }
    const char *hash = json_string_value(json_object_get(need(run), "hash"));
    if (hash == NULL || strcmp(hash, argv[4]) != 0)
        return fprintf(stderr,
                       "%s: hash %s, not %s: this test and the bundle "
                       "are of different configurations\n",
                       path, hash != NULL ? hash : "missing", argv[4]),
               2;
    char dir[2048];
    snprintf(dir, sizeof dir, "%s/%s/ranks-%d", argv[1], argv[2],
             atoi(argv[3]));
    snprintf(path, sizeof path, "%s/trace.json", dir);
    json_t *trace = need(json_load_file(path, 0, NULL));
    double momentum = json_number_value(
        json_object_get(json_object_get(trace, "optimizer"), "momentum"));
    json_t *steps = json_object_get(trace, "steps");
    for (int rank = 0; rank < atoi(argv[3]); rank++)
        for (int step = 1; step <= (int)json_array_size(steps); step++) {
            char *data[2];
            json_t *was[2] = {tensors(dir, step - 1, rank, &data[0]),
                              tensors(dir, step, rank, &data[1])};
            double lr = json_number_value(
                json_object_get(json_array_get(steps, (size_t)step - 1), "lr"));
            json_array_foreach(json_object_get(trace, "parameters"), i,
                               parameter)
            {
                bad += check_parameter(
                    was, data,
                    json_string_value(json_object_get(parameter, "name")), step,
                    lr, momentum);
                compared++;
            }
            for (int k = 0; k < 2; k++)
                json_decref(was[k]), free(data[k]);
        }
    json_decref(trace), json_decref(bundle);
    printf("%zu updates compared, %zu elements wrong\n", compared, bad);
    return compared == 0 ? 2 : bad != 0;
}
