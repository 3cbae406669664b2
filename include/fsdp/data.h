/** \file data.h  Floor 4, data: samples keyed by (seed, step, sample).
 *
 *  PyTorch: torch.utils.data (Dataset, DistributedSampler).
 *
 *  Which sample stands where in a batch depends on (seed, step, sample index in
 *  the step) alone, so the batch is the same whatever the number of ranks.
 *  The last tenth of a data set is held out for validation.
 *  Not collective: every rank opens the file by itself.
 */
#ifndef FSDP_DATA_H
#define FSDP_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "fsdp/status.h"
#include "fsdp/tokenizer.h"

typedef struct fsdp_dataset fsdp_dataset_t;

typedef enum fsdp_split { FSDP_TRAIN, FSDP_VALIDATION } fsdp_split_t;

/** The bytes of any file as tokens 0..255; a sample is `context` + 1
 *  consecutive bytes of one split (inputs, and targets one later).
 *  FSDP_ERR_INPUT, naming the file and the remedy: missing, a directory, empty,
 *  unreadable, or a split shorter than one sample. */
fsdp_status_t fsdp_dataset_open_text(const char *path, size_t context,
                                     fsdp_dataset_t **dataset);

/** A text whose tokens are the tokenizer's (without its special ones; those that
 *  stand in the text are found).  *replaced counts bytes that are not UTF-8.
 *  Samples, splits and errors as above, in tokens. */
fsdp_status_t fsdp_dataset_open_tokenized(const char *path, size_t context,
                                          const fsdp_tokenizer_t *tokenizer,
                                          fsdp_dataset_t **dataset,
                                          size_t *replaced);

/** How a file of tokens or rows is written. */
typedef enum fsdp_data_format {
    FSDP_DATA_PLAIN,   /**< anything else: a text, a CSV file               */
    FSDP_DATA_LLMC,    /**< llm.c: 256 int32 with magic 20240520, version 1,
                        *   tokens, and uint16s; or 20240801, 7 and uint32s */
    FSDP_DATA_NANOGPT, /**< nanoGPT: uint16s and nothing else               */
    FSDP_DATA_IDX,     /**< MNIST                                           */
    FSDP_DATA_GZIP     /**< compressed: not read                            */
} fsdp_data_format_t;

/** By its first bytes; FSDP_DATA_PLAIN if it cannot be read, too.  nanoGPT's has
 *  none to know it by. */
fsdp_data_format_t fsdp_data_detect(const char *path);

/** A file of tokens (little-endian).  Samples and splits as of a text.  Errors: a
 *  truncated file, a header that lies. */
fsdp_status_t fsdp_dataset_open_tokens(const char *path,
                                       fsdp_data_format_t format,
                                       size_t context,
                                       fsdp_dataset_t **dataset);
/** Writes such a file under another name and renames it.  Errors: a token that
 *  does not fit (nanoGPT: above 65535), the disk. */
fsdp_status_t fsdp_data_write_tokens(const char *path,
                                     fsdp_data_format_t format,
                                     const int32_t *tokens, size_t count);

/** Two IDX files of bytes: images [n, rows, columns], or any rows [n, ...], and
 *  labels [n]; `labels` may be NULL if the name of the images has "images-idx3"
 *  in it, as MNIST's, in whose place "labels-idx1" is put.  Splits and scale as
 *  of a CSV file; samples with fsdp_dataset_csv_sample(). */
fsdp_status_t fsdp_dataset_open_idx(const char *images, const char *labels,
                                    fsdp_dataset_t **dataset);

/** A CSV file of numbers; column `label_column` (from 0; -1: the last) holds the
 *  class 0, 1, 2, ...; the others are features, scaled to [0, 1] by the largest
 *  absolute value of the training split (over all columns).  One header line
 *  is allowed if its first field is no number.  Rows are dealt to the splits
 *  by a hash of their number, about one in five held out, so that a sorted
 *  file works.  Errors name file, line and column: ragged rows, text, NaN or
 *  infinity, a label that is no small whole number, no rows. */
fsdp_status_t fsdp_dataset_open_csv(const char *path, int label_column,
                                    fsdp_dataset_t **dataset);
void fsdp_dataset_close(fsdp_dataset_t **dataset);

/** Samples of a split: rows of a CSV, start positions of a text. */
size_t fsdp_dataset_size(const fsdp_dataset_t *dataset, fsdp_split_t split);
/** CSV, IDX: features per row / classes (largest label + 1); text: 0 / 256;
 *  tokens: 0 / the largest token + 1. */
size_t fsdp_dataset_features(const fsdp_dataset_t *dataset);
size_t fsdp_dataset_classes(const fsdp_dataset_t *dataset);
/** Bits of the unigram distribution of the training split, in nats: for text
 *  the entropy of the bytes, for CSV that of the labels. */
double fsdp_dataset_unigram_entropy(const fsdp_dataset_t *dataset);

/** The number, in the training split, of the sample that (seed, step, index)
 *  draws, where steps count from 1: uniform with replacement for text; for CSV
 *  epochs are permutations (a sample is not seen twice before all were seen
 *  once), where `batch` is the number of samples in a step. */
size_t fsdp_dataset_draw(const fsdp_dataset_t *dataset, uint64_t seed,
                         uint64_t step, size_t index, size_t batch);

/** Text: tokens[context] and targets[context] of sample `number` of a split. */
void fsdp_dataset_text_sample(const fsdp_dataset_t *dataset, fsdp_split_t split,
                              size_t number, int32_t *tokens, int32_t *targets);
/** CSV: features[F] as doubles (the caller rounds to its type) and the class. */
void fsdp_dataset_csv_sample(const fsdp_dataset_t *dataset, fsdp_split_t split,
                             size_t number, double *features, int32_t *label);

#endif
