/** \file attention_tile.h  Floor 1, tensor: the pieces of causal attention.
 *
 *  Attention works on square tiles of the T x T matrix of scores: TILE queries
 *  against TILE keys, in scratch that stays in the second-level cache.  A tile
 *  is kept transposed, [keys][queries]: the PANEL queries that fill a vector
 *  stand side by side, so a maximum or a sum over the keys runs down a lane, in
 *  ascending order of the key at any vector width.
 *
 *  Tiles begin at multiples of TILE, counted from position 0, whatever T is.
 *  Within a tile a panel stops at its last query's key; the keys above the
 *  diagonal that it still meets have probability 0, which adds nothing.  So a
 *  position's output has the same bits whatever stands behind it.
 *
 *  Letters: B, T, C, H, G, D as in tensor/kernels.h; i queries, j keys.
 */
#ifndef FSDP_TENSOR_KERNELS_ATTENTION_TILE_H
#define FSDP_TENSOR_KERNELS_ATTENTION_TILE_H

#include "tensor/kernels/entries.h"
#include "tensor/kernels/lanes.h"

enum { PANEL = 64 / sizeof(real_t), TILE = 4 * PANEL };

/** One call of attention or of its backward.  Query head h reads key head
 *  h / group.  q, k and v are arrays of their own unless attention_packed()
 *  says otherwise; their gradients are laid out like them. */
typedef struct attention {
    size_t batch, positions, channels, heads, depth; /**< B, T, C, H, D */
    size_t kv_heads, group;                          /**< G, and H / G */
    size_t q_row, kv_row;              /**< elements between rows of q; k, v */
    real_t scale;                      /**< 1 / sqrt(D) */
    const fsdp_dropout_key_t *dropout; /**< NULL: none */
    uint64_t first_kept;               /**< words below it drop */
} attention_t;

#define attention_describe K(attention_describe)
attention_t attention_describe(fsdp_attention_shape_t shape,
                               const fsdp_dropout_key_t *dropout);

/** The same when q, k and v share rows of 3 C, as in GPT-2. */
#define attention_packed K(attention_packed)
attention_t attention_packed(fsdp_attention_shape_t shape,
                             const fsdp_dropout_key_t *dropout);

/** Where a tile of head h of sample b begins. */
typedef struct attention_place {
    size_t sample, head, query, key;
} attention_place_t;

/** Keys of the tile at `place` that the panel of queries `panel` meets: those
 *  up to its last query, and no more than there are. */
#define attention_keys K(attention_keys)
size_t attention_keys(const attention_t *a, const attention_place_t *place,
                      size_t panel);

/** c[r][l] = sum over t of a(r, t) b[t][l] for l < width, plus what stood in c
 *  if `add`, plus keep[l] times that if `keep` is not NULL (it asks for `add`).
 *  a(r, t) is a[r a_row + t a_term].  The sum starts from 0 and runs in
 *  ascending t. */
typedef struct attention_product {
    size_t rows, terms;
    const real_t *a;
    size_t a_row, a_term;
    const real_t *b; /**< [terms][PANEL], rows b_term apart */
    size_t b_term;
    real_t *c; /**< [rows][width], rows c_row apart */
    size_t c_row;
    size_t width; /**< at most PANEL */
    bool add;
    const real_t *keep; /**< [PANEL] or NULL */
} attention_product_t;

#define attention_product K(attention_product)
void attention_product(const attention_product_t *product);

/** Below, `tile` is a panel of a tile, [keys][PANEL], rows TILE apart, and
 *  `columns` the same panel of a [D][TILE].
 *
 *  tile[j][i] = sum over d of rows[j][d] columns[d][i], with rows of k or v */
#define attention_dots K(attention_dots)
void attention_dots(const attention_t *a, size_t keys, const real_t *rows,
                    const real_t *columns, real_t *tile);

/** columns[d][i] = keep[i] columns[d][i] + sum over j of rows[j][d] tile[j][i],
 *  with packed rows [keys][D]; keep NULL stands for ones */
#define attention_combine K(attention_combine)
void attention_combine(const attention_t *a, size_t keys, const real_t *rows,
                       const real_t *tile, const real_t *keep, real_t *columns);

/** Scores above the diagonal become -infinity, so that their probability is
 *  exactly 0.  `tile` is panel `panel` of the tile at `place`. */
#define attention_mask K(attention_mask)
void attention_mask(const attention_place_t *place, size_t panel, size_t keys,
                    real_t *tile);

/** factor[j][i] = 1 / (1 - p) where the probability is kept, otherwise 0; for
 *  the queries and keys of the tile that attention_keys() counts. */
#define attention_dropout K(attention_dropout)
void attention_dropout(const attention_t *a, const attention_place_t *place,
                       real_t *factor);

/** to[d][i] = factor from[i][d], [depth][TILE]; zeros for i from `rows` on. */
#define attention_transpose K(attention_transpose)
void attention_transpose(const real_t *from, size_t stride, size_t rows,
                         size_t depth, real_t factor, real_t *to);

/** to[i][d] = factor[i] from[d][i]: back to `rows` rows, `stride` apart. */
#define attention_untranspose K(attention_untranspose)
void attention_untranspose(const real_t *from, const real_t factor[TILE],
                           size_t rows, size_t depth, real_t *to,
                           size_t stride);

/** to[i][d] = factor from[i][d], rows `padded` apart; zeros from d = depth. */
#define attention_pack K(attention_pack)
void attention_pack(const real_t *from, size_t stride, size_t rows,
                    size_t depth, real_t factor, real_t *to, size_t padded);

#endif
