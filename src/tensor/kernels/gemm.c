#include "tensor/blas.h"
#include "tensor/kernels/entries.h"
#include "tensor/threads/parallel.h"

#ifdef FSDP_REAL_IS_DOUBLE
#define blas_gemm fsdp_blas_dgemm
#else
#define blas_gemm fsdp_blas_sgemm
#endif

/* A tile of C is one call of BLIS.  Wide tiles pack the rows of A less often
 * (up to 8 % of the time in a weight gradient), so they are halved only where
 * there would be too few of them to share out.  k is never cut. */
enum {
    TILE_ROWS = 256,
    TILE_COLUMNS = 768,
    TILE_MULTIPLE = 48, /* whole register blocks of all BLIS kernels we know */
    ENOUGH_TILES = 8
};

typedef struct product {
    bool trans_a, trans_b;
    size_t m, n, k;
    real_t alpha, beta; /* beta is 0 or 1 */
    const real_t *a, *b;
    real_t *c;
    size_t lda, ldb, ldc;
    size_t tile_rows, tile_columns;
} product_t;

static size_t
ceil_div(size_t n, size_t d)
{
    return (n + d - 1) / d;
}

static size_t
smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t
tiles_across(const product_t *p)
{
    return ceil_div(p->n, p->tile_columns);
}

static size_t
num_tiles(const product_t *p)
{
    return ceil_div(p->m, p->tile_rows) * tiles_across(p);
}

/* About equal tiles, no larger than `largest` by more than the rounding. */
static size_t
tile_size(size_t n, size_t largest)
{
    size_t even = ceil_div(n, ceil_div(n, largest));
    return ceil_div(even, TILE_MULTIPLE) * TILE_MULTIPLE;
}

static void
cut_tiles(product_t *p)
{
    p->tile_rows = tile_size(p->m, TILE_ROWS);
    p->tile_columns = tile_size(p->n, TILE_COLUMNS);
    if (num_tiles(p) < ENOUGH_TILES)
        p->tile_columns = tile_size(p->n, TILE_COLUMNS / 2);
}

static void
multiply_tiles(const void *context, size_t begin, size_t end)
{
    const product_t *p = context;
    size_t across = tiles_across(p);
    for (size_t tile = begin; tile < end; tile++) {
        size_t row = tile / across * p->tile_rows;
        size_t column = tile % across * p->tile_columns;
        const real_t *a = p->a + (p->trans_a ? row : row * p->lda);
        const real_t *b = p->b + (p->trans_b ? column * p->ldb : column);
        blas_gemm(p->trans_a, p->trans_b, smaller(p->tile_rows, p->m - row),
                  smaller(p->tile_columns, p->n - column), p->k, p->alpha, a,
                  p->lda, b, p->ldb, p->beta, p->c + row * p->ldc + column,
                  p->ldc);
    }
}

/* C = beta C.  BLIS rounds beta C + x once or twice, depending on where in its
 * tiles an element stands, unless beta is 0 or 1. */
static void
scale_rows(size_t m, size_t n, real_t beta, real_t *c, size_t ldc)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
}

void
K(gemm)(bool trans_a, bool trans_b, size_t m, size_t n, size_t k, double alpha,
        const void *a, size_t lda, const void *b, size_t ldb, double beta,
        void *c, size_t ldc)
{
    if (m == 0 || n == 0)
        return;
    if (k == 0 || (beta != 0 && beta != 1)) {
        scale_rows(m, n, (real_t)beta, c, ldc);
        beta = 1;
    }
    if (k == 0)
        return;
    product_t p = {
        .trans_a = trans_a,
        .trans_b = trans_b,
        .m = m,
        .n = n,
        .k = k,
        .alpha = (real_t)alpha,
        .beta = (real_t)beta,
        .a = a,
        .b = b,
        .c = c,
        .lda = lda,
        .ldb = ldb,
        .ldc = ldc,
    };
    cut_tiles(&p);
    fsdp_parallel_for(num_tiles(&p), 1, multiply_tiles, &p);
}
