/* Reads a bundle of `fsdp golden` without libfsdp, as a test of another project
 * would, and recomputes what SGD did:  02_golden_reader BUNDLE mlp 3 HASH
 *
 * HASH is the run's in bundle.json of the day on which the test was written: a
 * bundle of another configuration is refused before any value is looked at.
 * python/trace_format.md tells the rest.  Little-endian machines only. */
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file of 8 bytes of length, JSON, data: float32 tensors of one rank's step. */
static json_t *
open_tensors(const char *dir, int step, int rank, char **data)
{
    char path[4096];
    uint64_t n = 0;
    snprintf(path, sizeof path, "%s/step-%06d/rank-%05d.safetensors", dir, step,
             rank);
    FILE *file = fopen(path, "rb");
    char *all = file != NULL ? calloc(1, 1 << 24) : NULL;
    size_t size = all != NULL ? fread(all, 1, 1 << 24, file) : 0;
    memcpy(&n, size >= 8 ? all : (char *)&n, 8);
    if (size < 8 || n > size - 8)
        fprintf(stderr, "%s: missing, cut short or too large\n", path), exit(2);
    fclose(file);
    *data = all + 8 + n;
    return json_loadb(all + 8, n, 0, NULL);
}

static float *
values(json_t *header, char *data, const char *phase, const char *name,
       size_t *n)
{
    char key[512];
    json_int_t begin = 0, end = 0;
    snprintf(key, sizeof key, "%s/-/%s", phase, name);
    json_unpack(header, "{s:{s:[I,I]}}", key, "data_offsets", &begin, &end);
    *n = (size_t)(end - begin) / 4;
    return (float *)(data + begin);
}

/* buffer = momentum buffer + grad; parameter -= lr buffer: elements that are
 * further away than the rounding of two operations takes them. */
static size_t
count_wrong(json_t *h[2], char *data[2], const char *name, double lr, double mu)
{
    size_t n, none, bad = 0;
    float *p = values(h[0], data[0], "parameter", name, &n);
    float *q = values(h[1], data[1], "parameter", name, &n);
    float *g = values(h[1], data[1], "grad", name, &n);
    float *b = values(h[1], data[1], "state.momentum_buffer", name, &n);
    float *a = values(h[0], data[0], "state.momentum_buffer", name, &none);
    for (size_t i = 0; i < n; i++) {
        double m = none > 0 ? mu * a[i] : 0, way = lr * b[i], u = 0x1p-22;
        bad += !(fabs(b[i] - (m + g[i])) <= u * (fabs(m) + fabs(g[i])));
        bad += !(fabs(q[i] - (p[i] - way)) <= u * (fabs(p[i]) + fabs(way)));
    }
    return bad;
}

int
main(int argc, char **argv)
{
    char path[2048], *data[2];
    size_t i, bad = 0, count = 0;
    json_t *run, *found = NULL, *parameter;
    if (argc != 5)
        return fprintf(stderr, "usage: %s BUNDLE NAME RANKS HASH\n", *argv), 2;
    snprintf(path, sizeof path, "%s/bundle.json", argv[1]);
    json_array_foreach(json_object_get(json_load_file(path, 0, NULL), "runs"),
                       i, run)
    {
        const char *hash = json_string_value(json_object_get(run, "hash"));
        const char *name = json_string_value(json_object_get(run, "name"));
        if (hash != NULL && name != NULL && strcmp(hash, argv[4]) == 0 &&
            strcmp(name, argv[2]) == 0)
            found = run;
    }
    if (found == NULL)
        return fprintf(stderr,
                       "%s: no run %s has the hash %s: this test and "
                       "the bundle are of different configurations\n",
                       path, argv[2], argv[4]),
               2;
    snprintf(path, sizeof path, "%s/%s/ranks-%s/trace.json", argv[1], argv[2],
             argv[3]);
    json_t *trace = json_load_file(path, 0, NULL);
    json_t *steps = json_object_get(trace, "steps");
    double mu = json_number_value(
        json_object_get(json_object_get(trace, "optimizer"), "momentum"));
    *strrchr(path, '/') = '\0';
    for (int rank = 0; rank < atoi(argv[3]); rank++)
        for (int step = 1; step <= (int)json_array_size(steps); step++) {
            json_t *h[2] = {open_tensors(path, step - 1, rank, &data[0]),
                            open_tensors(path, step, rank, &data[1])};
            double lr = json_number_value(
                json_object_get(json_array_get(steps, (size_t)step - 1), "lr"));
            json_array_foreach(json_object_get(trace, "parameters"), i,
                               parameter)
            {
                const char *name =
                    json_string_value(json_object_get(parameter, "name"));
                bad += count_wrong(h, data, name, lr, mu);
                count++;
            }
        }
    printf("%zu updates compared, %zu elements wrong\n", count, bad);
    return count == 0 ? 2 : bad != 0;
}
