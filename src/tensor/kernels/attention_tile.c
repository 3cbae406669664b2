#include "tensor/kernels/attention_tile.h"

#include <math.h>

#include "fsdp/status.h"
#include "tensor/dropout_words.h"

/* Six rows of a panel fill the registers of AVX2 (twelve sums, two vectors of
 * b, a factor, a product) and hide the latency of additions with AVX-512. */
enum { ROWS = 6 };

/* The loops over lanes are marked since the compiler would otherwise unroll
 * them before it sees that they are vectors. */
ALWAYS_INLINE void
store_lanes(const attention_product_t *p, const real_t *sum, real_t *c,
            size_t width)
{
    const real_t *keep = p->keep;
    if (!p->add) {
#pragma omp simd
        for (size_t l = 0; l < width; l++)
            c[l] = sum[l];
    } else if (keep == NULL) {
#pragma omp simd
        for (size_t l = 0; l < width; l++)
            c[l] += sum[l];
    } else {
#pragma omp simd
        for (size_t l = 0; l < width; l++)
            c[l] = c[l] * keep[l] + sum[l];
    }
}

ALWAYS_INLINE void
product_rows(const attention_product_t *p, size_t first, const size_t rows)
{
    real_t sum[ROWS][PANEL] __attribute__((aligned(64)));
    size_t a_row = p->a_row, a_term = p->a_term, b_term = p->b_term;
    const real_t *restrict a = p->a + first * a_row, *restrict b = p->b;

    for (size_t r = 0; r < rows; r++) {
#pragma omp simd
        for (size_t l = 0; l < PANEL; l++)
            sum[r][l] = 0;
    }
    for (size_t t = p->terms; t > 0; t--, a += a_term, b += b_term) {
#pragma GCC unroll 6
        for (size_t r = 0; r < rows; r++) {
            real_t factor = a[r * a_row];
#pragma omp simd
            for (size_t l = 0; l < PANEL; l++)
                sum[r][l] += factor * b[l];
        }
    }
    for (size_t r = 0; r < rows; r++) {
        real_t *c = p->c + (first + r) * p->c_row;
        if (p->width == PANEL)
            store_lanes(p, sum[r], c, PANEL);
        else
            store_lanes(p, sum[r], c, p->width);
    }
}

FSDP_CLONES void
attention_product(const attention_product_t *product)
{
    size_t first = 0;
    for (; first + ROWS <= product->rows; first += ROWS)
        product_rows(product, first, ROWS);
    switch (product->rows - first) {
    case 5:
        product_rows(product, first, 5);
        break;
    case 4:
        product_rows(product, first, 4);
        break;
    case 3:
        product_rows(product, first, 3);
        break;
    case 2:
        product_rows(product, first, 2);
        break;
    case 1:
        product_rows(product, first, 1);
        break;
    default:
        break;
    }
}

void
attention_dots(const attention_t *a, size_t keys, const real_t *rows,
               const real_t *columns, real_t *tile)
{
    attention_product_t dots = {
        .rows = keys,
        .terms = a->depth,
        .a = rows,
        .a_row = a->kv_row,
        .a_term = 1,
        .b = columns,
        .b_term = TILE,
        .c = tile,
        .c_row = TILE,
        .width = PANEL,
    };
    attention_product(&dots);
}

void
attention_combine(const attention_t *a, size_t keys, const real_t *rows,
                  const real_t *tile, const real_t *keep, real_t *columns)
{
    attention_product_t sums = {
        .rows = a->depth,
        .terms = keys,
        .a = rows,
        .a_row = 1,
        .a_term = a->depth,
        .b = tile,
        .b_term = TILE,
        .c = columns,
        .c_row = TILE,
        .width = PANEL,
        .add = true,
        .keep = keep,
    };
    attention_product(&sums);
}

FSDP_CLONES void
attention_transpose(const real_t *from, size_t stride, size_t rows,
                    size_t depth, real_t factor, real_t *to)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t d = 0; d < depth; d++)
            to[d * TILE + i] = factor * from[i * stride + d];
    for (size_t d = 0; d < depth && rows < TILE; d++)
        for (size_t i = rows; i < TILE; i++)
            to[d * TILE + i] = 0;
}

FSDP_CLONES void
attention_untranspose(const real_t *from, const real_t factor[TILE],
                      size_t rows, size_t depth, real_t *to, size_t stride)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t d = 0; d < depth; d++)
            to[i * stride + d] = factor[i] * from[d * TILE + i];
}

FSDP_CLONES void
attention_pack(const real_t *from, size_t stride, size_t rows, size_t depth,
               real_t factor, real_t *to, size_t padded)
{
    for (size_t i = 0; i < rows; i++, from += stride, to += padded) {
#pragma omp simd
        for (size_t d = 0; d < depth; d++)
            to[d] = factor * from[d];
        for (size_t d = depth; d < padded; d++)
            to[d] = 0;
    }
}

attention_t
attention_describe(fsdp_attention_shape_t shape,
                   const fsdp_dropout_key_t *dropout)
{
    FSDP_CHECK(shape.heads > 0 && shape.channels % shape.heads == 0,
               "%zu heads do not divide %zu channels", shape.heads,
               shape.channels);
    size_t kv_heads = shape.kv_heads > 0 ? shape.kv_heads : shape.heads;
    FSDP_CHECK(shape.heads % kv_heads == 0,
               "%zu key heads do not divide %zu query heads", kv_heads,
               shape.heads);
    FSDP_CHECK(dropout == NULL || (dropout->p >= 0 && dropout->p <= 1),
               "dropout with probability %g", dropout->p);
    size_t depth = shape.channels / shape.heads;
    return (attention_t){
        .batch = shape.batch,
        .positions = shape.positions,
        .channels = shape.channels,
        .heads = shape.heads,
        .depth = depth,
        .kv_heads = kv_heads,
        .group = shape.heads / kv_heads,
        .q_row = shape.channels,
        .kv_row = kv_heads * depth,
        .scale = (real_t)(1 / sqrt((double)depth)),
        .dropout = dropout != NULL && dropout->p > 0 ? dropout : NULL,
        .first_kept = dropout != NULL ? fsdp_dropout_first_kept(dropout->p) : 0,
    };
}

attention_t
attention_packed(fsdp_attention_shape_t shape,
                 const fsdp_dropout_key_t *dropout)
{
    attention_t a = attention_describe(shape, dropout);
    FSDP_CHECK(a.group == 1, "packed rows have as many key heads as heads");
    a.q_row = a.kv_row = 3 * a.channels;
    return a;
}

size_t
attention_keys(const attention_t *a, const attention_place_t *place,
               size_t panel)
{
    size_t end = place->query + (panel + 1) * PANEL;
    end = end < a->positions ? end : a->positions;
    return end - place->key < TILE ? end - place->key : TILE;
}

/* Only a tile on the diagonal has such scores, and there only the panel's last
 * PANEL keys, a square. */
void
attention_mask(const attention_place_t *place, size_t panel, size_t keys,
               real_t *tile)
{
    if (place->key < place->query)
        return;
    for (size_t j = panel * PANEL; j < keys; j++)
        for (size_t l = 0; l < j - panel * PANEL; l++)
            tile[j * TILE + l] = -REAL_INFINITY;
}
