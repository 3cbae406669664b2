#include "mck.h"

#include <stdio.h>
#include <stdlib.h>

#include "fsdp/memory.h"
#include "fsdp/status.h"

void
mck_report(const char *file, int line, const char *cond)
{
    fprintf(stderr, "%s:%d: rank %d of %d: false: %s\n", file, line,
            fsdp_comm_rank(fsdp_comm_world()),
            fsdp_comm_size(fsdp_comm_world()), cond);
}

/* Two MPIs on one machine may start N worlds of one rank, which all pass. */
static void
check_world_size(void)
{
    const char *np = getenv("FSDP_TEST_NP");
    int size = fsdp_comm_size(fsdp_comm_world());
    FSDP_CHECK(np == NULL || atoi(np) == size,
               "asked for %s ranks, have %d: mpiexec and mpicc of two MPIs?",
               np, size);
}

static bool
run_all(Suite *suite, bool loud)
{
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, loud ? CK_NORMAL : CK_SILENT);
    int run = srunner_ntests_run(runner);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    if (run == 0)
        fprintf(stderr, "no test was run\n");
    return run > 0 && failed == 0;
}

int
mck_run(int argc, char **argv, Suite *suite)
{
    fsdp_init(&argc, &argv);
    check_world_size();
    int rank = fsdp_comm_rank(fsdp_comm_world());
    bool passed = run_all(suite, rank == 0);
    fsdp_finalize();

    /* A failed test was left in the middle and frees nothing. */
    long left = passed ? fsdp_memory_live_blocks() : 0;
    if (left != 0)
        fprintf(stderr, "rank %d: %ld blocks of memory were not freed\n", rank,
                left);
    return passed && left == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
