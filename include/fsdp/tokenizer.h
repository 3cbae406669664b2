/** \file tokenizer.h  Floor 4, data: byte-level BPE, as in a tokenizer.json.
 *
 *  Hugging Face's tokenizers: the kind that GPT-2 and Llama 3 have.  A text is cut
 *  at the added tokens, then by the patterns of the pre-tokenizer, and the bytes
 *  of each piece are merged, pair by pair.  What asks for anything else (a
 *  normalizer, another model, a byte without a token) is refused.
 *  Not collective.
 */
#ifndef FSDP_TOKENIZER_H
#define FSDP_TOKENIZER_H

#include <stdint.h>

#include "fsdp/status.h"

typedef struct fsdp_tokenizer fsdp_tokenizer_t;

/** `path` is a tokenizer.json, or the folder it is in.  On failure *tokenizer is
 *  NULL and the message names the file and the fault. */
fsdp_status_t fsdp_tokenizer_open(const char *path,
                                  fsdp_tokenizer_t **tokenizer);
void fsdp_tokenizer_close(fsdp_tokenizer_t **tokenizer);

/** The largest token + 1. */
size_t fsdp_tokenizer_size(const fsdp_tokenizer_t *tokenizer);

/** The tokens of a text, which the caller frees.  With `special` they begin and
 *  end with those that the post-processor adds ("<|begin_of_text|>").  Bytes that
 *  are not UTF-8 count as U+FFFD, as Python's errors="replace" makes them;
 *  *replaced (may be NULL) tells how many times.  FSDP_ERR_INPUT: a pattern
 *  gives up on the text. */
fsdp_status_t fsdp_tokenizer_encode(const fsdp_tokenizer_t *tokenizer,
                                    const char *text, size_t length,
                                    bool special, int32_t **tokens,
                                    size_t *count, size_t *replaced);

/** The same of a file (without special tokens); *bytes is its size. */
fsdp_status_t fsdp_tokenizer_encode_file(const fsdp_tokenizer_t *tokenizer,
                                         const char *path, int32_t **tokens,
                                         size_t *count, size_t *bytes,
                                         size_t *replaced);

/** The bytes of a token, which end with the tokenizer; NULL if there is none of
 *  that number.  A text's are those of its tokens, one after another. */
const char *fsdp_tokenizer_bytes(const fsdp_tokenizer_t *tokenizer,
                                 int32_t token, size_t *length);

#endif
