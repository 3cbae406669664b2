/* Which MPI this is. */
#include "comm/internal.h"

#include <string.h>

const char *
fsdp_comm_library_version(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    fsdp_comm_check_mpi(MPI_Get_library_version(text, &length),
                        "asking for the version of MPI");
    /* MPICH goes on with its whole configuration. */
    text[strcspn(text, "\n")] = '\0';
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\t')
            *c = ' ';
    return text;
}
