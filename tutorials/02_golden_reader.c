/* Reads a run of a bundle of `fsdp golden` without libfsdp, as a test of another
 * project would, and redoes SGD's first step:  02_golden_reader BUNDLE HASH
 * HASH is that of an mlp in bundle.json when the test was written: a bundle of
 * another configuration is refused.  python/trace_format.md tells more. */
#include <err.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A float32 tensor of a rank's step, from a file of 8 bytes of length, JSON that
 * says where each tensor is, and the data; all little-endian. */
static float *
read_tensor(const char *run, int step, int rank, const char *key, size_t *n)
{
    char path[4096];
    uint64_t length = 0;
    json_int_t begin = 0, end = -1;
    snprintf(path, sizeof path, "%s/step-%06d/rank-%05d.safetensors", run, step,
             rank);
    FILE *file = fopen(path, "rb");
    if (file == NULL || fread(&length, 8, 1, file) != 1)
        errx(2, "%s: missing or cut short", path);
    json_t *header = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL);
    json_unpack(header, "{s:{s:[I,I]}}", key, "data_offsets", &begin, &end);
    float *value = end < begin ? NULL : malloc((size_t)(end - begin) + 1);
    *n = (size_t)(end - begin) / 4;
    if (value == NULL || fseek(file, (long)(8 + length) + begin, SEEK_SET) ||
        fread(value, 4, *n, file) != *n)
        errx(2, "%s: no %s", path, key);
    json_decref(header);
    fclose(file);
    return value;
}

int
main(int argc, char **argv)
{
    char path[2048];
    const char *hash = "", *run = "", *weight = "parameter/-/layers.0.weight";
    size_t i, n, wrong = 0, count = 0;
    int ranks = 0;
    double lr = NAN;
    if (argc != 3)
        errx(2, "usage: %s BUNDLE HASH", *argv);
    snprintf(path, sizeof path, "%s/bundle.json", argv[1]);
    json_t *runs = json_object_get(json_load_file(path, 0, NULL), "runs");
    for (i = 0; i < json_array_size(runs) && strcmp(hash, argv[2]) != 0; i++)
        json_unpack(json_array_get(runs, i), "{s:s,s:s,s:i}", "hash", &hash,
                    "trace", &run, "ranks", &ranks);
    if (strcmp(hash, argv[2]) != 0)
        errx(2, "%s: stale: no run has the hash %s", path, argv[2]);
    snprintf(path, sizeof path, "%s/%s/trace.json", argv[1], run);
    json_unpack(json_load_file(path, 0, NULL), "{s:[{s:F}]}", "steps", "lr",
                &lr);
    *strrchr(path, '/') = '\0';
    for (int rank = 0; rank < ranks; rank++) {
        float *p = read_tensor(path, 0, rank, weight, &n);
        float *q = read_tensor(path, 1, rank, weight, &n);
        float *g = read_tensor(path, 1, rank, "grad/-/layers.0.weight", &n);
        for (i = 0; i < n; i++) /* the momentum is still the gradient */
            wrong += !(fabs(q[i] - (p[i] - lr * g[i])) <=
                       0x1p-22 * (fabs(p[i]) + fabs(lr * g[i])));
        count += n;
    }
    printf("%zu elements updated, %zu wrong\n", count, wrong);
    return wrong != 0;
}
