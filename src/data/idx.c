/* IDX, the format of MNIST: 0, 0, type, number of dimensions, then their sizes as
 * big-endian 32-bit numbers, then the elements. */
#include <string.h>

#include "data/dataset.h"
#include "fsdp/memory.h"

enum { UBYTE = 8, MAX_DIMS = 8 };

/* A file with its header read. */
typedef struct idx {
    const char *path;
    unsigned char *bytes; /* [begin + rows * row] */
    size_t length, begin, rows, row;
    int ndim;
} idx_t;

static fsdp_status_t
bad(const idx_t *idx, const char *what)
{
    return fsdp_error(FSDP_ERR_INPUT,
                      "data file %s %s; an uncompressed IDX file of bytes as "
                      "MNIST's is needed",
                      idx->path, what);
}

static fsdp_status_t
read_header(idx_t *idx)
{
    const unsigned char *b = idx->bytes;
    if (idx->length >= 2 && b[0] == 0x1f && b[1] == 0x8b)
        return bad(idx, "is compressed: unpack it with gunzip");
    if (idx->length < 4 || b[0] != 0 || b[1] != 0 || b[3] < 1 ||
        b[3] > MAX_DIMS)
        return bad(idx, "does not begin as IDX files do");
    if (b[2] != UBYTE)
        return bad(idx, "has elements that are no bytes");
    idx->ndim = b[3];
    idx->begin = 4 + 4 * (size_t)idx->ndim;
    if (idx->length < idx->begin)
        return bad(idx, "ends within its header");
    idx->row = 1;
    for (int d = 0; d < idx->ndim; d++) {
        const unsigned char *at = b + 4 + 4 * d;
        size_t size = (size_t)at[0] << 24 | (size_t)at[1] << 16 |
                      (size_t)at[2] << 8 | at[3];
        if (d == 0)
            idx->rows = size;
        else if (__builtin_mul_overflow(idx->row, size, &idx->row))
            return bad(idx, "has sizes that overflow");
    }
    size_t all;
    if (__builtin_mul_overflow(idx->rows, idx->row, &all) ||
        all != idx->length - idx->begin)
        return bad(idx, "has another number of bytes than its header says");
    return FSDP_OK;
}

static fsdp_status_t
open_idx(const char *path, idx_t *idx)
{
    char *text;
    *idx = (idx_t){.path = path};
    fsdp_status_t status = fsdp_data_read_file(path, &text, &idx->length);
    idx->bytes = (unsigned char *)text;
    return status == FSDP_OK ? read_header(idx) : status;
}

/* "train-labels-idx1-ubyte" beside "train-images-idx3-ubyte"; the caller frees. */
static char *
labels_beside(const char *images)
{
    static const char is[] = "images-idx3", becomes[] = "labels-idx1";
    char *copy = fsdp_strdup(images), *at = NULL;
    for (char *next = copy; (next = strstr(next, is)) != NULL; next++)
        at = next;
    if (at != NULL)
        memcpy(at, becomes, sizeof becomes - 1);
    else {
        fsdp_free(copy);
        copy = NULL;
    }
    return copy;
}

/* The elements become the data set's, without the header. */
static void
take(fsdp_dataset_t *d, idx_t *images, const idx_t *labels)
{
    size_t rows = images->rows;
    d->features = images->row;
    d->pixel = images->bytes;
    images->bytes = NULL;
    memmove(d->pixel, d->pixel + images->begin, rows * d->features);
    d->label = fsdp_alloc(FSDP_MEM_OTHER, rows * sizeof *d->label);
    for (size_t r = 0; r < rows; r++) {
        d->label[r] = labels->bytes[labels->begin + r];
        if ((size_t)d->label[r] + 1 > d->classes)
            d->classes = (size_t)d->label[r] + 1;
    }
}

static void
measure_scale(fsdp_dataset_t *d)
{
    unsigned char largest = 0;
    for (size_t i = 0; i < d->count[FSDP_TRAIN]; i++) {
        const unsigned char *row =
            d->pixel + d->row[FSDP_TRAIN][i] * d->features;
        for (size_t c = 0; c < d->features; c++)
            largest = row[c] > largest ? row[c] : largest;
    }
    d->scale = largest > 0 ? largest : 1;
}

static fsdp_status_t
make(idx_t *images, const idx_t *labels, fsdp_dataset_t **dataset)
{
    if (images->ndim < 2 || images->row == 0 || images->rows == 0)
        return bad(images, "holds no rows: images of two dimensions and more "
                           "are needed here");
    if (labels->ndim != 1)
        return bad(labels, "holds no labels, which have one dimension");
    if (labels->rows != images->rows)
        return bad(labels, "has another number of labels than there are "
                           "images");
    fsdp_dataset_t *d = fsdp_calloc(FSDP_MEM_OTHER, sizeof *d);
    take(d, images, labels);
    fsdp_status_t status =
        fsdp_dataset_deal_rows(d, images->path, images->rows);
    if (status == FSDP_OK) {
        measure_scale(d);
        fsdp_dataset_measure_labels(d);
    } else {
        fsdp_dataset_close(&d);
    }
    *dataset = d;
    return status;
}

fsdp_status_t
fsdp_dataset_open_idx(const char *images, const char *labels,
                      fsdp_dataset_t **dataset)
{
    idx_t image, label = {0};
    char *beside = labels != NULL ? fsdp_strdup(labels) : labels_beside(images);
    *dataset = NULL;
    if (beside == NULL)
        return fsdp_error(FSDP_ERR_USAGE,
                          "data file %s: where are the labels? Its name has no "
                          "\"images-idx3\" in it; give --labels",
                          images);
    fsdp_status_t status = open_idx(images, &image);
    if (status == FSDP_OK)
        status = open_idx(beside, &label);
    if (status == FSDP_OK)
        status = make(&image, &label, dataset);
    fsdp_free(image.bytes);
    fsdp_free(label.bytes);
    fsdp_free(beside);
    return status;
}
