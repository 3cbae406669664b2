#include "tensor/threads/parallel.h"

#include "fsdp/status.h"
#include "fsdp/tensor.h"

static int num_threads = 1;

void
fsdp_set_num_threads(int threads)
{
    FSDP_CHECK(threads >= 1, "%d threads asked for, at least 1 is needed",
               threads);
    num_threads = threads;
}

int
fsdp_get_num_threads(void)
{
    return num_threads;
}

static void
call_block(size_t i, size_t n, size_t block_size, fsdp_block_t *block,
           const void *context)
{
    size_t begin = i * block_size;
    size_t end = n - begin < block_size ? n : begin + block_size;
    block(context, begin, end);
}

void
fsdp_parallel_for(size_t n, size_t block_size, fsdp_block_t *block,
                  const void *context)
{
    FSDP_CHECK(block_size > 0, "blocks of no items");
    size_t blocks = n / block_size + (n % block_size != 0);
    if (blocks <= 1 || num_threads == 1) {
        for (size_t i = 0; i < blocks; i++)
            call_block(i, n, block_size, block, context);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(num_threads)
    for (size_t i = 0; i < blocks; i++)
        call_block(i, n, block_size, block, context);
}
