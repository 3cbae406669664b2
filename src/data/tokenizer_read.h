/** \file tokenizer_read.h  Floor 4, data: reading tokenizer.json.
 *
 *  Whatever would change the tokens and is not done here is refused.
 *
 *  tokenizer_read.c         the file; added tokens
 *  tokenizer_read_model.c   "model"
 *  tokenizer_read_pieces.c  "pre_tokenizer", "post_processor"
 *  tokenizer_read_member.c  what they share
 */
#ifndef FSDP_DATA_TOKENIZER_READ_H
#define FSDP_DATA_TOKENIZER_READ_H

#include "base/json.h"
#include "data/tokenizer.h"

/** Tokens that a post-processor adds on each side, at most. */
enum { FSDP_TOKENIZER_MAX_SPECIAL = 100 };

/* ---- tokenizer_read_member.c --------------------------------------------- */

/** What is wrong with a member, by its path: "model.vocab". */
fsdp_status_t fsdp_tokenizer_bad(const fsdp_tokenizer_t *tokenizer,
                                 const char *member, const char *what);
/** The same of a word that has no meaning here; NULL: it is none. */
fsdp_status_t fsdp_tokenizer_bad_word(const fsdp_tokenizer_t *tokenizer,
                                      const char *member, const char *word);
/** NULL for null, too. */
const fsdp_json_t *fsdp_tokenizer_member(const fsdp_json_t *object,
                                         const char *key);
/** NULL: it is no string. */
const char *fsdp_tokenizer_word(const fsdp_json_t *object, const char *key);
/** The value, or `otherwise` if it is missing; false: it is of another kind. */
bool fsdp_tokenizer_flag(const fsdp_json_t *object, const char *key,
                         bool otherwise, bool *value);
/** A number below `size`. */
bool fsdp_tokenizer_id(const fsdp_json_t *value, size_t size, int32_t *id);

/* ---- tokenizer_read_model.c ---------------------------------------------- */

/** What would change the tokens if it were there. */
fsdp_status_t fsdp_tokenizer_check_model(fsdp_tokenizer_t *tokenizer,
                                         const fsdp_json_t *model);
/** One more than the largest number of a token. */
size_t fsdp_tokenizer_count_ids(const fsdp_json_t *vocab,
                                const fsdp_json_t *added);
fsdp_status_t fsdp_tokenizer_read_vocab(fsdp_tokenizer_t *tokenizer,
                                        const fsdp_json_t *vocab);
fsdp_status_t fsdp_tokenizer_read_merges(fsdp_tokenizer_t *tokenizer,
                                         const fsdp_json_t *vocab,
                                         const fsdp_json_t *merges);

/* ---- tokenizer_read_pieces.c --------------------------------------------- */

fsdp_status_t fsdp_tokenizer_read_pre_tokenizer(fsdp_tokenizer_t *tokenizer,
                                                const fsdp_json_t *pre);
/** `nested`: it is one of a sequence. */
fsdp_status_t fsdp_tokenizer_read_processor(fsdp_tokenizer_t *tokenizer,
                                            const fsdp_json_t *processor,
                                            bool nested);

#endif
