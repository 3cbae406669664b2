#include "fsdp/offload.h"

typedef struct vectors {
    const void *const *vector;
    int count;
    size_t element;
} vectors_t;

typedef void use_t(const void *address, size_t bytes);

static void
for_each(const vectors_t *v, use_t *use, size_t begin, size_t count)
{
    for (int i = 0; i < v->count; i++)
        if (v->vector[i] != NULL)
            use((const char *)v->vector[i] + begin * v->element,
                count * v->element);
}

static bool
any_in_a_file(const vectors_t *v)
{
    for (int i = 0; i < v->count; i++)
        if (v->vector[i] != NULL && fsdp_offload_of(v->vector[i]) != NULL)
            return true;
    return false;
}

void
fsdp_offload_in_pieces(const void *const *vector, int num_vectors, size_t numel,
                       size_t element, fsdp_offload_piece_fn_t *fn,
                       void *context)
{
    vectors_t v = {vector, num_vectors, element};
    size_t piece = FSDP_OFFLOAD_PIECE_BYTES / element;
    if (numel == 0)
        return;
    if (!any_in_a_file(&v)) {
        fn(context, 0, numel);
        return;
    }
    for (size_t begin = 0, n; begin < numel; begin += n) {
        n = numel - begin < piece ? numel - begin : piece;
        size_t left = numel - begin - n;
        if (begin == 0)
            for_each(&v, fsdp_offload_prefetch, 0, n);
        for_each(&v, fsdp_offload_prefetch, begin + n,
                 left < piece ? left : piece);
        fn(context, begin, n);
        for_each(&v, fsdp_offload_release, begin, n);
    }
}
