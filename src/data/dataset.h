/** \file dataset.h  Floor 4, data: what a data set is made of. */
#ifndef FSDP_DATA_DATASET_H
#define FSDP_DATA_DATASET_H

#include <stdbool.h>
#include <stdio.h>

#include "fsdp/data.h"

/** More than any vocabulary has. */
enum { FSDP_DATA_MAX_TOKENS = 1 << 24 };

struct fsdp_dataset {
    size_t count[2]; /**< samples of each fsdp_split_t                       */
    size_t features, classes;
    double entropy; /**< of the training split's bytes or labels, in nats    */

    /* text */
    unsigned char *text;        /**< NULL for CSV */
    size_t width;               /**< bytes of a token: 1, 2 or 4 */
    size_t header;              /**< bytes before the first */
    size_t length[2], start[2]; /**< bytes of each split                     */
    size_t context;

    /* CSV */
    double *value; /**< [rows, features], scaled; NULL for IDX           */
    unsigned char *pixel; /**< [rows, features], after a header; NULL for CSV */
    double scale;         /**< what pixels are divided by                    */
    int32_t *label; /**< [rows]                                           */
    size_t *row[2]; /**< the rows of each split                           */
};

/** A regular file, or NULL; never waits for one. */
FILE *fsdp_data_open_regular(const char *path);
/** Reads a whole regular file into a new block with a 0 behind it. */
fsdp_status_t fsdp_data_read_file(const char *path, char **text,
                                  size_t *length);
/** The tokens of `text`, `count` of them: cuts off the last tenth for the held-out
 *  part and looks at all of them.  Takes the text, also if it fails: too short
 *  (the message calls tokens `unit`), or a token above 2^24. */
fsdp_status_t fsdp_dataset_take_tokens(const char *path, char *text,
                                       size_t width, size_t header,
                                       size_t count, size_t context,
                                       const char *unit,
                                       fsdp_dataset_t **dataset);
/** Deals `rows` rows to the splits: about one in five is held out, by a hash of
 *  its number.  An error if one of the two stays empty. */
fsdp_status_t fsdp_dataset_deal_rows(fsdp_dataset_t *dataset, const char *path,
                                     size_t rows);
/** The entropy of the training split's labels. */
void fsdp_dataset_measure_labels(fsdp_dataset_t *dataset);
/** Nats of a distribution given by counts. */
double fsdp_data_entropy(const size_t *counts, size_t num);

#endif
