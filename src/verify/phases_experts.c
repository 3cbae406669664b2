/* The level `phase`, of experts that P neighbours share out.
 *
 * In the run rank r, the q-th of its neighbours, has rows from each of them in
 * turn, of each those of its own experts.  The baseline of a neighbour has the
 * rows of all experts, sorted by expert, so those of rank r's stand together:
 *
 *     rank r           |   of neighbour 0   |   of neighbour 1   | ...
 *     neighbour s      | experts of 0 | ... | experts of q | ...
 */

#include <string.h>

#include "fsdp/memory.h"
#include "verify/internal.h"

/* What all ranks recorded, on rank 0. */
typedef struct gathered {
    char *data;     /* [W, room] */
    int32_t *rows;  /* [W, E] */
    int64_t *numel; /* [W] */
    size_t room;
} gathered_t;

/* Ranks have unlike numbers of rows: gathered at the longest one's length. */
static gathered_t
gather(fsdp_verifier_t *verifier, const record_t *record)
{
    size_t ranks = (size_t)verifier->size, experts = record->num_rows;
    size_t size = fsdp_dtype_size(record->dtype);
    int64_t numel = (int64_t)record->numel, most = numel;
    fsdp_all_reduce(verifier->comm, record->unit, FSDP_INT64, FSDP_MAX,
                    FSDP_ORDER_TREE, &most, 1);
    gathered_t all = {.room = (size_t)most};
    char *padded = fsdp_calloc(FSDP_MEM_BASELINE, all.room * size);
    if (numel > 0)
        memcpy(padded, record->data, record->numel * size);
    if (verifier->rank == 0) {
        all.data = fsdp_alloc(FSDP_MEM_BASELINE, ranks * all.room * size);
        all.rows =
            fsdp_alloc(FSDP_MEM_BASELINE, ranks * experts * sizeof *all.rows);
        all.numel = fsdp_alloc(FSDP_MEM_BASELINE, ranks * sizeof *all.numel);
    }
    fsdp_gather(verifier->comm, record->unit, record->dtype, padded, all.data,
                all.room, 0);
    fsdp_gather(verifier->comm, record->unit, FSDP_INT32, record->rows,
                all.rows, experts, 0);
    fsdp_gather(verifier->comm, record->unit, FSDP_INT64, &numel, all.numel, 1,
                0);
    fsdp_free(padded);
    return all;
}

static size_t
sum_of(const int32_t *rows, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (size_t)rows[i];
    return sum;
}

/* What rank r's experts did with the rows of `from`.  Rows that only one of the
 * two has count as differing. */
static void
compare_source(fsdp_verifier_t *verifier, const record_t *record, int r,
               int from, const record_t *base, const char *ours, size_t rows,
               size_t each, size_t first)
{
    size_t size = fsdp_dtype_size(record->dtype), columns = base->columns;
    size_t begin = sum_of(base->rows, first);
    size_t expected = sum_of(base->rows + first, each);
    size_t both = rows < expected ? rows : expected;
    const char *theirs = (const char *)base->data + begin * columns * size;
    place_t place = verifier_place_of(record);
    place.micro = verifier_micro(verifier, from, verifier->micro);
    place.rank = r;
    place.element = begin * columns;
    verifier_compare(verifier, &place, record->dtype, ours, theirs,
                     both * columns);
    place.element += both * columns;
    if (rows > both)
        verifier_compare(verifier, &place, record->dtype,
                         ours + both * columns * size, NULL,
                         (rows - both) * columns);
    if (expected > both)
        verifier_compare(verifier, &place, record->dtype, NULL,
                         theirs + both * columns * size,
                         (expected - both) * columns);
}

/* `base` is [W]. */
static void
compare_rank(fsdp_verifier_t *verifier, const record_t *record, int r,
             const record_t *const *base, const gathered_t *all)
{
    int neighbours = verifier->options.expert_ranks, q = r % neighbours;
    size_t experts = record->num_rows, each = experts / (size_t)neighbours;
    const int32_t *rows = all->rows + (size_t)r * experts;
    size_t size = fsdp_dtype_size(record->dtype), columns = base[r]->columns;
    const char *ours = all->data + (size_t)r * all->room * size;
    FSDP_CHECK(sum_of(rows, experts) * columns == (size_t)all->numel[r],
               "unit %s of rank %d: %zu rows are counted, there are %zu "
               "elements",
               record->unit, r, sum_of(rows, experts), (size_t)all->numel[r]);
    for (int s = 0; s < neighbours; s++) {
        int from = r - q + s;
        size_t count = sum_of(rows + (size_t)s * each, each);
        compare_source(verifier, record, r, from, base[from], ours, count, each,
                       (size_t)q * each);
        ours += count * columns * size;
    }
}

static const record_t *
find_base(const fsdp_verifier_t *verifier, const record_t *record, int r,
          int *at)
{
    const record_t *base =
        verifier_next_record(&verifier->base_recorder[r], record->kind, at);
    FSDP_CHECK(base != NULL && base->unit == record->unit &&
                   base->dtype == record->dtype &&
                   base->num_rows == record->num_rows,
               "unit %s ran otherwise in the baseline than on rank %d",
               record->unit, r);
    return base;
}

void
verifier_compare_experts(fsdp_verifier_t *verifier, const record_t *record,
                         int *at)
{
    gathered_t all = gather(verifier, record);
    if (verifier->rank != 0)
        return;
    /* No ranks share a batch (tensor parallelism has no experts): r = d. */
    const record_t **base =
        fsdp_alloc(FSDP_MEM_BASELINE, (size_t)verifier->size * sizeof *base);
    for (int r = 0; r < verifier->size; r++)
        base[r] = find_base(verifier, record, r, &at[r]);
    for (int r = 0; r < verifier->size; r++)
        compare_rank(verifier, record, r, base, &all);
    fsdp_free(base);
    fsdp_free(all.data);
    fsdp_free(all.rows);
    fsdp_free(all.numel);
}
