/* What several commands need. */

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

bool
cli_speaks(void)
{
    return fsdp_comm_rank(fsdp_comm_world()) == 0;
}

void
cli_choose_threads(long asked)
{
    int cores = fsdp_cpu_count();
    int ranks = fsdp_comm_size(fsdp_comm_world());
    const char *env = getenv("OMP_NUM_THREADS");
    long threads = asked;
    if (threads == 0 && env != NULL)
        threads = strtol(env, NULL, 10);
    if (threads < 1)
        threads = cores > ranks ? cores / ranks : 1;
    fsdp_set_num_threads((int)threads);
    if (cli_speaks() && threads > 1 && threads * ranks > cores)
        fsdp_warn("%d ranks of %ld threads on %d cores; --threads %d would be "
                  "faster",
                  ranks, threads, cores, cores > ranks ? cores / ranks : 1);
}
