/** \file tokenizer.h  Floor 4, data: what a tokenizer is made of.
 *
 *  tokenizer_read*.c    tokenizer.json, believed in nothing
 *  tokenizer_vocab.c    tokens and their bytes, the table of merges
 *  tokenizer_pattern.c  cutting by regular expressions
 *  tokenizer_bpe.c      merging the bytes of a piece
 *  tokenizer_encode.c   all of it
 */
#ifndef FSDP_DATA_TOKENIZER_H
#define FSDP_DATA_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "fsdp/tokenizer.h"

/** Two tokens that become a third, the sooner the smaller the rank. */
typedef struct fsdp_merge {
    int32_t left, right, whole; /**< whole < 0: an empty place of the table */
    int32_t rank;
} fsdp_merge_t;

/** A token that is looked for in the text itself. */
typedef struct fsdp_added_token {
    char *text;
    size_t length;
    int32_t id;
    bool normalized; /**< looked for after the others */
} fsdp_added_token_t;

/** A compiled pattern; see tokenizer_pattern.c. */
typedef struct fsdp_pattern fsdp_pattern_t;

enum { FSDP_TOKENIZER_MAX_PATTERNS = 8 };

struct fsdp_tokenizer {
    char *path;
    /* tokens, by number; bytes NULL: there is none of it */
    char **bytes;
    size_t *length;
    size_t size;
    int32_t byte_token[256];
    /* the same by their bytes: numbers, -1 where the table is empty */
    int32_t *by_bytes;
    size_t by_bytes_size; /**< a power of 2 */
    fsdp_merge_t *merge;
    size_t merge_size;  /**< a power of 2 */
    bool ignore_merges; /**< a piece that is a token is that token */
    fsdp_pattern_t *pattern[FSDP_TOKENIZER_MAX_PATTERNS];
    int num_patterns;
    bool add_prefix_space;
    fsdp_added_token_t *added; /**< the longest first */
    size_t num_added;
    int32_t *before, *after; /**< what the post-processor adds */
    size_t num_before, num_after;
};

/* ---- tokenizer_vocab.c --------------------------------------------------- */

/** The bytes that a token of the file stands for: each is one of 256 letters.
 *  The caller frees.  (A text with other letters stands for itself.) */
char *fsdp_tokenizer_decode_letters(const char *text, size_t *length);
/** Makes room for numbers below `size`. */
void fsdp_tokenizer_make_vocab(fsdp_tokenizer_t *tokenizer, size_t size);
/** Gives a number its bytes, which are kept.  False: it has some already. */
bool fsdp_tokenizer_set(fsdp_tokenizer_t *tokenizer, int32_t id, char *bytes,
                        size_t length);
/** Fills the table by bytes.  False: two tokens have the same. */
void fsdp_tokenizer_index_vocab(fsdp_tokenizer_t *tokenizer);
/** -1: there is none. */
int32_t fsdp_tokenizer_find(const fsdp_tokenizer_t *tokenizer,
                            const char *bytes, size_t length);
void fsdp_tokenizer_make_merges(fsdp_tokenizer_t *tokenizer, size_t count);
/** False: the pair has a merge already. */
bool fsdp_tokenizer_add_merge(fsdp_tokenizer_t *tokenizer, fsdp_merge_t merge);
/** NULL: the two do not become one. */
const fsdp_merge_t *fsdp_tokenizer_merge(const fsdp_tokenizer_t *tokenizer,
                                         int32_t left, int32_t right);

/* ---- tokenizer_pattern.c ------------------------------------------------- */

/** GPT-2's own. */
extern const char fsdp_pattern_gpt2[];

/** `literal`: the text itself is looked for.  Refuses what Oniguruma, which
 *  Hugging Face uses, and PCRE2 understand differently. */
fsdp_status_t fsdp_pattern_create(const char *path, const char *text,
                                  bool literal, fsdp_pattern_t **pattern);
void fsdp_pattern_destroy(fsdp_pattern_t **pattern);
/** The next match at or after `from`: *begin and *end, or both `length`. */
fsdp_status_t fsdp_pattern_next(const fsdp_pattern_t *pattern, const char *text,
                                size_t length, size_t from, size_t *begin,
                                size_t *end);

/* ---- tokenizer_bpe.c ----------------------------------------------------- */

/** A list that grows, and what merging needs; all zero at first. */
typedef struct fsdp_token_list {
    int32_t *token;
    size_t count, room;
    struct fsdp_symbol *symbol; /**< [piece] */
    struct fsdp_pair *heap;     /**< pairs that may be merged, as a heap */
    size_t scratch;             /**< pieces of so many bytes have room */
    size_t pairs;
} fsdp_token_list_t;

void fsdp_token_list_add(fsdp_token_list_t *list, int32_t token);
/** Frees all but the tokens. */
void fsdp_token_list_end(fsdp_token_list_t *list);
/** The tokens of a piece's bytes. */
void fsdp_tokenizer_bpe(const fsdp_tokenizer_t *tokenizer, const char *piece,
                        size_t length, fsdp_token_list_t *list);

#endif
