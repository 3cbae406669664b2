/** \file dropout_words.h  Floor 1, tensor: the random numbers of a dropout. */
#ifndef FSDP_TENSOR_DROPOUT_WORDS_H
#define FSDP_TENSOR_DROPOUT_WORDS_H

#include "tensor/kernels.h"

/** Words 4 first_block to 4 (first_block + blocks) - 1 of the stream of sample
 *  `sample` of the batch, many at a time; see fsdp_dropout_key_t. */
void fsdp_dropout_words(const fsdp_dropout_key_t *key, size_t sample,
                        uint64_t first_block, size_t blocks, uint32_t *words);

/** The least of the 2^32 words that keeps its element: those with
 *  fsdp_random_uniform(word) >= p do.  2^32 if none does (p = 1). */
uint64_t fsdp_dropout_first_kept(double p);

#endif
