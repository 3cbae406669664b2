/** \file dataset.h  Floor 4, data: what a data set is made of. */
#ifndef FSDP_DATA_DATASET_H
#define FSDP_DATA_DATASET_H

#include <stdbool.h>

#include "fsdp/data.h"

struct fsdp_dataset {
    size_t count[2]; /**< samples of each fsdp_split_t                       */
    size_t features, classes;
    double entropy; /**< of the training split's bytes or labels, in nats    */

    /* text */
    unsigned char *text; /**< NULL for CSV */
    size_t length[2], start[2]; /**< bytes of each split                     */
    size_t context;

    /* CSV */
    double *value;     /**< [rows, features], scaled                         */
    int32_t *label;    /**< [rows]                                           */
    size_t *row[2];    /**< the rows of each split                           */
};

/** Reads a whole regular file into a new block with a 0 behind it. */
fsdp_status_t fsdp_data_read_file(const char *path, char **text,
                                  size_t *length);
/** Nats of a distribution given by counts. */
double fsdp_data_entropy(const size_t *counts, size_t num);

#endif
