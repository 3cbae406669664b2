/** \file launcher.h  What started this process. */
#ifndef FSDP_COMM_LAUNCHER_H
#define FSDP_COMM_LAUNCHER_H

/** Ends the process if the world has one rank, but the environment shows that
 *  another MPI's launcher started several.  Otherwise, if the world has more,
 *  arranges that this process does not outlive its launcher. */
void fsdp_launcher_check(int world_size);

#endif
