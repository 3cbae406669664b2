#include "mck.h"

#include <stdio.h>
#include <stdlib.h>

void
mck_report(const char *file, int line, const char *cond)
{
    fprintf(stderr, "%s:%d: rank %d of %d: false: %s\n", file, line,
            fsdp_comm_rank(fsdp_comm_world()),
            fsdp_comm_size(fsdp_comm_world()), cond);
}

int
mck_run(int argc, char **argv, Suite *suite)
{
    fsdp_init(&argc, &argv);
    const char *np = getenv("FSDP_TEST_NP");
    FSDP_CHECK(np == NULL || atoi(np) == fsdp_comm_size(fsdp_comm_world()),
               "asked for %s ranks, have %d: mpiexec and mpicc of two MPIs?",
               np, fsdp_comm_size(fsdp_comm_world()));

    bool first = fsdp_comm_rank(fsdp_comm_world()) == 0;
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, first ? CK_NORMAL : CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    FSDP_CHECK(failed > 0 || fsdp_live_blocks() == 0, "%ld blocks leaked",
               fsdp_live_blocks());
    srunner_free(runner);
    fsdp_finalize();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
