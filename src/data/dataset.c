#include "data/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/vmath.h"
#include "fsdp/memory.h"
#include "fsdp/random.h"

static fsdp_status_t
open_regular(const char *path, int *fd, size_t *size)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return fsdp_error(FSDP_ERR_INPUT,
                          "data file %s cannot be opened: %s; "
                          "check --data",
                          path, strerror(errno));
    if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(*fd);
        return fsdp_error(FSDP_ERR_INPUT,
                          "data file %s is no regular file; "
                          "give a text or a CSV file",
                          path);
    }
    *size = (size_t)st.st_size;
    if (*size == 0) {
        close(*fd);
        return fsdp_error(FSDP_ERR_INPUT,
                          "data file %s is empty; give one "
                          "with content",
                          path);
    }
    return FSDP_OK;
}

FILE *
fsdp_data_open_regular(const char *path)
{
    int fd;
    size_t size;
    return open_regular(path, &fd, &size) == FSDP_OK ? fdopen(fd, "rb") : NULL;
}

static bool
read_all(int fd, char *to, size_t bytes)
{
    while (bytes > 0) {
        ssize_t got = read(fd, to, bytes < (1u << 30) ? bytes : (1u << 30));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        to += got;
        bytes -= (size_t)got;
    }
    return true;
}

fsdp_status_t
fsdp_data_read_file(const char *path, char **text, size_t *length)
{
    int fd;
    *text = NULL;
    fsdp_status_t status = open_regular(path, &fd, length);
    if (status != FSDP_OK)
        return status;
    char *out = fsdp_alloc(FSDP_MEM_OTHER, *length + 1);
    bool good = read_all(fd, out, *length);
    close(fd);
    if (!good) {
        fsdp_free(out);
        return fsdp_error(FSDP_ERR_INPUT,
                          "data file %s cannot be read to its "
                          "end; is it being written?",
                          path);
    }
    out[*length] = '\0';
    *text = out;
    return FSDP_OK;
}

double
fsdp_data_entropy(const size_t *counts, size_t num)
{
    size_t total = 0;
    double nats = 0;
    for (size_t i = 0; i < num; i++)
        total += counts[i];
    for (size_t i = 0; i < num; i++) {
        double p = (double)counts[i] / (double)total;
        if (p > 0)
            nats -= p * fsdp_log(p);
    }
    return nats;
}

/* ---- rows ----------------------------------------------------------------- */

enum { HELD_OUT_STREAM = 99 };

fsdp_status_t
fsdp_dataset_deal_rows(fsdp_dataset_t *d, const char *path, size_t rows)
{
    for (int s = 0; s < 2; s++)
        d->row[s] = fsdp_alloc(FSDP_MEM_OTHER, rows * sizeof *d->row[s]);
    for (size_t r = 0; r < rows; r++) {
        uint32_t word =
            fsdp_random_word(0, FSDP_RANDOM_DATA, HELD_OUT_STREAM, 0, r);
        fsdp_split_t split = word % 5 == 0 ? FSDP_VALIDATION : FSDP_TRAIN;
        d->row[split][d->count[split]++] = r;
    }
    if (d->count[FSDP_TRAIN] > 0 && d->count[FSDP_VALIDATION] > 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INPUT,
                      "data file %s is too short: %zu rows do not make a "
                      "training and a held-out part; give more rows",
                      path, rows);
}

void
fsdp_dataset_measure_labels(fsdp_dataset_t *d)
{
    size_t *counts = fsdp_calloc(FSDP_MEM_OTHER, d->classes * sizeof *counts);
    for (size_t i = 0; i < d->count[FSDP_TRAIN]; i++)
        counts[d->label[d->row[FSDP_TRAIN][i]]]++;
    d->entropy = fsdp_data_entropy(counts, d->classes);
    fsdp_free(counts);
}

/* ---- either ---------------------------------------------------------------- */

void
fsdp_dataset_close(fsdp_dataset_t **dataset)
{
    fsdp_dataset_t *d = *dataset;
    if (d == NULL)
        return;
    fsdp_free(d->text);
    fsdp_free(d->value);
    fsdp_free(d->pixel);
    fsdp_free(d->label);
    fsdp_free(d->row[FSDP_TRAIN]);
    fsdp_free(d->row[FSDP_VALIDATION]);
    fsdp_free(d);
    *dataset = NULL;
}

size_t
fsdp_dataset_size(const fsdp_dataset_t *dataset, fsdp_split_t split)
{
    return dataset->count[split];
}

size_t
fsdp_dataset_features(const fsdp_dataset_t *dataset)
{
    return dataset->features;
}

size_t
fsdp_dataset_classes(const fsdp_dataset_t *dataset)
{
    return dataset->classes;
}

double
fsdp_dataset_unigram_entropy(const fsdp_dataset_t *dataset)
{
    return dataset->entropy;
}
